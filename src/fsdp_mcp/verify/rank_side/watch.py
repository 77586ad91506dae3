"""Watches the ranks: takes their output, notices ends, failures, time-out and broken limits, and ends what is left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import census, limits
from .collective_watch import CollectiveWatch
from .job import Job
from .rank_main import STACK_SIGNAL

TICK_SECONDS = 0.01
LONG_TICK_SECONDS = 0.05
"""Where the kernel wakes us at the end of a rank: looking more often takes time from the ranks."""
CENSUS_SECONDS = 0.1
DISK_SECONDS = 1.0
STACK_SECONDS = 1.0


class Rank:
    """One started rank."""

    def __init__(self, number: int, pid: int, output: int, process: subprocess.Popen[bytes] | None = None) -> None:
        self.number = number
        self.pid = pid
        self.process = process
        self.status: int | None = None
        self.ended_at: float | None = None
        self.ended_by: str | None = None
        self.end: int | None = None
        self._output = output
        self._tail = bytearray()
        self._total = 0
        self._reader = threading.Thread(target=self._read, daemon=True)

    @property
    def alive(self) -> bool:
        """Whether its process has not been reaped."""
        return self.status is None

    def start_reading(self) -> None:
        """Read the output from now on; not before the last fork, because a thread does not survive one."""
        self._reader.start()
        self.end = census.open_process(self.pid)

    def close(self) -> None:
        """Close its output in a process that does not read it."""
        os.close(self._output)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := os.read(self._output, 1 << 16):
                self._total += len(chunk)
                self._tail = (self._tail + chunk)[-limits.OUTPUT_TAIL_BYTES :]

    def ended(self, status: int) -> None:
        """Note the exit status, negative for a signal."""
        self.status = status
        self.ended_at = time.monotonic()

    def end_of_output(self) -> dict[str, Any]:
        """Return the last 4,000 characters and how many bytes came before them."""
        self._reader.join(timeout=1)
        text = bytes(self._tail).decode("utf-8", errors="replace")[-4000:]
        return {"output": text, "output_omitted_bytes": max(0, self._total - len(text.encode("utf-8")))}


class Watch:
    """All ranks of a run, until the last one has ended."""

    def __init__(self, job: Job, ranks: list[Rank], *, own_namespace: bool) -> None:
        self._job = job
        self._ranks = ranks
        self._own_namespace = own_namespace
        self._deadline = time.monotonic() + job.timeout_seconds
        self._failed_at: float | None = None
        self._free_at_start = limits.free_memory_bytes()
        self._next_census = self._next_disk = 0.0
        # A simulated rank never waits for others.
        self._collectives = None if job.simulated_world else CollectiveWatch(job, self._stacks_now)

    def run(self) -> list[dict[str, Any]]:
        """Watch until all ranks have ended or a reason to end them arises; return the bare facts of each."""
        while any(rank.alive for rank in self._ranks):
            self._reap()
            self._note_failure()
            reason = self._reason_to_end()
            if reason is not None:
                self._end(*reason)
                break
            self._pause()
        self._end_leftovers()
        return [self._facts(rank) for rank in self._ranks]

    def _pause(self) -> None:
        """Wait until it is time for the next look, or a rank has ended."""
        ends = [rank.end for rank in self._living() if rank.end is not None]
        if ends:
            select.select(ends, [], [], LONG_TICK_SECONDS)
        else:
            time.sleep(TICK_SECONDS)

    def _reap(self) -> None:
        """Collect the ranks that ended, and orphans that came to us as their new parent."""
        if os.name == "nt":
            for rank in self._living():
                status = rank.process.poll() if rank.process else None
                if status is not None:
                    rank.ended(status)
            return
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                for rank in self._ranks:
                    if rank.pid == pid:
                        rank.ended(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))

    def _living(self) -> list[Rank]:
        return [rank for rank in self._ranks if rank.alive]

    def _note_failure(self) -> None:
        """Start the grace period of the other ranks when one failed, even if its process has not ended yet."""
        if self._failed_at is None and any(self._failed(rank) for rank in self._ranks):
            self._failed_at = time.monotonic()

    def _failed(self, rank: Rank) -> bool:
        return bool(rank.status) or self._job.report_path("error", rank.number).exists()

    def _reason_to_end(self) -> tuple[str, int | None] | None:
        """Return why the ranks have to end now and which rank is to blame, if one is."""
        now = time.monotonic()
        if self._failed_at is not None and now > self._failed_at + limits.FAILURE_GRACE_SECONDS:
            return "failure", None
        if now > self._deadline:
            return "timeout", None
        if now > self._next_census:
            self._next_census = now + CENSUS_SECONDS
            reason = self._count() or self._waits_for_ever(now)
            if reason is not None:
                return reason
        if now > self._next_disk:
            self._next_disk = now + DISK_SECONDS
            if _bytes_below(self._job.scratch) > self._job.scratch_bytes:
                return "FileSizeLimit", None
        return None

    def _waits_for_ever(self, now: float) -> tuple[str, None] | None:
        """Say so when the living ranks wait for each other in vain; a failure of one explains the wait of others."""
        if self._failed_at is not None:
            return None
        if self._collectives is None:
            return None
        reason = self._collectives.reason_to_end(now, {rank.number: rank.pid for rank in self._living()})
        return (reason, None) if reason else None

    def _stacks_now(self) -> dict[int, str]:
        """Return where the living ranks stand."""
        self._collect_stacks()
        return {rank.number: _read_stacks(self._job.report_path("stack", rank.number)) for rank in self._living()}

    def _count(self) -> tuple[str, int | None] | None:
        """Compare the number of processes and their memory with the bounds.

        Pages that forked processes share are counted several times over, so the memory is only found to be too much
        when the machine is short of it as well; reading exact numbers is so slow that a fork bomb would outrun it.
        """
        found = census.descendants()
        if len(found) > limits.PROCESSES:
            return "ProcessLimit", self._owner(found, lambda process: 1)
        used_up = self._free_at_start * self._job.memory_share
        if sum(process.resident_bytes for process in found) < used_up:
            return None
        if limits.free_memory_bytes() > self._free_at_start - used_up:
            return None
        return "MemoryLimit", self._owner(found, lambda process: process.resident_bytes)

    def _owner(self, found: list[census.Process], weigh: Callable[[census.Process], int]) -> int | None:
        """Return the rank below which most of the weight lies, None when it is below no rank."""
        parents = {process.pid: process.parent for process in found}
        by_pid = {rank.pid: rank.number for rank in self._ranks}
        totals: dict[int, int] = {}
        for process in found:
            pid: int | None = process.pid
            while pid is not None and pid not in by_pid:
                pid = parents.get(pid)
            if pid is not None:
                totals[by_pid[pid]] = totals.get(by_pid[pid], 0) + weigh(process)
        return max(totals, key=lambda number: totals[number]) if totals else None

    def _end(self, reason: str, blamed: int | None) -> None:
        """Have the living ranks write down where they stand, then kill them."""
        for rank in self._living():
            rank.ended_by = reason if blamed in (None, rank.number) else "failure"
        if reason in limits.WAITING_REASONS:
            self._collect_stacks()
        self._end_leftovers()

    def _collect_stacks(self) -> None:
        """Ask for stacks and wait until they are written, one second at most: a stopped process writes none."""
        if STACK_SIGNAL is None:
            return
        paths = [self._job.report_path("stack", rank.number) for rank in self._living()]
        at_first = [_size(path) for path in paths]
        for rank in self._living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, STACK_SIGNAL)
        sizes: list[int] = []
        deadline = time.monotonic() + STACK_SECONDS
        while time.monotonic() < deadline:
            time.sleep(5 * TICK_SECONDS)
            before, sizes = sizes, [_size(path) for path in paths]
            if before == sizes and all(size > first for size, first in zip(sizes, at_first)):  # noqa: B905, Python 3.8
                return

    def _end_leftovers(self) -> None:
        """Kill what still runs, ranks and whatever they started."""
        if os.name == "nt":
            for rank in self._living():
                if rank.process:
                    rank.process.kill()
            return
        for rank in self._living():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(rank.pid, signal.SIGKILL)
        census.end_all(self._reap, own_namespace=self._own_namespace)
        while self._living():  # where there is no /proc to look into
            self._reap()
            time.sleep(TICK_SECONDS)

    def _facts(self, rank: Rank) -> dict[str, Any]:
        status = rank.status or 0
        return {
            "rank": rank.number,
            "exit_code": status if status >= 0 and rank.ended_by is None else None,
            "signal": -status if status < 0 else None,
            "ended_by": rank.ended_by,
            "ended_at": rank.ended_at,
            "error": _read_json(self._job.report_path("error", rank.number)),
            "stack": _read_stacks(self._job.report_path("stack", rank.number)),
            "crash": _read_text(self._job.report_path("crash", rank.number)),
            "exit": _read_json(self._job.report_path("exit", rank.number)),
            "mapped": _read_json(self._job.report_path("mapped", rank.number)),
            **rank.end_of_output(),
        }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _bytes_below(folder: str) -> int:
    return sum(_size(Path(parent, name)) for parent, _, names in os.walk(folder) for name in names)


def _read_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(64_000)
    except OSError:
        return ""


def _read_stacks(path: Path) -> str:
    """Return the line that names the main thread, and the stacks written last."""
    try:
        with path.open("rb") as file:
            first = file.readline(200)
            file.seek(max(len(first), _size(path) - 60_000))
            return (first + file.read(60_000)).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _read_json(path: Path) -> Any:
    """Return what a rank reported, None when it reported nothing or what it left is not JSON."""
    try:
        return json.loads(_read_text(path) or "null")
    except ValueError:
        return None
