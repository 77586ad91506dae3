"""One pass over the log: which patterns are where, what was raised, which ranks are seen. Memory stays bounded."""

from __future__ import annotations

import builtins
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from fsdp_mcp import call
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.diagnose import prefix
from fsdp_mcp.diagnose.flight_recorder import Dump
from fsdp_mcp.diagnose.page import FailurePage
from fsdp_mcp.diagnose.patterns import LONGEST_LINE, Candidate, Matcher, Use, template_of
from fsdp_mcp.diagnose.prefix import Origin
from fsdp_mcp.diagnose.reading import RawLine
from fsdp_mcp.diagnose.senders import Senders
from fsdp_mcp.diagnose.stacks import STARTS_OF_STACKS, Stack, StackReader
from fsdp_mcp.models import Value

_MOST_TEMPLATES = 20_000
_MOST_EVENTS_OF_A_USE = 20
"""Of each rank. More of the same line tells nothing new."""
_ALONGSIDE = frozenset({"context", "along", "requires", "excludes"})
_MOST_ALONGSIDE = 40
"""Of all ranks: of a line that only has to be there, a few are enough."""
_MOST_RAISED_OF_A_RANK = 4
_LINES_KEPT = 8
_TRACEBACK = Use("", "traceback", r"Traceback \(most recent call last\)")
_CUT_TRACEBACK = Use("", "frame", r'(?P<frame>\s*File "[^"]+", line \d+.*)')
"""A frame whose traceback began before the log does."""
_WORLD = "world"
_WORLD_RANK = "world_rank"
_ELASTIC_RANK = "elastic_rank"
_ELASTIC_LINES = 60
"""Lines of the launcher's report after the one that names the rank, which belong to that rank."""
_LAST_LINE = re.compile(
    r"(?P<error>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration|Failure|Timeout))(?:: (?P<message>.*))?$"
)
_QUOTED = re.compile(r'(?:^|(?<!Error: )(?<=[\s(\[,]))"[^"]*"')
_RAISED_IN = "raised_in"
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')


_Stream = tuple[str, int | str]
"""A file, and in it the rank or else the process or host that writes: its lines belong together."""


class _Line(NamedTuple):
    """A line without its prefixes, and who wrote it."""

    raw: RawLine
    origin: Origin
    rank: int | None
    text: str
    stream: _Stream


class KnownLine(Value):
    """A row of facts/log_lines.yaml: a line whose numbers are compared over ranks or hosts."""

    kind: str
    pattern: str
    source: str


class Place(NamedTuple):
    """A line of the log that is reported."""

    order: int
    """Position over all files, from 1."""
    line: int
    """Number in its file."""
    file: str
    rank: int | None
    host: str
    time: float | None
    text: str


def in_time(places: Iterable[Place]) -> list[Place]:
    """Return places by their time stamps where all have one, else as they stand: logs are often joined file by file."""
    there = list(places)
    timed = all(place.time is not None for place in there)
    return sorted(there, key=lambda place: (place.time if timed and place.time is not None else 0.0, place.order))


class Event(NamedTuple):
    """A pattern found in a line."""

    use: Use
    place: Place
    parts: dict[str, str]
    """The named parts of the pattern that are there."""


class Raised(NamedTuple):
    """An exception that a rank printed."""

    error: str
    message: str
    file: str
    line: str
    place: Place
    function: str
    """The function of torch.distributed, or of what builds on it, that raised it, if one did."""


@dataclass
class Scan:
    """What one pass over the log found."""

    lines: int = 0
    events: dict[tuple[str, str], list[Event]] = field(default_factory=dict)
    """By owner and part of the pattern, in the order of the log."""
    ranks: dict[int | None, list[Raised]] = field(default_factory=dict)
    """Of each rank that wrote a line, what it raised."""
    hosts: set[str] = field(default_factory=set)
    dumps: Sequence[Dump] = ()
    """Flight-recorder dumps that came with the log."""
    stacks: Sequence[Stack] = ()
    """Of py-spy dumps in the log."""

    def of(self, owner: str, part: str) -> list[Event]:
        """Return the events of one part of a page, or of one kind of known line, in order."""
        return self.events.get((owner, part), [])

    def holds(self, page: FailurePage) -> bool:
        """Return whether the lines that a page asks for are there, and none that rules it out."""
        required = {event.use.pattern for event in self.of(page.id, "requires")}
        any_of = (part for part in ("match", "along", _RAISED_IN) if getattr(page, part))
        return (
            not self.of(page.id, "excludes")
            and required >= set(page.requires)
            and all(self.of(page.id, part) for part in any_of)
        )

    def raised(self) -> list[Raised]:
        """Return all exceptions in order."""
        return sorted((each for raised in self.ranks.values() for each in raised), key=lambda each: each.place.order)


def matcher_of(pages: Iterable[FailurePage]) -> Matcher:
    """Return the matcher for all patterns of the pages and all known lines."""
    parts = ("match", "requires", "along", "context", "excludes", _RAISED_IN)
    uses = [Use(page.id, part, pattern) for page in pages for part in parts for pattern in getattr(page, part)]
    uses += [Use("", row.kind, row.pattern) for row in load_facts("log_lines", KnownLine)]
    return Matcher([*uses, _TRACEBACK, _CUT_TRACEBACK])


