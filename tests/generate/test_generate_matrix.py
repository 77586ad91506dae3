"""Generated scripts train: each option value in `make test`, every pair of them in the nightly matrix."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from generation_options import DOMAINS, PROJECT, arguments, describe, option_values, pairwise_combinations, sample

from fsdp_mcp import call
from fsdp_mcp.generate.training_code import generate_training_code
from fsdp_mcp.verify.run import run_on_gloo, run_ranks


@pytest.fixture(autouse=True)
def caller() -> Iterator[None]:
    call.enter(call.Caller(roots=(PROJECT,)))
    yield
    call.enter(call.Caller())


def assert_trains(combination) -> None:
    code = generate_training_code(**arguments(combination), prove=run_ranks)
    assert code.receipt is not None
    assert (code.receipt.ok, code.receipt.error) == (True, None), code.render()


@pytest.mark.ranks
@pytest.mark.parametrize("combination", sample(), ids=describe)
def test_each_option_value_trains_with_falling_loss(combination) -> None:
    assert_trains(combination)


@pytest.mark.ranks
@pytest.mark.nightly
@pytest.mark.parametrize("combination", pairwise_combinations(), ids=describe)
def test_each_pair_of_option_values_trains_with_falling_loss(combination) -> None:
    assert_trains(combination)


def test_the_sample_holds_every_value_of_every_option() -> None:
    every = {(name, value) for domain in DOMAINS.values() for name, values in domain.items() for value in values}
    assert option_values(sample()) == every | {("strategy", strategy) for strategy in DOMAINS}


SMALL = ["--steps=3", "--dim=64", "--layers=2", "--sequence-length=16", "--batch-size=4"]


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("strategy", "options"),
    [("fsdp2", {"cpu_offload": True, "checkpoint": "dcp"}), ("ddp", {"gradient_accumulation_steps": 2})],
)
def test_the_branch_for_gpus_runs_when_cuda_is_mapped_to_the_cpu(strategy: str, options: dict[str, object]) -> None:
    script = generate_training_code(strategy, **options, verify=False).files[0].content
    report = run_on_gloo(script, arguments=SMALL, map_cuda_to_cpu=True)
    assert report.ok, report.render()
    lines = script.splitlines()
    assert any("init_process_group" in lines[found.line - 1] for found in report.mapped if found.line)


BROKEN = """
from torch import nn

def build():
    return nn.Linear(3, 4)
"""


@pytest.mark.ranks
def test_a_model_that_fails_on_a_rank_is_told_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    call.enter(call.Caller(roots=(tmp_path,)))
    code = generate_training_code("ddp", model="broken:build", project_dir=str(tmp_path), prove=run_ranks)
    assert code.receipt is not None
    assert code.negative
    assert [file.path for file in code.files] == ["train.py"]
    assert "train.py:" in str(code.receipt.error)
