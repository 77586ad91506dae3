"""diagnose_log on logs of which the cause is known: tests/data/failure_logs.jsonl."""

from __future__ import annotations

from pathlib import Path

from tools.eval_failures import outcome, read_cases

OUTCOMES = [outcome(case) for case in read_cases(Path(__file__).parents[1] / "data" / "failure_logs.jsonl")]
FAILURES = [each for each in OUTCOMES if each.category != "none"]


def test_nearly_every_failure_is_named_first() -> None:
    missed = [(each.id, each.found) for each in FAILURES if not each.right]
    assert len(missed) <= 0.02 * len(FAILURES), missed


def test_no_cause_is_invented_for_a_harmless_log() -> None:
    assert [(each.id, each.found) for each in OUTCOMES if each.category == "none" and not each.right] == []


def test_the_rank_that_failed_first_is_named() -> None:
    assert [(each.id, each.found) for each in OUTCOMES if each.origin_right is False] == []