def scan(lines: Iterable[RawLine], matcher: Matcher, *, ranks_of_files: Mapping[str, int] | None = None) -> Scan:
    """Read all lines once; `ranks_of_files` helps where a file's own name does not tell its rank.

    Raises:
        Cancelled: the caller went away.
    """
    scanner = _Scanner(matcher, ranks_of_files or {})
    for line in lines:
        scanner.take(line)
        if scanner.found.lines % 50_000 == 0:
            call.report(scanner.found.lines, None, f"{scanner.found.lines:,} lines read")
    return scanner.end()


class _Scanner:
    def __init__(self, matcher: Matcher, ranks_of_files: Mapping[str, int]) -> None:
        self.found = Scan()
        self._ranks_of_files = ranks_of_files
        self._matcher = matcher
        self._templates: dict[str, Sequence[Candidate]] = {}
        self._recent: dict[_Stream, deque[str]] = {}
        self._tracebacks: dict[_Stream, list[str]] = {}
        self._counts: dict[tuple[Use, int | None], int] = {}
        self._stacks = StackReader()
        self._elastic: tuple[int, int] | None = None
        self._senders = Senders()
        self._file = ""
        self._rank_of_file: int | None = None

    def take(self, raw: RawLine) -> None:
        """Take one line."""
        found = self.found
        found.lines += 1
        text = raw.text if len(raw.text) <= LONGEST_LINE else raw.text[:LONGEST_LINE]
        origin, rest = prefix.split_prefix(text)
        rank = self._rank(origin, raw.file)
        if rank is None and (origin.process or origin.host):
            self._senders.listen(origin, rest)
        found.ranks.setdefault(rank, [])
        if origin.host:
            found.hosts.add(origin.host)
        stream = (raw.file, rank if rank is not None else origin.process or origin.host)
        line = _Line(raw, origin, rank, rest, stream)
        if self._tracebacks and stream in self._tracebacks:
            self._go_on_with_traceback(line)
        if self._stacks.reading or rest.startswith(STARTS_OF_STACKS):
            self._stacks.take(rest, number=raw.number, file=raw.file, rank=rank)
        candidates = self._candidates(rest)
        if candidates:
            self._note_events(line, candidates)
        recent = self._recent.get(stream)
        if recent is None:
            recent = self._recent[stream] = deque(maxlen=_LINES_KEPT)
        recent.append(text)

    def end(self) -> Scan:
        """Return what was found in all lines."""
        self._stacks.take("", number=self.found.lines, file=self._file, rank=None)
        self.found.stacks = self._stacks.stacks
        return self.found

    def _rank(self, origin: Origin, file: str) -> int | None:
        """Return the rank of a line: its prefix, its process, its file, or the local rank where there is one host."""
        if origin.rank is not None:
            return origin.rank
        if (origin.process or origin.host) and (rank := self._senders.rank(origin)) is not None:
            return rank
        if file != self._file:
            named = prefix.rank_of_file(file)
            self._file, self._rank_of_file = file, self._ranks_of_files.get(file) if named is None else named
        if self._rank_of_file is not None:
            return self._rank_of_file
        return origin.local_rank if len(self.found.hosts) < 2 else None

    def _candidates(self, text: str) -> Sequence[Candidate]:
        """Return the patterns that the line may hold; lines that differ in digits only are looked at once."""
        template = template_of(text)
        known = self._templates.get(template)
        if known is None:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            known = self._templates[template] = self._matcher.candidates(template)
        return known

    def _note_events(self, line: _Line, candidates: Sequence[Candidate]) -> None:
        place: Place | None = None
        for pattern, uses, _ in candidates:
            wanted = [use for use in uses if self._is_wanted(use, line.rank)]
            match = pattern.search(line.text) if wanted else None
            if match is None or _is_quotation(line.text, match):
                continue
            parts = {name: value for name, value in match.groupdict().items() if value is not None}
            place = place or self._place(line)
            if "rank" in parts:
                self._learn(line.origin, parts, {use.part for use in wanted})
            for use in wanted:
                which = _counted(use, line.rank)
                self._counts[which] = self._counts.get(which, 0) + 1
                self._note(use, place, parts, stream=line.stream)

    def _learn(self, origin: Origin, parts: dict[str, str], kinds: set[str]) -> None:
        """Remember which rank a process is."""
        if _WORLD in kinds and origin.process:
            self._senders.tell(origin, int(parts["rank"]))
        elif _WORLD_RANK in kinds:
            self._senders.tell_pid(parts["pid"], int(parts["rank"]))

    def _is_wanted(self, use: Use, rank: int | None) -> bool:
        return use.part != _RAISED_IN and self._counts.get(_counted(use, rank), 0) < _most(use)

    def _note(self, use: Use, place: Place, parts: dict[str, str], *, stream: _Stream) -> None:
        if use is _TRACEBACK:
            self._tracebacks[stream] = []
            return
        if use is _CUT_TRACEBACK:
            self._tracebacks.setdefault(stream, [parts["frame"]])
            return
        if use.part == _ELASTIC_RANK:
            self._elastic = (int(parts["rank"]), place.line)
            return
        event = Event(use, self._of_rank(place, parts), parts)
        self.found.events.setdefault((use.owner, use.part), []).append(event)

    def _of_rank(self, place: Place, parts: dict[str, str]) -> Place:
        """Return the place with the rank that the line itself names, before the one of its prefix."""
        if parts.get("rank", "").isdigit():
            return place._replace(rank=int(parts["rank"]))
        if place.rank is None and self._elastic and place.line - self._elastic[1] <= _ELASTIC_LINES:
            return place._replace(rank=self._elastic[0])
        return place

    def _place(self, line: _Line) -> Place:
        inside = prefix.rank_inside(line.text)
        return Place(
            order=self.found.lines,
            line=line.raw.number,
            file=line.raw.file,
            rank=line.rank if inside is None else inside,
            host=line.origin.host,
            time=self._time(line),
            text=line.raw.text.strip(),
        )

    def _time(self, line: _Line) -> float | None:
        """Return the time that the line, or one of the few of its rank before it, says."""
        recent = self._recent.get(line.stream, ())
        times = (prefix.time_of(text) for text in (line.raw.text, *reversed(recent)))
        return next((time for time in times if time is not None), None)

    def _go_on_with_traceback(self, line: _Line) -> None:
        """Take a line of a traceback; its last one names the exception and is not indented as its frames are."""
        frames = self._tracebacks[line.stream]
        if not line.text.strip() or _indent(line.text) > _indent_of_end(frames):
            frames[:] = [*frames[-199:], line.text]
            return
        del self._tracebacks[line.stream]
        last = _LAST_LINE.match(line.text.strip())
        raised = self.found.ranks.setdefault(line.rank, [])
        if not last or not frames or len(raised) >= _MOST_RAISED_OF_A_RANK:
            return
        file, number = _innermost(frames)
        place = self._place(line)
        refusing = _refusing_frame(frames)
        function = _distributed_frame().search(refusing)
        message = last["message"] or ""
        raised.append(Raised(last["error"], message, file, number, place, function["function"] if function else ""))
        if not _ends_program(last["error"]):
            self._note_raised_in(refusing, place, message)

    def _note_raised_in(self, frame: str, place: Place, message: str) -> None:
        """Note the pages that know only where an exception was raised."""
        for pattern, uses, _ in self._candidates(frame):
            found = [use for use in uses if use.part == _RAISED_IN] if pattern.search(frame) else []
            for use in found:
                event = Event(use, place, {"message": message} if message else {})
                self.found.events.setdefault((use.owner, _RAISED_IN), []).append(event)


