"""Finds the places in the user's code where one rank made more calls than another, and the conditions that decide."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from fsdp_mcp.verify.condition import Branch, Condition, branches, loop_around, swallowing_handler
from fsdp_mcp.verify.rank_side.collective_log import Call, Place
from fsdp_mcp.verify.rank_side.collective_match import Matcher


@dataclass(frozen=True)
class Site:
    """A place where one rank made more calls than another.

    Args:
        call: of the rank that made more.
        rank: that rank.
        other: the rank that made fewer.
        more: calls of the first.
        fewer: calls of the other.
    """

    call: Call
    rank: int
    other: int
    more: int
    fewer: int

    def handler(self) -> Condition | None:
        """Return the handler around the call that swallows exceptions."""
        found = (swallowing_handler(place.file, place.line) for place in self.call.places)
        return next((handler for handler in found if handler is not None), None)

    def loop(self) -> Condition | None:
        """Return the loop around the call."""
        found = (loop_around(place.file, place.line) for place in self.call.places)
        return next((loop for loop in found if loop is not None), None)

    def skipped_by(self) -> Branch | None:
        """Return the condition before the call that leaves the loop or function it stands in, the last of them."""
        found = [branch for place in self.call.places[:1] for branch in branches(place.file, place.line)]
        leaving = [branch for branch in found if branch.leaves in ("return", "continue", "break")]
        return next((branch for branch in leaving if branch.of_rank), leaving[-1] if leaving else None)


class Deciding(NamedTuple):
    """A condition that decides which ranks reach a place."""

    site: Site
    place: Place
    condition: Condition
    both: bool


class Sites:
    """What the logs tell about places."""

    def __init__(self, calls: Matcher) -> None:
        self._calls = calls

    def between(self, rank: int, other: int, group: tuple[int, ...]) -> list[Site]:
        """Return the places where one rank made more calls on a group than another, those it reached alone first."""
        mine, theirs = self._per_place(rank, group), self._per_place(other, group)
        sites = [Site(call, rank, other, count, theirs.get(key, (call, 0))[1]) for key, (call, count) in mine.items()]
        return sorted((site for site in sites if site.more > site.fewer), key=lambda site: site.fewer > 0)

    def made(self, rank: int, call: Call) -> bool:
        """Return whether a rank made such a call at the same place."""
        return (call.kind, call.places) in self._per_place(rank, call.ranks)

    def _per_place(self, rank: int, group: tuple[int, ...]) -> dict[Any, tuple[Call, int]]:
        found: Counter[Any] = Counter()
        calls: dict[Any, Call] = {}
        for call, count in self._calls.totals.get(rank, Counter()).items():
            if call.ranks == group:
                found[call.kind, call.places] += count
                calls[call.kind, call.places] = call
        return {key: (calls[key], count) for key, count in found.items()}

    def deciding(self, sites: list[Site]) -> Deciding | None:
        """Return the condition under which one rank reached a place alone, None when none is seen.

        One that speaks of the rank comes before others, the script's text says of it that ranks differ. Of others the
        innermost is taken, unless the other rank is known to have gone the same way.
        """
        alone = [site for site in sites if site.fewer == 0]
        for of_rank in (True, False):
            found = [deciding for site in alone for deciding in self._conditions(site, of_rank=of_rank)]
            if found:
                first = found[0]
                sides = {deciding.site.rank for deciding in found}
                return first if len(sides) == 1 else first._replace(both=True)
        return None

    def _conditions(self, site: Site, *, of_rank: bool) -> list[Deciding]:
        """Return the conditions that a call was reached under, innermost line first."""
        shared = self._gone_by(site.other)
        found = []
        for place in site.call.places:
            here = [branch for branch in branches(place.file, place.line) if branch.of_rank or not of_rank]
            if not of_rank:
                here = [
                    branch
                    for branch in reversed(here)
                    if (place.file, branch.condition, branch.side) not in shared and branch.leaves != "raise"
                ]
            found += [Deciding(site, place, branch.condition, both=False) for branch in here[:1]]
        return found

    def _gone_by(self, rank: int) -> set[tuple[str, Condition, str]]:
        """Return the sides of conditions on which a rank made calls."""
        places = {place[:2] for call in self._calls.totals.get(rank, ()) for place in call.places}
        return {
            (file, branch.condition, branch.side) for file, line in places for branch in branches(str(file), int(line))
        }
