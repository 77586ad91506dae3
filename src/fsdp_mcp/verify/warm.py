"""Keeps one warm process of the target interpreter, with torch imported, from which the keepers of runs are forked.

It starts with the first run, which waits for its import of torch as it would for its own, and imports the rest between
runs. It ends with this process, after ten minutes without a run, and when another interpreter, environment or torch is
asked for; a run for which it is of no use starts cold.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fsdp_mcp.target import Target
from fsdp_mcp.verify.rank_side.job import START_TEMPLATE

_POSSIBLE = sys.platform.startswith("linux")
"""macOS cannot fork once its frameworks are loaded, Windows not at all."""
_OLDEST_PYTHON = (3, 9)
"""Of the target: the first whose sockets receive descriptors."""
_POLL_SECONDS = 0.05
_READY_SECONDS = 180.0
"""For importing torch, which takes a minute from a cold network disk."""

_Key = tuple[object, ...]
_lock = threading.Lock()
_current: _Template | None = None
_useless: set[_Key] = set()


@dataclass(frozen=True)
class Request:
    """What a keeper is started with.

    Args:
        scratch: the folder of the run, with `job.json`.
        isolation: the strongest kind to use.
        log: takes what the keeper and the supervisor print.
    """

    scratch: Path
    isolation: str
    log: IO[bytes]


def fork_keeper(
    target: Target, environment: dict[str, str], request: Request, tick: Callable[[], None]
) -> ForkedKeeper | None:
    """Return a keeper forked from the warm process, which is started if need be; None where a cold one has to do.

    Args:
        target: the interpreter.
        environment: of the run.
        request: what the keeper is started with.
        tick: called while we wait; what it raises passes.
    """
    key = _key(target, environment)
    if not _POSSIBLE or key in _useless or tuple(map(int, target.python_version.split(".")[:2])) < _OLDEST_PYTHON:
        return None
    template = _template(key, target, environment)
    if template is None:
        return None
    warm = template.ready
    keeper = template.fork(request, tick, warm=warm) if template.wait_until_ready(tick) else None
    if keeper is None and not (template.ready and template.gone):  # one that was of use may be so again
        _useless.add(key)
        end()
    return keeper


def end() -> None:
    """End the warm process; the next run starts another."""
    global _current
    with _lock:
        ended, _current = _current, None
    if ended is not None:
        ended.end()


def _key(target: Target, environment: dict[str, str]) -> _Key:
    """Return what a warm process is good for: this interpreter with these packages in this environment."""
    torch_dir = target.torch_dir or target.python
    stamps = [path.stat().st_mtime_ns for path in (target.python, torch_dir, torch_dir.parent) if path.exists()]
    return str(target.python), *stamps, *sorted(environment.items())


def _template(key: _Key, target: Target, environment: dict[str, str]) -> _Template | None:
    """Return the living warm process for that key, a new one if there is none; None when it cannot be started."""
    global _current  # noqa: PLW0603
    with _lock:
        if _current is not None and _current.key == key and not _current.gone:
            return _current
        ended = _current
        try:
            _current = _Template(key, target, environment)
        except OSError:
            _current = None
        found = _current
    if ended is not None:
        ended.end()
    return found


class _Template:
    """The warm process as seen from the server."""

    def __init__(self, key: _Key, target: Target, environment: dict[str, str]) -> None:
        self.key = key
        self.ready = False
        self.gone = False
        self._answered = threading.Event()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [str(target.python), "-c", START_TEMPLATE, str(Path(__file__).parent), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a cold run will fail in the same way, and tell why
                cwd="/",
                env=environment,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        self._attendant = threading.Thread(target=self._attend, daemon=True)
        self._attendant.start()

    def _attend(self) -> None:
        """Note when it is ready and when it is gone, and reap it."""
        with contextlib.suppress(OSError):
            self.ready = self._socket.recv(16) == b"ready"
            self._answered.set()
            self._socket.recv(16)  # it says nothing more: this returns when it ends
        self.gone = True
        self._answered.set()
        self._process.wait()
        self._socket.close()

    def wait_until_ready(self, tick: Callable[[], None]) -> bool:
        """Return whether it can fork, once that is known."""
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answered.wait(_POLL_SECONDS) and time.monotonic() < deadline:
            tick()
        return self.ready

    def fork(self, request: Request, tick: Callable[[], None], *, warm: bool) -> ForkedKeeper | None:
        """Have it fork a keeper; None when it does not, whether it has ended meanwhile or because it refuses."""
        message = json.dumps({"job": str(request.scratch / "job.json"), "isolation": request.isolation}).encode()
        with contextlib.ExitStack() as failed, contextlib.ExitStack() as theirs:
            life, their_life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            failed.enter_context(life)
            theirs.enter_context(their_life)
            their_input, alive = os.pipe()
            output, their_output = os.pipe()
            for descriptor in (their_input, their_output):
                theirs.callback(os.close, descriptor)
            for descriptor in (alive, output):
                failed.callback(os.close, descriptor)
            try:
                descriptors = [their_input, their_output, request.log.fileno(), their_life.fileno()]
                socket.send_fds(self._socket, [message], descriptors)
            except OSError:
                return None
            theirs.close()
            pid = _receive(life, tick)
            if pid is None:
                return None
            failed.pop_all()
            return ForkedKeeper(int(pid), alive, output, life, warm=warm)
        return None

    def end(self) -> None:
        """Have it end as soon as the keepers forked from it have; one that still imports torch has none."""
        if not self.ready:
            self._process.kill()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._attendant.join(timeout=5)


def _receive(life: socket.socket, tick: Callable[[], None]) -> bytes | None:
    """Return the answer to a request, which comes after what the run needs has been imported; None if there is none."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if select.select([life], [], [], _POLL_SECONDS)[0]:
            return life.recv(64) or None
        tick()
    return None


class ForkedKeeper:
    """A keeper that is a child of the warm process, which tells when it has reaped it."""

    def __init__(self, pid: int, alive: int, output: int, life: socket.socket, *, warm: bool) -> None:
        self.warm = warm
        self.output: IO[bytes] = os.fdopen(output, "rb")
        self._pid = pid
        self._alive: int | None = alive
        self._life = life
        self._ended = False

    def let_go(self) -> None:
        """Close the pipe that it reads, so that it ends all."""
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None

    def wait(self, seconds: float) -> bool:
        """Return whether it has been reaped, after that time at the latest."""
        if not self._ended and select.select([self._life], [], [], seconds)[0]:
            self._ended = bool(self._life.recv(64)) or self._orphan_ended(seconds)
        if self._ended:
            self._life.close()
        return self._ended

    def kill(self) -> None:
        """End it and what hangs on it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        self.wait(_READY_SECONDS)
        self._life.close()

    def _orphan_ended(self, seconds: float) -> bool:
        """Return whether it has ended, where the warm process broke and cannot tell."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                os.kill(self._pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(_POLL_SECONDS)
        return False
