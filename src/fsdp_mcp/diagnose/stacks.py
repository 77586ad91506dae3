"""Stacks that `py-spy dump` printed of several processes: where the main thread of each stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_PROCESS = re.compile(r"Process (?P<pid>\d+): ")
_THREAD = re.compile(r'Thread \S+ \(\w+(?:\+gil)?\): "(?P<name>[^"]*)"')
_FRAME = re.compile(r"\s+(?P<function>\S.*) \((?P<file>[^()]+):(?P<line>\d+)\)$")
STARTS_OF_STACKS = ("Process ", "Thread ")
_MAIN = "MainThread"
_C10D = "distributed_c10d.py"
_MOST_STACKS = 4096


class Stack(NamedTuple):
    """Where one process stands."""

    process: str
    rank: int | None
    collective: str
    """Function of torch.distributed that it is in, or an empty string."""
    place: str
    """The user's innermost file and line."""
    line: int
    """Of the log."""
    file: str
    """Of the log."""


class StackReader:
    """Puts the frames of main threads together, line by line."""

    def __init__(self) -> None:
        self.stacks: list[Stack] = []
        self._process, self._line = "", 0
        self._frames: list[re.Match[str]] | None = None

    @property
    def reading(self) -> bool:
        """Whether the next line may be a frame."""
        return self._frames is not None

    def take(self, text: str, *, number: int, file: str, rank: int | None) -> None:
        """Take a line of a log."""
        if self._frames is not None:
            frame = _FRAME.match(text)
            if frame:
                self._frames.append(frame)
                return
            self._finish(file, rank)
        if text.startswith("Process ") and (process := _PROCESS.match(text)):
            self._process, self._line = process["pid"], number
        elif text.startswith("Thread ") and self._process and (thread := _THREAD.match(text)):
            self._frames = [] if thread["name"] == _MAIN else None

    def _finish(self, file: str, rank: int | None) -> None:
        frames, self._frames = self._frames or [], None
        if not frames or len(self.stacks) >= _MOST_STACKS:
            return
        inside = [frame["function"] for frame in frames if frame["file"].endswith(_C10D)]
        own = [frame for frame in frames if _is_own(frame["file"])]
        place = f"{own[0]['file'].rsplit('/', 1)[-1]}:{own[0]['line']}" if own else ""
        self.stacks.append(Stack(self._process, rank, inside[-1] if inside else "", place, self._line, file))


def _is_own(file: str) -> bool:
    """Return whether a frame is outside of installed packages; py-spy shortens their paths to `torch/...`."""
    return not re.search(r"site-packages|dist-packages|^<|^torch/|/lib/python|^python\d|^threading\.py$", file)


def groups_of(stacks: Sequence[Stack]) -> Iterator[tuple[str, list[Stack]]]:
    """Yield the places that processes stand at, each with its processes, the most common first."""
    by_place: dict[str, list[Stack]] = {}
    for stack in stacks:
        where = f"{stack.collective or 'no collective'} at {stack.place or 'unknown'}"
        by_place.setdefault(where, []).append(stack)
    yield from sorted(by_place.items(), key=lambda item: -len(item[1]))
