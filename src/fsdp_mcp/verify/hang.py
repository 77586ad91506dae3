"""Explains from the recorded calls why ranks wait for each other: who waits where, who does not come, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.lab import CollectiveTotal, Elsewhere, FirstFailure, Hang, HangKind, RankReport, Waiting
from fsdp_mcp.models import Value
from fsdp_mcp.verify import report
from fsdp_mcp.verify.condition import Condition, branches, swapped_branches
from fsdp_mcp.verify.hang_sites import Deciding, Site, Sites
from fsdp_mcp.verify.hang_store import looking_for_a_store
from fsdp_mcp.verify.hang_words import ranks_in_words, rows_in_words, two_calls, who_is_where
from fsdp_mcp.verify.launch import Facts
from fsdp_mcp.verify.rank_side import limits
from fsdp_mcp.verify.rank_side.collective_log import Call, Place
from fsdp_mcp.verify.rank_side.collective_match import (
    SENDS_AND_RECEIVES,
    Begun,
    Matcher,
    match_logs,
    why_not_fitting,
)
from fsdp_mcp.verify.rank_side.collective_watch import stands_in_collective, threads
from fsdp_mcp.verify.report import Names

_MAKES_GROUP = ("init_process_group", "new_group")


class HangFact(Value):
    """What a kind of hang means and what to change."""

    kind: HangKind
    meaning: str
    change: str
    url: str


def read_calls(facts: Facts) -> Matcher:
    """Return what the logs of all ranks tell; the scratch folder still has to be there."""
    reports = facts.folders.scratch / "reports"
    return match_logs([reports / f"collectives{fact['rank']}" for fact in facts.ranks])


def totals(calls: Matcher) -> tuple[CollectiveTotal, ...]:
    """Return how often each rank made each kind of call on each group, and with how many bytes."""
    sums: dict[tuple[int, str, tuple[int, ...]], list[int]] = {}
    for rank, counts in sorted(calls.totals.items()):
        for made, count in counts.items():
            entry = sums.setdefault((rank, made.kind, made.ranks), [0, 0])
            entry[0] += count
            entry[1] += count * made.size
    return tuple(
        CollectiveTotal(rank=rank, kind=kind, group=group, count=count, bytes=size)
        for (rank, kind, group), (count, size) in sums.items()
        if kind not in _MAKES_GROUP
    )


def explain(facts: Facts, reports: Iterable[RankReport], calls: Matcher) -> Hang | None:
    """Return why ranks waited for each other in vain; None when they did not, or when one failed by itself."""
    run = _Run(facts, tuple(reports), calls)
    pair = run.pair()
    if pair is None:
        looking = looking_for_a_store(facts, run.reports)
        return _hang("no_store", run.told(None, looking, ()), looking) if looking else None
    kind, because = run.judge(pair)
    waiting = run.waiting(pair)
    elsewhere = run.elsewhere(pair, {rank.rank for rank in waiting})
    told = " ".join(part for part in (run.told(pair, waiting, elsewhere), because) if part)
    return _hang(kind, told, waiting, elsewhere)


def _hang(kind: HangKind, told: str, waiting: tuple[Waiting, ...], elsewhere: tuple[Elsewhere, ...] = ()) -> Hang:
    row = next(row for row in load_facts("hang_kinds", HangFact) if row.kind == kind)
    general = {"meaning": row.meaning, "change": row.change, "url": row.url}
    return Hang(kind=kind, explanation=told, waiting=waiting, elsewhere=elsewhere, **general)


def first_failure(facts: Facts, reports: tuple[RankReport, ...], hang: Hang | None) -> FirstFailure | None:
    """Return the rank that failed first: one that left others waiting comes before those.

    A rank that ended well while others waited for it has no error of its own to tell.
    """
    first = report.first_failure(facts, reports)
    if hang is None:
        return first
    gone = next((rank for rank in hang.elsewhere if rank.status == "ended"), None)
    if hang.kind == "peer_exited" and gone is not None:
        message = "ended with exit status 0 while other ranks waited for it"
        return FirstFailure(rank=gone.rank, status="error", message=message, file=gone.file, line=gone.line)
    if first is not None and first.status == "error":
        return first
    away = next((rank for rank in hang.elsewhere if rank.status == "running"), None)
    if hang.kind == "slow_or_stuck_elsewhere" and first and away is not None:
        message = "still running when time ran out, while other ranks waited for it"
        return FirstFailure(rank=away.rank, status=first.status, message=message, file=away.file, line=away.line)
    waiting = hang.waiting[-1 if first is None else 0]
    message = f"waits in vain in {waiting.collective}" if first else f"{hang.kind}: {hang.explanation}"
    return FirstFailure(
        rank=waiting.rank,
        status=first.status if first else "error",
        message=message,
        file=waiting.file,
        line=waiting.line,
    )


@dataclass(frozen=True)
class _Pair:
    """A call that waits and the rank that does not come, with the call that it waits in itself.

    Args:
        one: the call that waits.
        rank: the rank that does not come.
        other: its own call, if it waits as well.
        together: whether both calls met in one place although they do not fit.
    """

    one: Begun
    rank: int
    other: Begun | None
    together: bool


@dataclass(frozen=True)
class _Run:
    """A run that is over, and its calls."""

    facts: Facts
    reports: tuple[RankReport, ...]
    calls: Matcher

    @property
    def names(self) -> Names:
        return Names(self.facts)

    @property
    def sites(self) -> Sites:
        return Sites(self.calls)

    def pair(self) -> _Pair | None:
        """Return the two sides of the hang that say most about it."""
        if self.calls.mismatch is not None:
            one, other = sorted(self.calls.mismatch, key=lambda begun: begun.rank)
            return _Pair(one, other.rank, other, together=True)
        if any(self._failed_by_itself(fact) for fact in self.facts.ranks):
            return None
        waiting = {fact["rank"]: begun for fact in self.facts.ranks if (begun := self._waits(fact)) is not None}
        pairs = [
            _Pair(begun, rank, waiting.get(rank), together=False)
            for begun in waiting.values()
            for rank in self.calls.missing(begun)
            if rank < len(self.reports)
        ]
        best = max(pairs, key=self._telling, default=None)
        failed = best is not None and best.other is None and self.reports[best.rank].status == "error"
        return None if failed else best  # what torch.distributed itself refused on one rank is no hang

    def _telling(self, pair: _Pair) -> tuple[bool, bool, bool]:
        """Put ranks that wait for each other first, then those that have ended, then those that wait for others."""
        mutual = pair.other is not None and pair.one.rank in self.calls.missing(pair.other)
        return mutual, self._has_ended(pair.rank), pair.other is not None

    def _failed_by_itself(self, fact: dict[str, Any]) -> bool:
        told = self.reports[fact["rank"]]
        broken = bool(fact["error"]) and fact["error"]["by_communication"]
        return not broken and (told.status == "error" or told.error is not None)

    def _waits(self, fact: dict[str, Any]) -> Begun | None:
        """Return the call that a rank waits in, or waited in until its communication broke."""
        begun = self.calls.waits(fact["rank"], self._users_line(fact))
        if fact["error"]:
            return begun if fact["error"]["by_communication"] else None
        if fact["ended_by"] not in limits.WAITING_REASONS:
            return None
        sure = fact["ended_by"] == "deadlock" or stands_in_collective(fact["stack"])
        return begun if sure else None

    def _users_line(self, fact: dict[str, Any]) -> tuple[str, int] | None:
        """Return the user's innermost line at which a rank failed or was ended."""
        if fact["error"]:
            return fact["error"]["file"], fact["error"]["line"]
        main, found = threads(fact["stack"])
        return next((frame[:2] for frame in found.get(main, []) if self.names.users(frame.file)), None)

    def _has_ended(self, rank: int) -> bool:
        return self.reports[rank].status == "ok"

    def judge(self, pair: _Pair) -> tuple[HangKind, str]:
        """Return the kind of hang, and what else shows that it is one."""
        if pair.other is not None and pair.one.call.kind not in SENDS_AND_RECEIVES:
            swapped = _swapped(pair.one.call, pair.other.call)
            if swapped is not None:
                return "different_order", f"Both branches of `if {swapped.text}` (line {swapped.line}) make the calls."
        if pair.together and self._only_data_differs(pair):
            return self._mismatch(pair)
        if pair.one.call.kind in SENDS_AND_RECEIVES and (self._has_ended(pair.rank) or pair.other):
            return "unmatched_send_recv", ""
        if not pair.together and pair.other is None and not self._has_ended(pair.rank):
            return "slow_or_stuck_elsewhere", ""
        return self._surplus(pair) or self._otherwise(pair)

    def _only_data_differs(self, pair: _Pair) -> bool:
        """Return whether both ranks made the same kind of call at the same line."""
        assert pair.other is not None
        one, other = pair.one.call, pair.other.call
        same_kind = one.kind == other.kind or one.kind in SENDS_AND_RECEIVES
        return same_kind and (one.places == other.places or one.kind in SENDS_AND_RECEIVES)

    def _mismatch(self, pair: _Pair) -> tuple[HangKind, str]:
        assert pair.other is not None
        if why_not_fitting(pair.one.call, pair.other.call) in ("shape", None):  # None: the rows that go to each other
            return "different_shapes", ""
        if pair.one.call.kind not in _MAKES_GROUP:
            return "different_roots", ""
        told = "Every rank has to make every group, also those that it is no member of, in one order."
        found = (branches(place.file, place.line) for place in pair.one.call.places[:1])
        chosen = any(branch.side == "either" for one in found for branch in one)
        return ("rank_conditional_collective" if chosen else "different_order"), told

    def _surplus(self, pair: _Pair) -> tuple[HangKind, str] | None:
        """Judge by the calls that one rank made more often than the other."""
        sides = (
            ((pair.one.rank, pair.rank), (pair.rank, pair.one.rank)) if pair.other else ((pair.one.rank, pair.rank),)
        )
        found = [site for side in sides for site in self.sites.between(*side, pair.one.call.ranks)]
        decided = self.sites.deciding(found)
        if decided is not None and not decided.both:
            return "rank_conditional_collective", self._only(pair, decided)
        if decided is not None and pair.together and pair.other:
            test = decided.condition
            makes_group = pair.one.call.kind == pair.other.call.kind == "new_group"
            kind: HangKind = "rank_conditional_collective" if makes_group else "different_kinds"
            return kind, f"`{test.text}` (line {test.line}) decides which rank makes which call."
        return self._repeated(found, pair)

    def _only(self, pair: _Pair, decided: Deciding) -> str:
        """Say which ranks made a call alone, and what decides."""
        site, test = decided.site, decided.condition
        who = ranks_in_words([rank for rank in site.call.ranks if self.sites.made(rank, site.call)])
        at_it = site.call.places in [begun.call.places for begun in (pair.one, pair.other) if begun is not None]
        late = "" if at_it else " The calls after it were paired with the wrong ones."
        at = self._at(decided.place)
        return f"Only {who} made the {site.call.kind} at {at}: `{test.text}` (line {test.line}) decides.{late}"

    def _repeated(self, sites: list[Site], pair: _Pair) -> tuple[HangKind, str] | None:
        """Judge by a place that one rank reached more often than another."""
        sites = sorted((site for site in sites if site.fewer or site.loop()), key=lambda site: not site.fewer)
        if not sites:
            return None
        site = sites[0]
        calls = f"{site.call.kind} call{'s' if site.more > 1 else ''} at {self._at(*site.call.places[:1])}"
        told = f"Rank {site.rank} made {site.more} {calls}, rank {site.other} {site.fewer or 'none'}."
        gone = self._has_ended(pair.rank) and pair.other is None
        handler, skipped = site.handler(), site.skipped_by()
        if handler is not None:
            told += f" `{handler.text}` (line {handler.line}) around it hides what one rank raised, if it did."
        elif skipped is not None:
            test = skipped.condition
            told += f" `{test.text}` (line {test.line}) may have {skipped.done} on a rank."
        unsaid = self.facts.ranks[pair.rank]["exit"] is None  # it did not come to an end that the interpreter knows of
        returns = skipped is not None and skipped.of_rank and skipped.leaves != "continue"
        left = handler is not None or returns or unsaid or self._left(pair.rank) is not None
        return ("peer_exited" if left and gone else "uneven_inputs"), told

    def _left(self, rank: int) -> tuple[str, int] | None:
        """Return the user's line at which a rank ended itself with exit status 0."""
        place = self.facts.ranks[rank]["exit"]
        if isinstance(place, list) and len(place) == 2 and isinstance(place[0], str) and isinstance(place[1], int):
            return (place[0], place[1]) if place[0] else None
        return None

    def _otherwise(self, pair: _Pair) -> tuple[HangKind, str]:
        one, other = pair.one.call, pair.other.call if pair.other else None
        if other is None:
            return "peer_exited", ""
        if other.kind in SENDS_AND_RECEIVES:
            return "different_kinds", ""
        if one.ranks != other.ranks or one.group != other.group:
            return ("wrong_group" if one.kind == other.kind else "different_kinds"), ""
        if one.kind != other.kind:
            return "different_kinds", ""
        return self._mismatch(pair)

    def waiting(self, pair: _Pair) -> tuple[Waiting, ...]:
        """Return the ranks that wait, or whose calls do not fit."""
        found = {fact["rank"]: begun for fact in self.facts.ranks if (begun := self._waits(fact)) is not None}
        if pair.together and pair.other:
            found.update({pair.one.rank: pair.one, pair.other.rank: pair.other})
        return tuple(self._waiting(found[rank]) for rank in sorted(found))

    def _waiting(self, begun: Begun) -> Waiting:
        call = begun.call
        place = call.places[0] if call.places else None
        return Waiting(
            rank=begun.rank,
            collective=call.kind,
            group=call.ranks,
            shape=call.shape,
            dtype=call.dtype if call.shape or call.elements else None,
            sequence=begun.sequence + 1,
            file=self.names.shorten(place.file) if place else None,
            line=place.line if place else None,
            code=self.names.code(place.file, place.line) if place else None,
            detail=call.detail or (rows_in_words(call) if call.splits else None),
        )

    def elsewhere(self, pair: _Pair, waiting: set[int]) -> tuple[Elsewhere, ...]:
        """Return the ranks that do not wait."""
        found = []
        for rank in self.reports:
            if rank.rank not in waiting:
                found.append(self._elsewhere(rank))
        return tuple(found)

    def _elsewhere(self, rank: RankReport) -> Elsewhere:
        at = rank.stuck_at or (rank.error if rank.error and rank.error.file else None)
        left = self._left(rank.rank)
        place: dict[str, Any] = {"file": at.file, "line": at.line, "code": at.code} if at else {}
        if left is not None:
            place = {"file": self.names.shorten(left[0]), "line": left[1], "code": self.names.code(*left)}
        status = {"ok": "ended", "error": "failed"}.get(rank.status, "running")
        inside = {"collective": rank.collective}
        return Elsewhere.model_validate({"rank": rank.rank, "status": status, **inside, **place})

    def told(self, pair: _Pair | None, waiting: tuple[Waiting, ...], elsewhere: tuple[Elsewhere, ...]) -> str:
        """Say in a sentence who is where."""
        if pair and pair.together and pair.other:
            return two_calls(self._waiting(pair.one), self._waiting(pair.other))
        return who_is_where(waiting, elsewhere)

    def _at(self, place: Place | None = None) -> str:
        return f"{self.names.shorten(place.file)}:{place.line}" if place else "a line outside your files"


def _swapped(one: Call, other: Call) -> Condition | None:
    """Return the condition under which two ranks make the same calls in another order."""
    pairs = ((mine, theirs) for mine in one.places for theirs in other.places if mine.file == theirs.file)
    found = (swapped_branches(mine.file, mine.line, theirs.line) for mine, theirs in pairs if mine.line != theirs.line)
    return next((condition for condition in found if condition is not None), None)
