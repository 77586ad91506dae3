"""The verdicts on public scripts: what counts as a reason, as a gap and as a fault of the mapping."""

import collections
from pathlib import Path

import pytest
from tools.public_scripts import Kind, Script, judge, summary

from fsdp_mcp.lab import CodeError, FirstFailure, RankReport
from fsdp_mcp.run_report import RunReport


def failed(type_: str, message: str) -> RunReport:
    """Return the report of a run whose only rank raised an error."""
    error = CodeError(type=type_, message=message)
    return RunReport(
        ok=False,
        seconds=1.0,
        isolation="namespaces",
        torch_version="2.13.0",
        ranks=(RankReport(rank=0, status="error", output="", error=error),),
        first_failure=FirstFailure(rank=0, status="error", message=f"{type_}: {message}"),
    )


@pytest.mark.parametrize(
    ("type_", "message", "kind"),
    [
        ("ModuleNotFoundError", "No module named 'diffusers'", "third-party gap"),
        ("ModuleNotFoundError", "No module named 'model'", "named reason"),
        ("ImportError", "cannot import name 'X' from 'torch.distributed.fsdp' (...)", "named reason"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'data/train.bin'", "named reason"),
        ("SystemExit", "exit status 2", "named reason"),
        ("ValueError", "shapes differ", "named reason"),
        (
            "ProcessRaisedException",
            'Traceback:\n  init_process_group("nccl")\nValueError: no MASTER_ADDR',
            "named reason",
        ),
        ("RuntimeError", "Cannot access accelerator device when none is available.", "mapping fault"),
        ("AttributeError", "'CpuStream' object has no attribute 'handle'", "mapping fault"),
    ],
)
def test_an_error_is_a_reason_unless_it_speaks_of_devices(type_: str, message: str, kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    script = Script(id="a", file=tmp_path / "train.py", repository=tmp_path)
    assert judge(failed(type_, message), script).kind == kind


def test_gaps_are_left_out_of_the_share() -> None:
    counts: collections.Counter[Kind] = collections.Counter(
        {"started": 2, "named reason": 3, "third-party gap": 4, "mapping fault": 1}
    )
    assert summary(counts) == (
        "5 of 6 started (2) or stopped for a named reason (3); 1 mapping faults; 4 third-party gaps left out"
    )
