"""How bare facts about ranks become statuses, places and a first failure, and how a report reads."""

from pathlib import Path
from typing import Any

import pytest

from fsdp_mcp.lab import CodeError, FirstFailure, Mapped, RankReport, StuckAt
from fsdp_mcp.run_report import RunReport
from fsdp_mcp.tokens import estimate_tokens
from fsdp_mcp.verify.launch import Facts, Folders
from fsdp_mcp.verify.report import first_failure, rank_reports

ENDED: dict[str, Any] = {
    "exit_code": 1,
    "signal": None,
    "ended_by": None,
    "ended_at": 10.0,
    "error": None,
    "stack": "",
    "crash": "",
    "exit": None,
    "mapped": None,
    "output": "",
    "output_omitted_bytes": 0,
}
RAISED: dict[str, Any] = {
    "type": "RuntimeError",
    "message": "gone",
    "file": "/s/code/train.py",
    "line": 2,
    "code": "dist.barrier()",
    "traceback": "",
    "number": None,
    "by_communication": True,
    "exit_code": 1,
}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    work_dir = tmp_path / "code"
    work_dir.mkdir()
    (work_dir / "train.py").write_text("import torch\ndist.all_reduce(tensor)\n", encoding="utf-8")
    return Folders(scratch=tmp_path, work_dir=work_dir, entry=work_dir / "train.py", roots=(work_dir,))


def facts(folders: Folders, *ranks: dict[str, Any]) -> Facts:
    told = [{**ENDED, "rank": number, **rank} for number, rank in enumerate(ranks)]
    return Facts("namespaces", "2.13.0+cpu", told, folders, packages=Path("/site-packages"))


def first(found: Facts) -> FirstFailure:
    failure = first_failure(found, rank_reports(found))
    assert failure is not None
    return failure


def test_a_crash_noticed_late_comes_before_the_broken_connection_it_caused(folders: Folders) -> None:
    broken = {"error": {**RAISED, "time": 9.99}}
    crashed = {"exit_code": None, "signal": 11, "ended_at": 10.01}
    failure = first(facts(folders, broken, crashed))
    assert (failure.rank, failure.message) == (1, "Signal: ended by SIGSEGV")


def test_of_two_own_failures_the_earlier_is_first(folders: Folders) -> None:
    late, early = ({"error": {**RAISED, "by_communication": False, "time": time}} for time in (5.2, 5.1))
    assert first(facts(folders, late, early)).rank == 1


def test_a_hung_rank_is_located_in_the_main_thread_below_torch(folders: Folders) -> None:
    stack = f"""main 0x00007f0000000001
Thread 0x00007f0000000002 (most recent call first):
  File "{folders.work_dir}/other.py", line 1 in worker

Current thread 0x00007f0000000001 (most recent call first):
  File "/site-packages/torch/distributed/distributed_c10d.py", line 9 in _wait
  File "/site-packages/torch/distributed/distributed_c10d.py", line 3 in all_reduce
  File "/site-packages/torch/distributed/c10d_logger.py", line 4 in wrapper
  File "{folders.work_dir}/train.py", line 2 in <module>
"""
    report = rank_reports(facts(folders, {"exit_code": None, "signal": 9, "ended_by": "timeout", "stack": stack}))[0]
    place = StuckAt(file="train.py", line=2, function="<module>", code="dist.all_reduce(tensor)")
    assert (report.status, report.stuck_at, report.collective, report.signal) == ("hung", place, "all_reduce", None)


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        ({"type": "MemoryError", "message": ""}, "MemoryLimit"),
        ({"message": "DefaultCPUAllocator: can't allocate memory: you tried"}, "MemoryLimit"),
        ({"type": "OSError", "number": 27, "message": "File too large"}, "FileSizeLimit"),
    ],
)
def test_a_refused_allocation_or_write_is_named_by_its_limit(
    folders: Folders, error: dict[str, Any], limit: str
) -> None:
    report = rank_reports(facts(folders, {"error": {**RAISED, "time": 1.0, **error}}))[0]
    assert (report.status, report.error and report.error.type) == ("killed", limit)


def test_paths_are_short_and_our_own_frames_left_out(folders: Folders) -> None:
    ours = Path(rank_reports.__code__.co_filename).with_name("rank_side") / "cuda_map.py"
    output = f"""[rank0]:   File "{folders.work_dir}/train.py", line 1, in <module>
[rank0]:     model.to(0)
[rank0]:   File "{ours}", line 5, in replaced
[rank0]:     return wrapper(original)
[rank0]:            ^^^^^^^^^^^^^^^^^
[rank0]:   File "/site-packages/torch/nn/modules/module.py", line 6, in to
"""
    shown = rank_reports(facts(folders, {"output": output}))[0].output
    assert shown == (
        '[rank0]:   File "train.py", line 1, in <module>\n[rank0]:     model.to(0)\n'
        '[rank0]:   File "torch/nn/modules/module.py", line 6, in to\n'
    )


def report_of(*ranks: RankReport, failure: FirstFailure | None, **more: Any) -> RunReport:
    return RunReport(
        ok=failure is None,
        seconds=3.14,
        isolation="namespaces",
        torch_version="2.13.0",
        ranks=ranks,
        first_failure=failure,
        **more,
    )


def test_a_good_run_reads_in_a_few_lines() -> None:
    ranks = [RankReport(rank=rank, status="ok", exit_code=0, output="loss 0.5\n") for rank in range(2)]
    mapped = (Mapped(what='"cuda" -> "cpu" in device', line=3), Mapped(what='"cuda" -> "cpu" in device', line=7))
    assert report_of(*ranks, failure=None, mapped=mapped).render() == (
        "**ok**: 2 ranks in 3.1 s (torch 2.13.0, namespaces)\n\n"
        "Output of rank 0:\n```\nloss 0.5\n```\n\n"
        '- mapped: "cuda" -> "cpu" in device (lines 3, 7)'
    )


def test_ranks_that_hang_at_one_place_share_a_line() -> None:
    places = [StuckAt(file="train.py", line=line, function="step", code=f"call({line})") for line in (5, 9, 5)]
    ranks = [RankReport(rank=rank, status="hung", stuck_at=place) for rank, place in enumerate(places)]
    failure = FirstFailure(rank=0, status="hung", message="still running when time ran out", file="train.py", line=5)
    assert report_of(*ranks, failure=failure).render() == (
        "**failed**: 3 ranks in 3.1 s (torch 2.13.0, namespaces). Rank 0 first at train.py:5: still running when time"
        " ran out\n`call(5)`\n\n"
        "- ranks 0, 2: hung at train.py:5 `call(5)`\n- rank 1: hung at train.py:9 `call(9)`\n\n"
        "Rank 0 printed nothing."
    )


def test_the_longest_report_stays_short() -> None:
    error = CodeError(type="E" * 99, message="测" * 8000, file="f" * 200, line=1, code="c" * 500, traceback="t" * 8000)
    ranks = [
        RankReport(rank=rank, status="error", output="输" * 4000, error=error.model_copy(update={"line": rank}))
        for rank in range(16)
    ]
    failure = FirstFailure(rank=3, status="error", message=error.message, file=error.file, line=3)
    mapped = [Mapped(what=f"{line} {'m' * 60}", line=line) for line in range(1, 200)]
    text = report_of(*ranks, failure=failure, mapped=tuple(mapped)).render()
    assert estimate_tokens(text) < 2_600  # three bytes a token is far from what prose and code take
