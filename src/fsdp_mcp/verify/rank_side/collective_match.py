"""Pairs the calls of all ranks: the n-th call on a group belongs to the n-th call of each other rank of that group.

So two calls that do not fit are known as soon as both have begun, without waiting for a time-out; and what a rank
waits for are its calls that not all ranks of the group have begun.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from .collective_log import Call, Reader

SENDS_AND_RECEIVES = ("send", "recv")


class Begun(NamedTuple):
    """One call of one rank."""

    rank: int
    sequence: int
    call: Call


class Mismatch(NamedTuple):
    """Two calls in one place of the sequence of a group that do not fit: of an earlier and of a later rank."""

    first: Begun
    second: Begun


class Matcher:
    """What has begun so far."""

    def __init__(self) -> None:
        self.mismatch: Mismatch | None = None
        self.totals: dict[int, Counter[Call]] = {}
        self._lengths: Counter[tuple[Any, ...]] = Counter()
        self._open: dict[tuple[Any, ...], dict[int, Begun]] = {}
        self._of_rank: dict[int, dict[tuple[Any, ...], Begun]] = {}

    def add(self, rank: int, call: Call) -> None:
        """Take the next call of a rank."""
        self.totals.setdefault(rank, Counter())[call] += 1
        sequence, ends = _sequence_of(rank, call)
        if ends is None:
            call = self._from_any(rank, call)
            sequence, ends = _sequence_of(rank, call)
        if ends is None or rank not in ends:
            return
        place = (rank, call.kind, *sequence) if call.kind in SENDS_AND_RECEIVES else (rank, *sequence)
        number = self._lengths[place]
        self._lengths[place] += 1
        slot = (*sequence, number)
        begun = Begun(rank, number, call)
        others = self._open.setdefault(slot, {})
        if others and self.mismatch is None:
            first = next(iter(others.values()))
            if why_not_fitting(first.call, call) is not None:
                self.mismatch = Mismatch(first, begun)
            elif call.splits:
                self.mismatch = next((Mismatch(one, begun) for one in others.values() if not _agree(one, begun)), None)
        others[rank] = begun
        self._of_rank.setdefault(rank, {})[slot] = begun
        if len(others) == len(ends):
            del self._open[slot]
            for end in others:
                self._of_rank[end].pop(slot, None)

    def _from_any(self, rank: int, call: Call) -> Call:
        """Return a receive from any rank as one from the first rank that has sent something for it, if one has."""
        for (_, *ends), others in self._open.items():
            sent = next(iter(others.values()))
            if sent.call.kind == "send" and (sent.call.group, sent.call.tag, ends[1]) == (call.group, call.tag, rank):
                return call._replace(peer=sent.rank)
        return call

    def waits(self, rank: int, at: tuple[str, int] | None = None) -> Begun | None:
        """Return the call of a rank that not all others have begun: the one made at a line, else the earliest."""
        begun = list(self._of_rank.get(rank, {}).values())
        here = [one for one in begun if at in [place[:2] for place in one.call.places[:1]]]
        return next(iter(here or begun), None)

    def missing(self, begun: Begun) -> tuple[int, ...]:
        """Return the ranks that have not begun the call that a rank waits in."""
        sequence, ends = _sequence_of(begun.rank, begun.call)
        there = self._open.get((*sequence, begun.sequence), {})
        return tuple(sorted(end for end in ends or () if end not in there))


def _sequence_of(rank: int, call: Call) -> tuple[tuple[Any, ...], frozenset[int] | None]:
    """Return the sequence that a call is counted in and the ranks that have to take part; None when any rank may."""
    if call.kind not in SENDS_AND_RECEIVES:
        return (call.group, call.ranks), frozenset(call.ranks)
    if call.peer is None:
        return (call.group, "any", rank), None
    ends = (rank, call.peer) if call.kind == "send" else (call.peer, rank)
    return (call.group, *ends, call.tag), frozenset(ends)


def why_not_fitting(one: Call, other: Call) -> str | None:
    """Return in what two calls in one place differ that they must not: kind, detail or shape; None when they fit."""
    pair = one.kind in SENDS_AND_RECEIVES and other.kind in SENDS_AND_RECEIVES
    if one.kind != other.kind and not pair:
        return "kind"
    if one.detail != other.detail:
        return "detail"
    if None not in (one.elements, other.elements) and (one.elements, one.dtype) != (other.elements, other.dtype):
        return "shape"
    return None


def _agree(one: Begun, other: Begun) -> bool:
    """Return whether each of two ranks sends the other as many rows as that expects."""
    ranks = one.call.ranks
    rows = (*one.call.splits, *other.call.splits)
    if len(rows) != 4 or any(len(row) != len(ranks) for row in rows):
        return True
    at, there = ranks.index(one.rank), ranks.index(other.rank)
    sent, received, sent_back, expected = rows
    return (sent[there], received[there]) == (expected[at], sent_back[at])


def match_logs(paths: list[Path]) -> Matcher:
    """Return what the finished logs of all ranks tell, reading them side by side so that little stays open."""
    matcher = Matcher()
    readers = [Reader(path) for path in paths]
    more = True
    while more:
        more = False
        for rank, reader in enumerate(readers):
            for call in reader.new_calls():
                more = True
                matcher.add(rank, call)
    return matcher
