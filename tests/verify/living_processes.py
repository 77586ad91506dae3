"""Finds processes by their command line and their folder, and waits for their end."""

import os
import select
from pathlib import Path


def processes_that_mention(text: str) -> set[int]:
    """Return the living processes whose command line or working folder contains `text`, our own excluded."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            words = (entry / "cmdline").read_bytes() + os.fsencode((entry / "cwd").readlink())
        except OSError:
            continue
        if text.encode() in words and state != "Z" and int(entry.name) != os.getpid():
            found.add(int(entry.name))
    return found


def wait_until_ended(processes: set[int], *, seconds: int) -> bool:
    """Wait for the end of all processes; return whether it came."""
    for pid in processes:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended = select.select([descriptor], [], [], seconds)[0]
        os.close(descriptor)
        if not ended:
            return False
    return True


def children_of(pid: int) -> set[int]:
    """Return the children of a process, those not yet reaped among them."""
    lists = [path.read_text(encoding="ascii") for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return {int(child) for text in lists for child in text.split()}


def command_of(pid: int) -> str:
    """Return the command line of a process, "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
