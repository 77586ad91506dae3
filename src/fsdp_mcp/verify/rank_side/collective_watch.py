"""Finds, while the ranks run, that they wait for each other for ever: certain cases only, a slow rank is none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .collective_log import Reader
from .collective_match import Matcher
from .job import Job

MISMATCH_GRACE_SECONDS = 1.0
"""After calls that do not fit, for the ranks to report what comes of it: Gloo may raise, crash, or hang."""

QUIET_SECONDS = 0.8
"""Without a new call, and with every thread asleep, before the ranks are asked where they stand."""

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)")

# A thread waits for other ranks when its innermost line lies here.
_WAITING = re.compile(
    r"/torch/distributed/(?!.*(?:checkpoint/(?:filesystem|_fsspec)|elastic/))|/torch/autograd/graph\.py$|/torch/_ops\.py$"
)
# A thread waits for another thread of its rank when its innermost line lies here.
_IDLE = re.compile(r"/(?:threading|queue|selectors|socketserver)\.py$|/concurrent/futures/\w+\.py$")


class Frame(NamedTuple):
    """One line of a stack."""

    file: str
    line: int
    function: str


def threads(stacks: str) -> tuple[str, dict[str, list[Frame]]]:
    """Return which thread is the main one, and of each thread the frames written last, innermost first."""
    first, _, rest = stacks.partition("\n")
    found: dict[str, list[Frame]] = {}
    frames: list[Frame] = []
    for line in rest.splitlines():
        thread = _THREAD.match(line)
        frame = _FRAME.match(line)
        if thread:
            frames = found[thread[1]] = []
        elif frame:
            frames.append(Frame(frame["file"], int(frame["line"]), frame["function"]))
    return first.rpartition(" ")[2], found


class CollectiveWatch:
    """Follows the logs of all ranks.

    Args:
        job: the run.
        ask_for_stacks: has the living ranks write their stacks and returns the text of each.
    """

    def __init__(self, job: Job, ask_for_stacks: Callable[[], dict[int, str]]) -> None:
        self._ask_for_stacks = ask_for_stacks
        self._readers = {rank: Reader(job.report_path("collectives", rank)) for rank in range(job.world_size)}
        self._matcher = Matcher()
        self._mismatch_at: float | None = None
        self._quiet_since: float | None = None
        self._quiet_needed = QUIET_SECONDS
        self._busy: dict[int, int] = {}

    def reason_to_end(self, now: float, living: dict[int, int]) -> str | None:
        """Return "mismatch" or "deadlock" when the living ranks, given with their pids, can come to no good end."""
        grown = self._read_logs()
        if self._matcher.mismatch is not None:
            self._mismatch_at = self._mismatch_at or now
            return "mismatch" if now > self._mismatch_at + MISMATCH_GRACE_SECONDS else None
        if grown:
            self._quiet_since, self._quiet_needed = None, QUIET_SECONDS
            return None
        if not self._all_wait(living) or not self._all_asleep(living):
            self._quiet_since = None
            return None
        self._quiet_since = self._quiet_since or now
        if now < self._quiet_since + self._quiet_needed:
            return None
        self._quiet_needed *= 2  # a rank that sleeps elsewhere is not asked again and again
        stacks = self._ask_for_stacks()
        return "deadlock" if all(stands_in_collective(stacks.get(rank, "")) for rank in living) else None

    def _read_logs(self) -> bool:
        grown = False
        for rank, reader in self._readers.items():
            for call in reader.new_calls():
                grown = True
                self._matcher.add(rank, call)
        return grown

    def _all_wait(self, living: dict[int, int]) -> bool:
        """Return whether every living rank has a call that others have not begun.

        A monitored barrier ends by itself and says who is missing.
        """
        waits = [self._matcher.waits(rank) for rank in living]
        return all(begun is not None and begun.call.kind != "monitored_barrier" for begun in waits)

    def _all_asleep(self, living: dict[int, int]) -> bool:
        """Return whether no thread of any living rank has run since the last look."""
        before, self._busy = self._busy, {rank: _busy_ticks(pid) for rank, pid in living.items()}
        return all(ticks >= 0 and before.get(rank) == ticks for rank, ticks in self._busy.items())


def stands_in_collective(stacks: str) -> bool:
    """Return whether the main thread waits for other ranks and no other thread may be about to call something."""
    main, found = threads(stacks)
    if not _waits(found.pop(main, [])):
        return False
    return all(_waits(frames) or not frames or _IDLE.search(frames[0].file) for frames in found.values())


def _waits(frames: list[Frame]) -> bool:
    ours = str(Path(__file__).parent)
    return any(_WAITING.search(frame.file.replace(os.sep, "/")) for frame in _first(frames, ours))


def _first(frames: list[Frame], ours: str) -> list[Frame]:
    """Return the innermost frame, leaving out our own."""
    return [frame for frame in frames if not frame.file.startswith(ours)][:1]


def _busy_ticks(pid: int) -> int:
    """Return the processor time of a process so far; -1 while a thread of it runs, or where there is no /proc."""
    total = 0
    try:
        if os.readlink("/proc/self") != str(os.getpid()):  # noqa: PTH115, Path.readlink needs Python 3.9
            return -1  # /proc shows an outer namespace, with other numbers
        for task in Path(f"/proc/{pid}/task").iterdir():
            words = (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if words[0] not in "ST":
                return -1
            total += int(words[11]) + int(words[12])
    except (OSError, ValueError, IndexError):
        return -1
    return total
