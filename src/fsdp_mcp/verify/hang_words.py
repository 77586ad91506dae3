"""Puts into words what waiting ranks do, and those that do not come."""

from __future__ import annotations

from collections.abc import Iterable

from fsdp_mcp.lab import Elsewhere, Waiting
from fsdp_mcp.verify.rank_side.collective_log import Call


def two_calls(one: Waiting, other: Waiting) -> str:
    """Say which calls two ranks make in one place of the sequence of a group."""
    where = f"Call {one.sequence} on ranks {_list(one.group)}"
    if one.collective != other.collective or one.detail == other.detail:
        one, other = (rank.model_copy(update={"detail": None}) for rank in (one, other))
    return f"{where}: rank {one.rank} calls {_call(one)}, rank {other.rank} {_call(other)}."


def who_is_where(waiting: Iterable[Waiting], elsewhere: Iterable[Elsewhere]) -> str:
    """Say which ranks wait in which calls, and what those do that do not come; alike ranks in one part."""
    plain = [rank.model_copy(update={"detail": None}) for rank in waiting]
    calls = ((f"{_call(rank)}, call {rank.sequence} on ranks {_list(rank.group)}", rank.rank) for rank in plain)
    parts = [f"{ranks_in_words(ranks)} in {what}" for what, ranks in _grouped(calls)]
    away = [
        f"{ranks_in_words(ranks)} {what if len(ranks) == 1 else what.replace('has ended', 'have ended', 1)}"
        for what, ranks in _grouped((_doing(rank), rank.rank) for rank in elsewhere)
    ]
    return f"Waiting: {'; '.join(parts)}. {'Elsewhere: ' + '; '.join(away) + '.' if away else ''}".strip()


def rows_in_words(call: Call) -> str:
    """Return how many rows a call sends to each rank and takes from each."""
    return ", ".join(f"{what} {list(rows)} rows" for what, rows in zip(("sends", "takes"), call.splits, strict=False))


def _call(rank: Waiting) -> str:
    """Describe a call with its tensor and line."""
    tensor = f" of {rank.dtype}{list(rank.shape)}" if rank.dtype else ""
    at = f" at {rank.file}:{rank.line}" if rank.file else ""
    code = f" `{rank.code[:80]}`" if rank.code else ""
    return f"{rank.collective}{tensor}{f' ({rank.detail})' if rank.detail else ''}{at}{code}"


def _doing(rank: Elsewhere) -> str:
    at = f" at {rank.file}:{rank.line}" if rank.file else ""
    code = f" `{rank.code[:80]}`" if rank.code else ""
    inside = f" in {rank.collective}" if rank.collective else ""
    if rank.status == "ended":
        return f"has ended, exit status 0{at}{code}"
    return f"{rank.status}{inside}{at}{code}"


def _grouped(pairs: Iterable[tuple[str, int]]) -> Iterable[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = {}
    for what, rank in pairs:
        groups.setdefault(what, []).append(rank)
    return groups.items()


def ranks_in_words(ranks: list[int]) -> str:
    """Return `rank 3`, `ranks 0, 2` or `ranks 0-7`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {_list(ranks)}"


def _list(ranks: Iterable[int]) -> str:
    """Write ranks, runs of three and more as first-last."""
    numbers = sorted(ranks)
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers))
