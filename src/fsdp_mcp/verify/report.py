"""Turns the bare facts about the ranks into a report: statuses, the user's lines, which rank failed first."""

from __future__ import annotations

import errno
import itertools
import os
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.lab import CodeError, FirstFailure, Mapped, RankReport, StuckAt, Unsupported
from fsdp_mcp.models import Value
from fsdp_mcp.verify.launch import Facts
from fsdp_mcp.verify.rank_side import limits

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_OURS = f"{Path(__file__).with_name('rank_side')}{os.sep}"
_RANK_SIDE = re.escape(str(Path(__file__).with_name("rank_side")))
_PREFIX = r"^(?:\[rank\d+\]: )?"  # torch puts it before the traceback of a rank
_OUR_FRAMES = re.compile(rf'{_PREFIX}  File "{_RANK_SIDE}[^"]*", line \d+, in .*\n(?:{_PREFIX}    .*\n)*', re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)")
_LIMIT_MESSAGES = {
    "MemoryLimit": f"more memory than there is or a rank may use ({limits.ADDRESS_SPACE_BYTES_PER_RANK >> 30} GiB).",
    "ProcessLimit": f"more than {limits.PROCESSES} processes.",
    "FileSizeLimit": f"a file over {limits.FILE_BYTES >> 30} GiB, or over {limits.SCRATCH_BYTES >> 30} GiB in all.",
}
_LIMITS = tuple(_LIMIT_MESSAGES)


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str


def rank_reports(facts: Facts) -> tuple[RankReport, ...]:
    """Return what each rank did."""
    names = Names(facts)
    return tuple(_rank_report(fact, names) for fact in facts.ranks)


class Names:
    """File names as the user knows them."""

    def __init__(self, facts: Facts) -> None:
        self._roots = [str(root) for root in facts.folders.roots]
        self._packages = str(facts.packages)

    def users(self, file: str) -> bool:
        """Return whether the file is the user's own; ours may lie below a root as well."""
        return not file.startswith(_OURS) and any(
            file.startswith(root + os.sep) and "site-packages" not in Path(file[len(root) :]).parts
            for root in self._roots
        )

    def shorten(self, text: str) -> str:
        """Make the paths in a text relative to the folders of the run, and drop the frames of our own files."""
        text = _OUR_FRAMES.sub("", text)
        for root in (*self._roots, self._packages):
            text = text.replace(root + os.sep, "")
        return text

    def code(self, file: str, line: int) -> str | None:
        """Return a source line; the file still has to be there."""
        try:
            lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return None
        return lines[line - 1].strip()[:500] if 0 < line <= len(lines) else None


def _rank_report(fact: dict[str, Any], names: Names) -> RankReport:
    status, error = _status_and_error(fact, names)
    frames = _main_thread(fact["stack"]) if fact["ended_by"] in limits.WAITING_REASONS else []
    return RankReport(
        rank=fact["rank"],
        status=status,
        exit_code=fact["error"]["exit_code"] if fact["error"] and fact["exit_code"] is None else fact["exit_code"],
        signal=_signal_name(fact["signal"]) if fact["ended_by"] is None else None,
        output=names.shorten(fact["output"]),
        output_omitted_bytes=fact["output_omitted_bytes"],
        error=error,
        stuck_at=_stuck_at(frames, names) if error is None else None,
        collective=_collective(frames, names) if error is None else None,
    )


Status = Literal["ok", "error", "hung", "killed"]


def _status_and_error(fact: dict[str, Any], names: Names) -> tuple[Status, CodeError | None]:
    """Judge one rank: what it reported itself comes before how its process ended."""
    if fact["error"]:
        error = _raised(fact["error"], names)
        return ("killed" if error.type in _LIMITS else "error"), error
    if fact["ended_by"] in _LIMITS:
        return "killed", CodeError(type=fact["ended_by"], message=_LIMIT_MESSAGES[fact["ended_by"]])
    if fact["ended_by"]:
        return ("killed" if fact["ended_by"] == "failure" else "hung"), None
    if fact["signal"]:
        return _ended_by_signal(fact, names)
    if fact["exit_code"]:
        message = f"ended with exit status {fact['exit_code']} without raising an exception"
        return "error", CodeError(type="ExitStatus", message=message)
    return "ok", None


def _raised(report: dict[str, Any], names: Names) -> CodeError:
    """Translate an exception that the rank itself reported."""
    limit = _broken_limit(report)
    message = names.shorten(report["message"])
    return CodeError(
        type=limit or report["type"],
        message=f"{_LIMIT_MESSAGES[limit]} {message}".strip() if limit else message,
        file=names.shorten(report["file"]) if report["file"] else None,
        line=report["line"] or None,
        code=report["code"] or None,
        traceback=names.shorten(report["traceback"]),
    )


def _broken_limit(report: dict[str, Any]) -> str | None:
    """Return the limit behind an exception, if one is."""
    if report["type"] == "MemoryError" or report["number"] == errno.ENOMEM:
        return "MemoryLimit"
    if report["number"] == errno.EFBIG:
        return "FileSizeLimit"
    rows = load_facts("run_limits", LimitMessage)
    return next((row.limit for row in rows if re.search(row.pattern, report["message"])), None)


