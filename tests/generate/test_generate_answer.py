"""The answer: files, folder, receipt, text and what the tool costs a model."""

import dataclasses
import json
import shlex
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from fsdp_mcp import call, toolbox
from fsdp_mcp.errors import BadArgument, Forbidden
from fsdp_mcp.generate.proof import plan
from fsdp_mcp.generate.recipe import Options
from fsdp_mcp.generate.registry import RECIPES
from fsdp_mcp.generate.training_code import generate_training_code
from fsdp_mcp.lab import Program, RankReport
from fsdp_mcp.run_report import RunReport
from fsdp_mcp.verify.run import run_ranks

READS_TOKENS = pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe-openai 0.1


def tokens(text: str) -> int:
    from bpe_openai import get_encoding  # warns while it is imported

    return len(get_encoding("o200k_base").encode(text))


def printing(*losses: float, start: int = 1) -> RunReport:
    """Return the report of a run whose rank 0 printed these losses."""
    lines = [f"step {step} loss {loss:.6f} grad_norm 1.0000" for step, loss in enumerate(losses, start)]
    rank = RankReport(rank=0, status="ok", exit_code=0, output="\n".join(lines))
    return RunReport(ok=True, seconds=1.0, isolation="process_group", torch_version="2.13.0", ranks=(rank,))


@pytest.fixture(autouse=True)
def caller(tmp_path: Path) -> Iterator[None]:
    call.enter(call.Caller(roots=(tmp_path,)))
    yield
    call.enter(call.Caller())


@pytest.mark.ranks
def test_a_receipt_shows_the_run_that_stopped_and_resumed() -> None:
    code = generate_training_code("fsdp2", checkpoint="dcp", nodes=4, prove=run_ranks)
    receipt = code.receipt
    assert receipt is not None
    assert (receipt.ok, receipt.error, receipt.world_size, len(receipt.losses)) == (True, None, 2, 8)
    assert receipt.losses[-1] < receipt.losses[0]
    assert receipt.sha256 == {"train.py": sha256(code.files[0].content.encode()).hexdigest()}
    assert receipt.differences[:2] == ("32 ranks -> 2", "CUDA with NCCL -> CPU with Gloo")
    assert code.render().startswith("Proven on 2 Gloo ranks in ")


def test_a_loss_that_does_not_fall_fails_the_proof_and_the_files_are_there() -> None:
    code = generate_training_code("ddp", prove=lambda program: printing(2.0, 2.5))
    assert code.receipt is not None
    assert (code.negative, code.receipt.error) == (True, "the loss did not fall: 2.0000 at step 1, 2.5000 at step 2")
    assert code.files[0].path == "train.py"


def test_a_loss_that_is_not_finite_fails_the_proof() -> None:
    code = generate_training_code("ddp", prove=lambda program: printing(2.0, float("nan")))
    assert code.receipt is not None
    assert not code.receipt.ok


def test_a_resumed_run_with_other_losses_fails_the_proof() -> None:
    reports = iter([printing(4.0, 3.0), printing(2.5, 2.0, start=3), printing(4.0, 3.0, 2.0, 1.0)])
    code = generate_training_code("ddp", checkpoint="dcp", prove=lambda program: next(reports))
    assert code.receipt is not None
    assert str(code.receipt.error).startswith("resumed losses")


def test_a_run_that_prints_no_loss_fails_the_proof() -> None:
    code = generate_training_code("ddp", prove=lambda program: printing())
    assert code.receipt is not None
    assert code.receipt.error == "the script printed fewer than two losses"


