"""Counts, weighs and ends the processes of a run. Without /proc there is nothing to count."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One living process."""

    pid: int
    parent: int
    private_bytes: int


def descendants() -> list[Process]:
    """Return all living processes below this one, as numbered in our own PID namespace; [] where there is no /proc."""
    me = _my_number_in_proc()
    if me is None:
        return []
    by_parent: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        process = _read(entry) if entry.name.isdigit() else None
        if process is not None:
            by_parent.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [me]
    while waiting:
        children = by_parent.pop(waiting.pop(), [])
        found.extend(children)
        waiting.extend(child.pid for child in children)
    return found


def _my_number_in_proc() -> int | None:
    """Return our number as /proc shows it: another one than getpid() when /proc belongs to an outer namespace."""
    try:
        return int(os.readlink("/proc/self"))  # noqa: PTH115, Path.readlink needs Python 3.9
    except (OSError, ValueError):
        return None


def _read(entry: Path) -> Process | None:
    """Return one process, None when it is gone or only waits to be reaped."""
    try:
        state, parent = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
        if state in "ZX":
            return None
        resident, shared = (int(word) for word in (entry / "statm").read_text(encoding="ascii").split()[1:3])
    except (OSError, ValueError):
        return None
    return Process(int(entry.name), int(parent), (resident - shared) * os.sysconf("SC_PAGE_SIZE"))


def end_all(*, own_namespace: bool) -> None:
    """Kill every process below this one and wait until none is left.

    Freezing first keeps a process that forks faster than we read from getting ahead. In a PID namespace one kill
    reaches all; else children of the dead come to us when we are their subreaper, so repeating finds them.
    """
    if own_namespace:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    for _ in range(200):
        _signal_all(signal.SIGSTOP)
        if not _signal_all(signal.SIGKILL):
            return
        _reap()


def _signal_all(number: int) -> bool:
    """Send a signal to every descendant; return whether there was one."""
    found = descendants()
    for process in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)
    return bool(found)


def _reap() -> None:
    """Collect the children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