class LimitMessage(Value):
    """A message by which torch says that the system refused memory or a write."""

    limit: Literal["MemoryLimit", "FileSizeLimit"]
    pattern: str
    source: str


def _ended_by_signal(fact: dict[str, Any], names: Names) -> tuple[Status, CodeError]:
    """Locate a crash by the stack that was written when it happened."""
    name = _signal_name(fact["signal"]) or ""
    place = next((frame for frame in _main_thread(fact["crash"]) if names.users(frame.file)), None)
    limit = {"SIGXFSZ": "FileSizeLimit"}.get(name)
    message = _LIMIT_MESSAGES[limit] if limit else f"ended by {name}"
    if name == "SIGKILL":
        message += ", which run_on_gloo did not send: the code did, or the system ran out of memory"
    error = CodeError(
        type=limit or "Signal",
        message=message,
        file=names.shorten(place.file) if place else None,
        line=place.line if place else None,
        code=names.code(place.file, place.line) if place else None,
    )
    return ("killed" if limit else "error"), error


def _signal_name(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _main_thread(stacks: str) -> list[Frame]:
    """Return the frames of the main thread, innermost first, from what faulthandler wrote last."""
    first, _, rest = stacks.partition("\n")
    main = first.rpartition(" ")[2]
    frames: list[Frame] = []
    inside = False
    for line in rest.splitlines():
        if thread := _THREAD.match(line):
            inside = thread[1] == main
            frames = [] if inside else frames
        elif inside and (frame := _FRAME.match(line)):
            frames.append(Frame(frame["file"], int(frame["line"]), frame["function"]))
    return frames


def _stuck_at(frames: list[Frame], names: Names) -> StuckAt | None:
    place = next((frame for frame in frames if names.users(frame.file)), None)
    if place is None:
        return None
    code = names.code(place.file, place.line)
    return StuckAt(file=names.shorten(place.file), line=place.line, function=place.function, code=code)


def _collective(frames: list[Frame], names: Names) -> str | None:
    """Return the function of torch.distributed that the user's innermost frame waits in."""
    inner = itertools.takewhile(lambda frame: not names.users(frame.file), frames)
    found = [
        frame.function
        for frame in inner
        if Path(frame.file).name == "distributed_c10d.py" and not frame.function.startswith("_")
    ]
    return found[-1] if found else None


def first_failure(facts: Facts, reports: Iterable[RankReport]) -> FirstFailure | None:
    """Return the rank that failed first.

    The time an exception was raised decides. A rank whose communication broke comes after one that failed by itself:
    a process that dies without an exception closes its connections before anyone can take down the time.
    """
    by_rank = {report.rank: report for report in reports}
    failed = [fact for fact in facts.ranks if by_rank[fact["rank"]].status != "ok"]
    if not failed:
        return None
    report = by_rank[min(failed, key=_order)["rank"]]
    assert report.status != "ok"
    error, stuck = report.error, report.stuck_at
    return FirstFailure(
        rank=report.rank,
        status=report.status,
        message=f"{error.type}: {error.message}".rstrip(": ") if error else _waiting(report),
        file=error.file if error else stuck.file if stuck else None,
        line=error.line if error else stuck.line if stuck else None,
    )


def _order(fact: dict[str, Any]) -> tuple[int, float, int]:
    """Sort failures by kind, time and rank: own failures, broken communication, hung, ended because of others."""
    error = fact["error"]
    if error:
        return (1 if error["by_communication"] else 0), error["time"], fact["rank"]
    if fact["ended_by"] in _LIMITS or fact["ended_by"] is None:
        return 0, fact["ended_at"] or 0.0, fact["rank"]
    return (3 if fact["ended_by"] == "failure" else 2), 0.0, fact["rank"]


def _waiting(report: RankReport) -> str:
    """Say what a rank that hung was doing."""
    return (
        f"still running when time ran out, in {report.collective}"
        if report.collective
        else "still running when time ran out"
    )


def mapped(facts: Facts) -> tuple[tuple[Mapped, ...], tuple[Unsupported, ...]]:
    """Return the CUDA uses mapped to the CPU, with the largest count of any rank, and those without meaning."""
    names = Names(facts)
    counts: dict[tuple[str, int | None], int] = {}
    unsupported: dict[tuple[str, int | None], None] = {}
    for fact in facts.ranks:
        for kind, what, file, line, count in fact["mapped"] or []:
            key = _named(what, file, facts, names), line
            if kind == "mapped":
                counts[key] = max(count, counts.get(key, 0))
            else:
                unsupported[key] = None
    return (
        tuple(Mapped(what=what, line=line, count=count) for (what, line), count in counts.items()),
        tuple(Unsupported(what=what, line=line) for what, line in unsupported),
    )


def _named(what: str, file: str | None, facts: Facts, names: Names) -> str:
    """Add the file to the description unless it is the script itself."""
    return what if file in (None, str(facts.folders.entry)) else f"{what} ({names.shorten(file or '')})"
