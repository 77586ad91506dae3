"""Reads what the ranks recorded of their training: losses, the first NaN, values that ranks should hold alike."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdp_mcp.lab import Disagreement, FirstNaN, Numbers, RankLosses
from fsdp_mcp.verify.launch import Facts

_SHOWN_VALUES = 10
_MOST_DISAGREEING = 20


@dataclass
class RankNumbers:
    """What one rank recorded.

    Args:
        losses: of each step, the sum of the values whose backward ran for it; of each backward without an optimizer.
        steps: of optimizers that followed a backward.
        skipped: steps that a GradScaler left out.
        first_nan: monotonic time, step, what, file, line.
        checks: step, "parameter" or "gradient", and rows of checksums.
        precisions: data types that products were computed in.
        stopped: why the record ends before the run, None when it does not.
        dropout: whether dropout was turned off, for a comparison.
        tensors: number of parameters.
        largest_dimension: of any parameter.
    """

    losses: list[float] = field(default_factory=list)
    steps: int = 0
    skipped: int = 0
    first_nan: tuple[float, int, str, str | None, int | None] | None = None
    checks: list[tuple[int, str, list[Any]]] = field(default_factory=list)
    precisions: set[str] = field(default_factory=set)
    dropout: bool = False
    stopped: str | None = None
    tensors: int = 1
    largest_dimension: int = 1


def read(facts: Facts) -> list[RankNumbers]:
    """Return what each rank recorded, in the order of ranks; the folder of the run still has to be there."""
    reports = facts.folders.scratch / "reports"
    return [_read_rank(reports / f"numbers{rank['rank']}") for rank in facts.ranks]


def _read_rank(path: Path) -> RankNumbers:
    found = RankNumbers()
    pending: list[float] = []
    for row in _rows(path):
        with contextlib.suppress(ValueError, TypeError, KeyError, IndexError):  # the script can write there, too
            _take(row, found, pending)
    if not found.steps and not found.skipped:
        found.losses = pending
    return found


def _rows(path: Path) -> Iterator[list[Any]]:
    """Yield the lines of a rank's record; what the script may have written between them is passed over."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            row = _row(line)
            if row:
                yield row


def _row(line: str) -> list[Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, list) else None


def _take(row: list[Any], found: RankNumbers, pending: list[float]) -> None:
    """Add one line of a rank's record."""
    kind = row[0]
    if kind == "b":
        pending.append(float(row[1]))
    elif kind in ("s", "skip"):
        if pending:
            found.losses.append(math.fsum(pending) if all(map(math.isfinite, pending)) else sum(pending))
        found.steps += kind == "s"
        found.skipped += kind == "skip"
        pending.clear()
    elif kind == "nan" and found.first_nan is None:
        found.first_nan = (float(row[1]), int(row[2]), str(row[3]), row[4], row[5])
    elif kind == "check":
        found.checks.append((int(row[1]), str(row[2]), list(row[3])))
    elif kind == "precision":
        found.precisions.add(str(row[1]))
    elif kind == "stopped":
        found.stopped = str(row[1])
    elif kind == "left_out":
        found.stopped = f"{int(row[1]):,} later values were left out"
    elif kind == "dropout":
        found.dropout = True
    elif kind == "model":
        found.tensors, found.largest_dimension = int(row[1]["tensors"]), int(row[1]["largest_dimension"])


def numbers(recorded: list[RankNumbers], facts: Facts) -> Numbers | None:
    """Return the numbers of a run, None when no rank ran a backward from a scalar."""
    if not any(rank.losses for rank in recorded):
        return None
    return Numbers(
        steps=max(rank.steps for rank in recorded),
        skipped_steps=max(rank.skipped for rank in recorded),
        losses=tuple(
            RankLosses(rank=number, count=len(rank.losses), values=_ends(rank.losses))
            for number, rank in enumerate(recorded)
            if rank.losses
        ),
        first_nan=_first_nan(recorded, facts),
        disagreeing=disagreeing(recorded),
        stopped=next((rank.stopped for rank in recorded if rank.stopped), None),
    )


def _ends(values: list[float]) -> tuple[float | None, ...]:
    """Return the first and last values, None for one that is not finite."""
    shown = values if len(values) <= 2 * _SHOWN_VALUES else values[:_SHOWN_VALUES] + values[-_SHOWN_VALUES:]
    return tuple(value if math.isfinite(value) else None for value in shown)


def _first_nan(recorded: list[RankNumbers], facts: Facts) -> FirstNaN | None:
    """Return the NaN or infinity that a rank saw first."""
    seen = [(rank.first_nan, number) for number, rank in enumerate(recorded) if rank.first_nan]
    if not seen:
        return None
    (_, step, what, file, line), number = min(seen)
    return FirstNaN(rank=number, step=step, what=what, file=_short(file, facts), line=line)


def _short(file: str | None, facts: Facts) -> str | None:
    for root in facts.folders.roots:
        with contextlib.suppress(ValueError, TypeError):
            return Path(file or "").relative_to(root).as_posix() if file else None
    return file


def disagreeing(recorded: list[RankNumbers]) -> tuple[Disagreement, ...]:
    """Return the values that ranks must hold alike and do not, each at the first check that shows it."""
    found: dict[tuple[str, str], Disagreement] = {}
    checks = {(step, what) for rank in recorded for step, what, _ in rank.checks}
    for step, what in sorted(checks, key=lambda check: (check[0], check[1] != "gradient")):
        for name, holders in _holders(recorded, step, what):
            difference = max((_difference(holders[0][1], row) for _, row in holders[1:]), default=0.0)
            if difference > 0 and (what, name) not in found:
                ranks = tuple(sorted({rank for rank, _ in holders}))
                size = difference if math.isfinite(difference) else None
                found[what, name] = Disagreement(name=name, what=what, step=step, ranks=ranks, largest_difference=size)
    return tuple(found.values())[:_MOST_DISAGREEING]


def _holders(recorded: list[RankNumbers], step: int, what: str) -> Iterable[tuple[str, list[tuple[int, list[Any]]]]]:
    """Yield name, and rank and row of each that holds the same piece, for one check."""
    holders: dict[str, list[tuple[int, list[Any]]]] = {}
    for number, rank in enumerate(recorded):
        for row in (row for at, kind, rows in rank.checks if (at, kind) == (step, what) for row in rows):
            holders.setdefault(row[0], []).append((number, row))
    for rows in holders.values():
        yield rows[0][1][1], rows


def _difference(one: list[Any], other: list[Any]) -> float:
    """Return the largest difference between two pieces as far as samples and sums show it, 0 for equal bits."""
    if one[2] == other[2] and one[5] == other[5]:
        return 0.0
    pairs = [*zip(one[5], other[5], strict=False), (one[3] / one[4], other[3] / other[4])]
    differences = [abs(a - b) for a, b in pairs if not (math.isnan(a) and math.isnan(b))]
    return max((math.inf if math.isnan(value) else value for value in differences), default=0.0)
