"""Options of torchrun are read from the installed torch and found by any spelling, their variables included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.api.history import load_history
from fsdp_mcp.api.lookup import lookup_api
from fsdp_mcp.api.torchrun import OptionRow, option_path
from fsdp_mcp.corpus import load_facts

_NO_TORCH = Catalogue(None, {}, {})
_COUNTS = {"2.0": 23, "2.2": 23, "2.3": 25, "2.8": 26, "2.9": 27, "2.10": 31, "2.12": 32, "2.14": 34}
"""Arguments of run.py in a release, the script and its arguments among them."""


@pytest.mark.parametrize(
    "asked",
    [
        "torchrun --nproc-per-node",
        "--nproc-per-node",
        "--nproc_per_node",
        "nproc_per_node",
        "nproc-per-node",
        "--nproc-per-node=8",
        "PET_NPROC_PER_NODE",
        "fsdp://torchrun/nproc-per-node",
    ],
)
@pytest.mark.parametrize("with_torch", [True, False])
def test_an_option_is_found_by_any_spelling(catalogue: Catalogue, asked: str, *, with_torch: bool) -> None:
    answer = lookup_api(asked, catalogue=catalogue if with_torch else _NO_TORCH)
    assert (answer.qualified_name, answer.kind, answer.since) == ("torchrun --nproc-per-node", "option", "2.0")


def test_an_option_is_answered_with_default_help_advice_and_variable(catalogue: Catalogue) -> None:
    text = lookup_api("--max-restarts", catalogue=catalogue).render()
    assert "--max-restarts INT (default: 0)" in text
    assert "Maximum number of worker group restarts" in text
    assert "Needs checkpoints" in text
    assert "PET_MAX_RESTARTS" in text


@pytest.mark.parametrize("flag", ["standalone", "module", "no-python", "run-path", "virtual-local-rank"])
def test_a_flag_takes_no_value(catalogue: Catalogue, flag: str) -> None:
    assert lookup_api(f"--{flag}", catalogue=catalogue).signature == f"--{flag}"


def test_the_short_form_leads_to_the_long_one(catalogue: Catalogue) -> None:
    assert lookup_api("torchrun -r", catalogue=catalogue).name == "--redirects"


def test_every_option_of_the_installed_torch_is_known(catalogue: Catalogue, torch_dir: Path) -> None:
    tree = ast.parse((torch_dir / "distributed" / "run.py").read_text(encoding="utf-8"))
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
    ]
    spellings = [argument.value for node in calls for argument in node.args if isinstance(argument, ast.Constant)]
    long = [text for text in spellings if text.startswith("--")]
    assert len(long) > 50
    assert {lookup_api(option, catalogue=catalogue).kind for option in long} == {"option"}


@pytest.mark.parametrize(("release", "count"), _COUNTS.items())
def test_the_history_has_the_options_of_each_release(release: str, count: int) -> None:
    history = load_history()
    at = history.releases.index(release)
    options = [path for path in history.paths if path.startswith("torchrun ") and history.resolve(path, at) == path]
    assert len(options) + len(("training_script", "training_script_args")) == count


def test_there_is_advice_for_every_option_of_any_release() -> None:
    history = load_history()
    options = {path.removeprefix("torchrun --") for path in history.paths if history.record(path) and " --" in path}
    rows = load_facts("torchrun_options", OptionRow)
    assert {row.name for row in rows} == options
    assert all(row.source.startswith("https://") for row in rows)


@pytest.mark.parametrize("name", ["torch.distributed.run", "NCCL_DEBUG", "--nnodes"])
def test_other_names_are_left_as_they_are(name: str) -> None:
    assert option_path(name) == name
