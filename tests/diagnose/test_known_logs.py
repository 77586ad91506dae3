"""diagnose_log on logs of which the cause is known.

`failure_logs.jsonl` was written beside the failure pages. `thread_failure_logs.jsonl` was collected from public threads
by readers who did not know the pages; its error lines are those of the threads as far as its `provenance` says so.
"""

from __future__ import annotations

from pathlib import Path

from tools.eval_failures import Outcome, outcome, read_cases

DATA = Path(__file__).parents[1] / "data"
OWN = [outcome(case) for case in read_cases(DATA / "failure_logs.jsonl")]
THREADS = [outcome(case) for case in read_cases(DATA / "thread_failure_logs.jsonl")]


def missed(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return [(each.id, each.found) for each in outcomes if each.category != "none" and not each.right]


def invented(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return [(each.id, each.found) for each in outcomes if each.category == "none" and not each.right]


def wrong_origin(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return [(each.id, each.found) for each in outcomes if each.origin_right is False]


def test_nearly_every_failure_is_named_first() -> None:
    assert len(missed(OWN)) <= 0.02 * len(OWN), missed(OWN)
    assert len(missed(THREADS)) <= 0.08 * len(THREADS), missed(THREADS)


def test_no_cause_is_invented_for_a_harmless_log() -> None:
    assert invented(OWN) == []
    assert len(invented(THREADS)) <= 1, invented(THREADS)


def test_the_rank_that_failed_first_is_named() -> None:
    assert wrong_origin(OWN) == []
    assert len(wrong_origin(THREADS)) <= 4, wrong_origin(THREADS)
