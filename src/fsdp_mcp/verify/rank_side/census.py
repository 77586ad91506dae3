"""Counts, weighs and ends the processes of a run. Without /proc there is nothing to count."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One living process; its resident bytes leave files out but count pages shared since a fork in full."""

    pid: int
    parent: int
    group: int
    resident_bytes: int


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
        words = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        if words[0] in "ZX":
            return None
        resident, shared = (int(word) for word in (entry / "statm").read_text(encoding="ascii").split()[1:3])
    except (OSError, ValueError):
        return None
    return Process(int(entry.name), int(words[1]), int(words[2]), (resident - shared) * os.sysconf("SC_PAGE_SIZE"))


def open_process(pid: int) -> int | None:
    """Return a descriptor that can be read once this child has ended; None where the system has none (before 5.3)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def signal_all(number: int, *, own_namespace: bool) -> None:
    """Send a signal to every process below this one.

    In a PID namespace one call reaches all; else one call a process group does, so that a process that forks faster
    than we read /proc does not get ahead: a fork that meets a pending signal is not completed.
    """
    if own_namespace:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)
        return
    found = descendants()
    for group in {process.group for process in found} - {os.getpgrp(), 0}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for process in found:
        if process.group == os.getpgrp():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)


_END_SECONDS = 20.0
"""A killed process takes milliseconds to free its memory; thousands of them take seconds."""


def end_all(reap: Callable[[], None], *, own_namespace: bool) -> None:
    """Kill every process below this one and wait until none is left; `reap` collects those that are our children.

    What the dead leave behind comes to us when we are a subreaper or the first process of the namespace, so repeating
    finds it.
    """
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        signal_all(signal.SIGSTOP, own_namespace=own_namespace)
        signal_all(signal.SIGKILL, own_namespace=own_namespace)
        reap()
        if not descendants():
            return
        time.sleep(0.005)


def reap_children() -> None:
    """Collect the children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
