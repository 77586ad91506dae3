"""From the lines of a log to the answer: scan, judge, and say it in words."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from fsdp_mcp import call
from fsdp_mcp.diagnose.answer import Evidence, Finding, LogDiagnosis, RankRole, Role, spans
from fsdp_mcp.diagnose.flight_recorder import BrokenDump, Dump, is_dump, read_dump
from fsdp_mcp.diagnose.judge import Applied, Verdict, confidence, judge
from fsdp_mcp.diagnose.mask import mask_names, without_secrets
from fsdp_mcp.diagnose.page import FailurePage, failure_pages
from fsdp_mcp.diagnose.patterns import Matcher
from fsdp_mcp.diagnose.prefix import ranks_of_files
from fsdp_mcp.diagnose.reading import RawLine, lines_of_files
from fsdp_mcp.diagnose.scan import Place, Scan, in_time, matcher_of, scan
from fsdp_mcp.diagnose.signs import world
from fsdp_mcp.errors import BadArgument
from fsdp_mcp.models import Diagnosis

_MOST_EVIDENCE = 5
_LONGEST_EVIDENCE = 300


@lru_cache(maxsize=1)
def _matcher() -> Matcher:
    return matcher_of(failure_pages())


def explain(lines: Iterable[RawLine], *, torch_version: str | None = None, mask: bool = False) -> LogDiagnosis:
    """Return the cause of the failure that the lines tell of, or that they tell of none that is known."""
    return _answer(scan(lines, _matcher()), torch_version, mask=mask)


def known_failure(lines: Iterable[RawLine]) -> Diagnosis | None:
    """Return the cause that a line says outright, or None."""
    verdict = judge(scan(lines, _matcher()), failure_pages())
    if not verdict.findings or verdict.findings[0].page.role != "cause" or not verdict.findings[0].page.match:
        return None
    first = _finding(verdict, 0)
    return Diagnosis(id=first.id, title=first.title, cause=first.cause, fix=first.fix, url=first.url)


def explain_files(paths: Sequence[Path], *, torch_version: str | None = None, mask: bool = False) -> LogDiagnosis:
    """Return the cause of the failure that log files and flight-recorder dumps tell of together.

    Raises:
        BrokenDump: the one file that was given is a damaged dump; among several ones it is named in the summary.
    """
    dumps: list[Dump] = []
    unread: list[str] = []
    recorded = [path for path in paths if is_dump(path)]
    for position, path in enumerate(recorded):
        try:
            dumps.append(read_dump(path, position=position))
        except BrokenDump as error:
            if len(paths) == 1:
                raise
            unread.append(str(error))
    logs = [path for path in paths if path not in recorded]
    found = scan(lines_of_files(logs), _matcher(), ranks_of_files=ranks_of_files([str(path) for path in logs]))
    found.dumps = dumps
    answer = _answer(found, torch_version, mask=mask)
    if not unread:
        return answer
    told = without_secrets(" ".join(unread[:_MOST_EVIDENCE]))
    told = mask_names(found.hosts)(told) if mask else told
    return answer.model_copy(update={"summary": f"{answer.summary} Not read: {told}"})


def _answer(found: Scan, torch_version: str | None, *, mask: bool) -> LogDiagnosis:
    """Judge what was found by the pages that hold for a release; say it without secrets, on request without names."""
    if not found.lines and not found.dumps:
        raise BadArgument("The log is empty. Give the files that the ranks' stderr went to (torchrun: --log-dir).")
    pages = [page for page in failure_pages() if torch_version is None or page.holds_for(torch_version)]
    if not pages:
        raise BadArgument(f"torch_version: no known failures for torch {torch_version}. Leave it out to ask of all.")
    verdict = judge(found, pages)
    findings = tuple(_finding(verdict, number) for number in range(len(verdict.findings)))
    answer = LogDiagnosis(
        verdict="found" if findings else "none",
        summary=_summary(findings) if findings else _nothing(found, verdict, pages),
        findings=findings,
        ranks=tuple(_roles(found, verdict)),
    )
    answer = _rewritten(answer, without_secrets)
    return _rewritten(answer, mask_names(found.hosts)) if mask else answer


def _rewritten(answer: LogDiagnosis, change: Callable[[str], str]) -> LogDiagnosis:
    """Return the answer with all that may be quoted from the log changed."""
    findings = tuple(
        finding.model_copy(
            update={
                "cause": change(finding.cause),
                "evidence": tuple(
                    each.model_copy(update={"text": change(each.text), "file": each.file and change(each.file)})
                    for each in finding.evidence
                ),
            }
        )
        for finding in answer.findings
    )
    return answer.model_copy(update={"findings": findings, "summary": change(answer.summary)})


def _finding(verdict: Verdict, number: int) -> Finding:
    applied = verdict.findings[number]
    page = applied.page
    return Finding(
        id=page.id,
        title=page.title,
        confidence=confidence(verdict, number),
        rank=applied.rank,
        evidence=tuple(_evidence(place) for place in applied.places[:_MOST_EVIDENCE]),
        cause=f"{applied.said} {page.cause}".strip(),
        fix=page.fix,
        next_evidence=page.next_evidence,
        url=page.pages[0].url,
    )


def _evidence(place: Place) -> Evidence:
    text = place.text if len(place.text) <= _LONGEST_EVIDENCE else f"{place.text[: _LONGEST_EVIDENCE - 3]}..."
    return Evidence(line=place.line, text=text, file=_short(place.file) or None)


def _short(file: str) -> str:
    """Return a file's path from the caller's folder on, if it lies below it."""
    root = os.path.realpath(next(iter(call.current().roots), Path()))
    return file.removeprefix(os.path.join(root, ""))  # noqa: PTH118, with a separator at the end


def _summary(findings: Sequence[Finding]) -> str:
    first = findings[0]
    where = "" if first.rank is None else f", first on rank {first.rank}"
    return f"**{first.title}** ({first.confidence} confidence{where}; line {first.evidence[0].line})."


def _nothing(found: Scan, verdict: Verdict, pages: Sequence[FailurePage]) -> str:
    """Say that no known failure shows, with what is there instead."""
    said = [
        f"No known distributed failure in {found.lines:,} line{'s' if found.lines != 1 else ''}: none of"
        f" {len(pages)} kinds shows."
    ]
    said += [f"Harmless: {each.page.title} (line {each.first.line})." for each in verdict.notices[:3]]
    raised = found.raised()
    if raised:
        last = raised[-1]
        place = f" at {last.file}:{last.line}" if last.file else ""
        ranks = spans(each.place.rank for each in raised if each.error == last.error)
        on = f" on rank {ranks}" if ranks else ""
        message = f": {last.message[:200].replace('`', chr(39))}" if last.message else ""
        said.append(f"It ends with an ordinary exception{on}{place}, line {last.place.line}: `{last.error}{message}`.")
    return " ".join(said)


def _roles(found: Scan, verdict: Verdict) -> Iterator[RankRole]:
    """Say of each rank of the world what it was."""
    size = world(found)
    if not size:
        return
    errors = _first_errors(found, verdict)
    start = min((place.time for place in errors.values() if place.time is not None), default=None)
    origin = verdict.findings[0].rank if verdict.findings else None
    recorded = {dump.rank for dump in found.dumps}
    for rank in range(size):
        first = errors.get(rank)
        seen = rank in found.ranks or rank in recorded or first is not None
        role: Role = "origin" if rank == origin else "victim" if first else "healthy" if seen else "silent"
        after = None if first is None or first.time is None or start is None else round(first.time - start, 3)
        line = first.line if first else None
        yield RankRole(rank=rank, role=role, first_error_line=line, seconds_after_first=after)


def _first_errors(found: Scan, verdict: Verdict) -> dict[int | None, Place]:
    """Return each rank's first line that tells of a failure."""
    failures: list[Applied] = [*verdict.findings, *verdict.consequences]
    places = [place for each in failures for place in each.places]
    places += [each.place for each in found.raised()]
    places += [event.place for event in found.of("", "timed_out")]
    first: dict[int | None, Place] = {}
    for place in in_time(places):
        first.setdefault(place.rank, place)
    return first