@pytest.mark.parametrize(
    ("options", "world_size", "differences"),
    [
        (Options("fsdp2"), 2, ("8 ranks -> 2",)),
        (Options("fsdp2", devices_per_node=2), 2, ("CUDA with NCCL -> CPU with Gloo",)),
        (Options("fsdp2", reshard_after_forward=4), 4, ("8 ranks -> 4", "reshard_after_forward 4 -> 2")),
        (Options("hsdp", nodes=2), 4, ("16 ranks -> 4", "shard group 8 -> 2")),
        (Options("hsdp", nodes=2, reshard_after_forward=2), 8, ("16 ranks -> 8", "shard group 8 -> 4")),
        (Options("fsdp1", cpu_offload=True), 2, ("cpu_offload off: FSDP1 offloads from an accelerator only",)),
    ],
)
def test_the_proof_is_small_and_says_what_it_changed(options: Options, world_size: int, differences) -> None:
    planned = plan(options)
    assert planned.world_size == world_size
    assert [item for item in differences if item not in planned.differences] == []


def test_the_command_repeats_what_was_run() -> None:
    seen: list[Program] = []

    def remember(program: Program) -> RunReport:
        seen.append(program)
        return printing(2.0, 1.0)

    code = generate_training_code("hsdp", nodes=2, prove=remember)
    assert code.receipt is not None
    words = shlex.split(code.receipt.command)
    assert tuple(words[words.index("train.py") + 1 :]) == seen[0].arguments
    assert words[words.index("--nproc-per-node") + 1] == str(seen[0].world_size)


def test_without_permission_to_run_the_files_come_without_a_receipt() -> None:
    call.enter(call.Caller(roots=(), may_run=False))
    code = generate_training_code("fsdp2", prove=run_ranks)
    assert code.receipt is None
    assert code.files[0].path == "train.py"
    assert "Start it with --allow-run" in code.caveats[-1]


def test_verify_false_runs_nothing() -> None:
    code = generate_training_code("fsdp2", verify=False, prove=lambda program: pytest.fail("it ran"))
    assert (code.receipt, code.caveats[-1]) == (None, "Not run, as verify=false says.")


def test_output_dir_gets_the_files_and_the_text_lists_them(tmp_path: Path) -> None:
    code = generate_training_code("fsdp2", launcher="slurm", output_dir="job", verify=False)
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "job").iterdir()}
    assert written == {file.path: file.content for file in code.files}
    assert "train.py, launch.sbatch" in code.render()
    assert "def main" not in code.render()


def test_an_existing_file_is_never_written_over_and_nothing_else_is_written(tmp_path: Path) -> None:
    (tmp_path / "launch.sbatch").write_text("mine", encoding="utf-8")
    with pytest.raises(BadArgument, match=r"has a launch\.sbatch already"):
        generate_training_code("fsdp2", launcher="slurm", output_dir=".", verify=False)
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == {"launch.sbatch": "mine"}


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "train.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(BadArgument, match=r"has a train\.py already"):
        generate_training_code("fsdp2", output_dir=".", verify=False)
    assert not (tmp_path / "elsewhere.py").exists()


def test_a_folder_outside_the_roots_is_refused() -> None:
    with pytest.raises(Forbidden):
        generate_training_code("fsdp2", output_dir="../elsewhere", verify=False)


def test_output_dir_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(BadArgument, match="is a file"):
        generate_training_code("fsdp2", output_dir="taken", verify=False)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.strategy)
@READS_TOKENS
def test_an_answer_costs_a_model_less_than_three_thousand_tokens(recipe) -> None:
    code = generate_training_code(
        recipe.strategy, nodes=2, checkpoint="dcp", gradient_accumulation_steps=4, prove=lambda program: printing(2, 1)
    )
    assert tokens(code.render()) < 3000


@READS_TOKENS
def test_the_tool_costs_a_model_less_than_twelve_hundred_tokens() -> None:
    tool = toolbox.find_tool("generate_training_code")
    shown = {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema()}
    assert tokens(json.dumps(shown)) < 1200


def test_the_arguments_have_the_defaults_that_the_rules_compare_with() -> None:
    fields = toolbox.find_tool("generate_training_code").arguments.model_fields
    shown = {name: field.get_default() for name, field in fields.items() if name != "strategy"}
    options = {field.name: field.default for field in dataclasses.fields(Options) if field.name != "strategy"}
    assert {**shown, "block_classes": tuple(shown["block_classes"])} == {**options, "verify": True, "output_dir": None}
