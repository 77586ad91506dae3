"""Measures diagnose_log on logs with a known cause: `python -m tools.eval_failures CASES.jsonl... [--misses]`.

A line of a file is an object with id, log, category, keywords and, where it has them, accept_also and origin_rank. A
diagnosis is right when the first finding's id, title, cause or fix holds one of the keywords; for the category none,
when the verdict is none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fsdp_mcp.diagnose.answer import LogDiagnosis
from fsdp_mcp.diagnose.diagnose_log import diagnose_log
from fsdp_mcp.tokens import estimate_tokens


class Outcome(NamedTuple):
    """What diagnose_log said of one case."""

    id: str
    category: str
    right: bool
    found: str
    """The first finding's id, or none."""
    origin_right: bool | None
    """None where the case names no rank."""
    tokens: int


def read_cases(path: Path) -> list[dict[str, Any]]:
    """Return the cases of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def outcome(case: dict[str, Any]) -> Outcome:
    """Diagnose the log of a case and compare."""
    found = diagnose_log(case["log"])
    rank = found.findings[0].rank if found.findings else None
    return Outcome(
        id=case["id"],
        category=case["category"],
        right=is_right(case, found),
        found=found.findings[0].id if found.findings else "none",
        origin_right=rank == case["origin_rank"] if case.get("origin_rank") is not None else None,
        tokens=estimate_tokens(found.render()),
    )


def is_right(case: dict[str, Any], found: LogDiagnosis) -> bool:
    """Return whether the first finding names the cause or the fix, or rightly that there is none."""
    if case["category"] == "none":
        return found.verdict == "none"
    if not found.findings:
        return False
    first = found.findings[0]
    said = f"{first.id} {first.title} {first.cause} {first.fix}".casefold()
    return any(word.casefold() in said for word in (*case["keywords"], *case.get("accept_also", ())))


def share(values: Sequence[bool]) -> str:
    """Write a share as `0.95 (19/20)`."""
    return f"{sum(values) / len(values):.3f} ({sum(values)}/{len(values)})" if values else "- (0)"


def report(name: str, outcomes: Sequence[Outcome], seconds: float, *, misses: bool) -> str:
    """Return the figures of one file."""
    harmless = [each.right for each in outcomes if each.category == "none"]
    failures = [each.right for each in outcomes if each.category != "none"]
    origins = [each.origin_right for each in outcomes if each.origin_right is not None]
    tokens = sorted(each.tokens for each in outcomes)
    lines = [
        f"{name}: right cause first {share(failures)}, nothing invented {share(harmless)}, origin rank"
        f" {share(origins)}, tokens median {tokens[len(tokens) // 2]} most {tokens[-1]}, {seconds:.1f} s"
    ]
    by_category: dict[str, list[bool]] = defaultdict(list)
    for each in outcomes:
        by_category[each.category].append(each.right)
    lines += [f"  {category}: {share(each)}" for category, each in sorted(by_category.items()) if not all(each)]
    if misses:
        lines += [f"  missed: {each.id} -> {each.found}" for each in outcomes if not each.right]
    return "\n".join(lines)


def main() -> None:
    """Print the figures of each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", type=Path)
    parser.add_argument("--misses", action="store_true", help="list the cases that are not right")
    options = parser.parse_args()
    for path in options.cases:
        started = time.monotonic()
        outcomes = [outcome(case) for case in read_cases(path)]
        print(report(path.name, outcomes, time.monotonic() - started, misses=options.misses))


if __name__ == "__main__":
    main()
