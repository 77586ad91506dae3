"""Why ranks wait for each other, on real ranks: one script for each of the kinds that need different evidence."""

from pathlib import Path

import pytest
from tools import hang_kinds

from fsdp_mcp.run_report import RunReport
from fsdp_mcp.tokens import estimate_tokens
from fsdp_mcp.verify.run import run_on_gloo

pytestmark = pytest.mark.ranks
SCRIPTS = Path(__file__).parent / "scripts"
CASES = {case.name: case for case in hang_kinds.cases()}
SOONER_THAN_THE_LIMIT = (
    "rank_conditional_helper",
    "uneven_ddp",
    "different_order_of_groups",
    "different_shapes",
    "recv_without_send",
    "swallowed_exception",
)


def explained(report: RunReport) -> tuple[str, str]:
    assert report.hang is not None, report.render()
    return report.hang.kind, report.hang.explanation


@pytest.mark.parametrize("name", SOONER_THAN_THE_LIMIT)
def test_a_hang_is_explained_with_its_kind_and_line(name: str) -> None:
    case = CASES[name]
    report = run_on_gloo(case.code, timeout_seconds=600)  # a run that waits for its limit does not pass here
    kind, explanation = explained(report)
    assert (kind, f"train.py:{case.line}" in explanation) == (case.kind, True), report.render()
    assert estimate_tokens(report.render().partition("Output of rank")[0]) < 450  # three bytes a token


def test_a_slow_rank_is_no_hang_until_time_runs_out() -> None:
    code = CASES["slow_rank"].code
    patient = run_on_gloo(code.replace("1000", "3"))
    assert (patient.ok, patient.hang) == (True, None), patient.render()
    report = run_on_gloo(code, timeout_seconds=6)
    kind, explanation = explained(report)
    assert kind == "slow_or_stuck_elsewhere"
    assert "rank 0 running at train.py:10 `time.sleep(1000)`" in explanation


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "sys.exit('no data')"])
def test_the_rank_that_ended_is_first_not_the_one_that_noticed(end: str) -> None:
    code = f"""
import os, sys, torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    {end}
dist.all_reduce(torch.ones(1))
"""
    report = run_on_gloo(code)
    assert report.first_failure is not None
    assert (report.first_failure.rank, report.ok) == (1, False)


def test_calls_are_counted_per_rank_kind_and_group_and_none_of_them_is_taken_for_a_hang() -> None:
    report = run_on_gloo((SCRIPTS / "every_collective.py").read_text(encoding="utf-8"), world_size=4)
    assert (report.ok, report.hang) == (True, None), report.render()
    world = {one.kind: (one.count, one.bytes) for one in report.collectives if (one.rank, len(one.group)) == (1, 4)}
    assert {kind: world[kind] for kind in ("all_to_all", "reduce", "all_reduce")} == {
        "all_to_all": (1, 16),
        "reduce": (1, 12),
        "all_reduce": (3, 104),  # from Python, functional, and the reducer of DDP
    }


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(set(CASES) - set(SOONER_THAN_THE_LIMIT)))
def test_every_kind_is_explained(name: str) -> None:
    report = hang_kinds.run(CASES[name])
    assert hang_kinds.right(CASES[name], report), report.render()