def _counted(use: Use, rank: int | None) -> tuple[Use, int | None]:
    return (use, None if use.part in _ALONGSIDE else rank)


def _most(use: Use) -> int:
    return _MOST_ALONGSIDE if use.part in _ALONGSIDE else _MOST_EVENTS_OF_A_USE


@lru_cache(maxsize=1)
def _distributed_frame() -> re.Pattern[str]:
    rows = load_facts("log_lines", KnownLine)
    return re.compile(next(row.pattern for row in rows if row.kind == "distributed_frame"))


def _refusing_frame(frames: Sequence[str]) -> str:
    """Return the innermost frame of torch.distributed, or nothing where code outside torch ran inside it and raised."""
    for text in reversed(frames):
        match = _FRAME.match(text)
        if match and _distributed_frame().search(text):
            return text
        path = match["file"].replace("\\", "/") if match else ""
        standard = "/lib/python" in path and "site-packages" not in path
        if match and "/torch/" not in path and not standard:
            return ""
    return ""


def _is_quotation(text: str, match: re.Match[str]) -> bool:
    """Return whether the words stand in quotation marks, as data or documentation quotes them.

    The quotation marks of JSON, of the path in a traceback and of a KeyError do not count.
    """
    before = text[: match.start()]
    if '"' not in before or '":' in text or _FRAME.search(text):
        return False
    return any(found.start() < match.start() and match.end() < found.end() for found in _QUOTED.finditer(text))


def _ends_program(error: str) -> bool:
    """Return whether an exception only says that the program was asked to end."""
    kind = getattr(builtins, error, None)
    return isinstance(kind, type) and not issubclass(kind, Exception)


def _indent_of_end(frames: Iterable[str]) -> int:
    """Return how far the last line of a traceback is indented: two less than its frames."""
    return max(0, min(map(_indent, filter(_FRAME.match, frames)), default=2) - 2)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _innermost(frames: Iterable[str]) -> tuple[str, str]:
    """Return the innermost frame outside installed packages, or the innermost of all."""
    found = [(match["file"], match["line"]) for text in frames if (match := _FRAME.match(text))]
    own = [frame for frame in found if "site-packages" not in frame[0] and "/lib/python" not in frame[0]]
    return (own or found or [("", "")])[-1]
