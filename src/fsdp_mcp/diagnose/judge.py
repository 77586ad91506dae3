"""Decides which of the pages that apply names the cause: the earliest failure, and of one incident the closest page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from fsdp_mcp.diagnose.page import FailurePage, Sign
from fsdp_mcp.diagnose.scan import Event, Place, Scan, in_time
from fsdp_mcp.diagnose.signs import SignFound, find_signs

_INCIDENT_LINES = 80
"""Lines of one rank this close to each other tell of one incident: a traceback with what led to it."""
_MOST_FINDINGS = 3
_LONGEST_PART = 300
_CLEARLY_BETTER = 0.5
_REPORTS = "launcher_signals"
"""Group of the pages on what a launcher says of an end; it stands after all else that explains the end."""

Confidence = Literal["high", "medium", "low"]
_OF_ROLE: dict[str, Confidence] = {"cause": "high", "suspect": "medium", "consequence": "low", "notice": "low"}


class Applied(NamedTuple):
    """A page that applies to the log."""

    page: FailurePage
    places: Sequence[Place]
    """The lines that speak for it, the decisive ones first."""
    said: str
    """Sentences about this log."""
    score: float
    rank: int | None

    @property
    def first(self) -> Place:
        """The earliest of its decisive lines."""
        return self.places[0]


class Verdict(NamedTuple):
    """What the log shows."""

    findings: Sequence[Applied]
    """The cause first; then others that are as likely."""
    consequences: Sequence[Applied]
    notices: Sequence[Applied]


def judge(scan: Scan, pages: Sequence[FailurePage]) -> Verdict:
    """Return the cause, and what follows from it."""
    signs = find_signs(scan, pages)
    applied = _without_refined([each for page in pages if (each := _apply(page, scan, signs))])
    causes = [each for each in applied if each.page.role == "cause"]
    consequences = [each for each in applied if each.page.role == "consequence"]
    suspects = [each for each in applied if each.page.role == "suspect"]
    likely = [each for each in suspects if each.page.confidence != "low"]
    closer = [each for each in consequences if each.page.group != _REPORTS]
    return Verdict(
        findings=_ordered(causes or likely or suspects or closer or consequences)[:_MOST_FINDINGS],
        consequences=consequences,
        notices=[each for each in applied if each.page.role == "notice"],
    )


def _apply(page: FailurePage, scan: Scan, signs: dict[Sign, SignFound]) -> Applied | None:
    """Return what speaks for a page, or None when a condition of it does not hold."""
    if not scan.holds(page) or not set(page.signs) <= signs.keys():
        return None
    by_part = {part: scan.of(page.id, part) for part in ("match", "requires", "along", "context", "raised_in")}
    found = [signs[sign] for sign in page.signs]
    hinted = [signs[sign] for sign in page.likelier if sign in signs]
    decisive = (*by_part["match"], *by_part["raised_in"], *by_part["requires"])
    places = [event.place for event in (*decisive, *by_part["along"])]
    places += [place for sign in found for place in sign.places] + [event.place for event in by_part["context"]]
    if not places:
        return None
    parts = [event.parts for event in (*by_part["match"], *by_part["raised_in"])]
    parts += [each.parts for each in (*found, *hinted)]
    waits = {event.place.order for event in scan.of("", "timed_out")}
    near = [event for event in decisive if event.place.order not in waits]
    rank = _rank(page, parts, found, near or by_part["along"])
    return Applied(page, _once(places), _sentences(page.says, parts, rank), _score(page, by_part, hinted), rank)


def _rank(
    page: FailurePage, parts: Iterable[dict[str, str]], signs: Sequence[SignFound], events: Sequence[Event]
) -> int | None:
    """Return the rank that failed first: the one a line or a sign names, else that of the first line.

    The events are those of lines other than time-outs, as who timed out is a victim.
    Of a consequence the one that a sign names: who reports it is a victim, unless it is a report on who failed, which
    ends with the first.
    """
    if page.role == "consequence":
        seen = [event.place.rank for event in events if event.place.rank is not None]
        named = next((int(sign.parts["rank"]) for sign in signs if "rank" in sign.parts), None)
        return seen[-1] if page.names_rank and seen else named
    told = next((int(each["rank"]) for each in parts if each.get("rank", "").isdigit()), None)
    near = in_time(event.place for event in events)
    return told if told is not None else next((place.rank for place in near if place.rank is not None), None)


def _sentences(templates: Sequence[str], parts: Sequence[dict[str, str]], rank: int | None) -> str:
    """Return the sentences whose named parts are all there, each in its first form."""
    known = {} if rank is None else {"rank": str(rank)}
    parts = [{name: _quotable(value) for name, value in each.items()} for each in parts]
    said: list[str] = []
    for template in templates:
        for each in parts:
            try:
                said.append(template.format_map({**known, **each}))
                break
            except KeyError:
                continue
    return " ".join(said)


def _quotable(value: str) -> str:
    """Return what a log says short, and without marks that would end a quotation of it."""
    return (value if len(value) <= _LONGEST_PART else f"{value[:_LONGEST_PART]}...").replace("`", "'")


def _score(page: FailurePage, by_part: dict[str, list[Event]], hinted: Sequence[SignFound]) -> float:
    """Weigh how much of a page is there; conditions that had to hold count most."""
    context = {event.use.pattern for event in by_part["context"]}
    matched = {event.use.pattern for event in by_part["match"]}
    conditions = len(page.requires) + len(page.signs) + bool(page.along)
    return 1 + 0.5 * conditions + 0.3 * (len(context) + len(hinted)) + 0.1 * (len(matched) - 1 if matched else 0)


def _once(places: Iterable[Place]) -> list[Place]:
    return list({(place.file, place.line): place for place in places}.values())


def _without_refined(applied: Sequence[Applied]) -> list[Applied]:
    """Drop the pages of which another one that applies is a special case."""
    refined = {name for each in applied for name in each.page.refines}
    explained = {line for each in applied if each.page.role in ("cause", "suspect") for line in _matched_lines(each)}
    told = {line for each in applied if not each.page.raised_in for line in _matched_lines(each)}
    return [
        each
        for each in applied
        if each.page.id not in refined and not _only_quotes(each, explained) and not _is_told(each, told)
    ]


def _matched_lines(applied: Applied) -> set[tuple[str, int]]:
    """Return the lines that speak for a page which has patterns."""
    return {(place.file, place.line) for place in applied.places} if applied.page.match else set()


def _only_quotes(applied: Applied, explained: set[tuple[str, int]]) -> bool:
    """Return whether a page merely says that a rank raised what another page explains."""
    raised = applied.page.signs == (Sign.ONE_RANK_RAISED,) and not applied.page.match
    return raised and any((place.file, place.line) in explained for place in applied.places)


def _is_told(applied: Applied, told: set[tuple[str, int]]) -> bool:
    """Return whether a page that knows only where an exception was raised gives way to one that knows the exception."""
    return bool(applied.page.raised_in) and all((place.file, place.line) in told for place in applied.places)


def _ordered(applied: Sequence[Applied]) -> list[Applied]:
    """Sort by incident, the earliest first, and by score within one."""
    timed = all(each.first.time is not None for each in applied)
    ordered = sorted(applied, key=lambda each: (each.first.time if timed else 0, each.first.order))
    incidents: list[list[Applied]] = []
    for each in ordered:
        if incidents and _same_incident(incidents[-1][0].first, each.first):
            incidents[-1].append(each)
        else:
            incidents.append([each])
    return [each for incident in incidents for each in sorted(incident, key=lambda one: -one.score)]


def _same_incident(one: Place, other: Place) -> bool:
    return one.file == other.file and one.rank == other.rank and abs(other.line - one.line) <= _INCIDENT_LINES


def confidence(verdict: Verdict, number: int) -> Confidence:
    """Return how sure a finding is: the page's own limit, less where others are as likely or nothing is decisive."""
    finding = verdict.findings[number]
    rivals = [each for each in verdict.findings if each is not finding and each.score > finding.score - _CLEARLY_BETTER]
    limits: list[Confidence] = [finding.page.confidence, _OF_ROLE[finding.page.role]]
    limits += ["medium"] if rivals and number == 0 else []
    limits += ["low"] if number else []
    return min(limits, key=("low", "medium", "high").index)
