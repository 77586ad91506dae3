"""The warm process: it has torch imported and forks the keeper of each run, which so starts with all of it in memory.

It stays with one thread and runs no tensor operation. A process forked after a parallel region would wait for threads
that do not exist in it, and namespaces are refused to a process with threads. It serves the server that holds the other
end of its socket, forks nothing on its own, and ends when that end closes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from . import census, isolation, supervisor
from .job import Job

MODULES = (
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch._dynamo",  # the first step of an optimizer imports it
    "rank_side.cuda_map",
    "rank_side.numbers_layout",
)
"""Imported between runs, so that the first run waits only for what it needs."""

PAUSE_SECONDS = 0.2
"""Without a run, before the next of these modules is imported: a command that makes one run is gone by then."""

IDLE_SECONDS = 600.0
"""Without a run, before this process ends: its memory is worth more than the two seconds of a cold start."""

TICK_SECONDS = 0.05
"""Between looks for ended keepers where the kernel cannot tell (Linux before 5.3)."""


def main() -> None:
    """Import torch, say so, and serve."""
    control = socket.socket(fileno=int(sys.argv[2]))
    namespaces = isolation.try_namespaces()  # before the import, while a fork costs nothing
    import torch  # noqa: F401

    if not _has_one_thread():
        sys.exit("Importing torch has started threads.")
    template = _Template(control, namespaces=namespaces)
    control.send(b"ready")
    template.serve()
    os._exit(0)


def _has_one_thread() -> bool:
    return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208, cheap


class _Run:
    """A keeper that runs, and the socket on which the server waits for its end."""

    def __init__(self, pid: int, life: socket.socket) -> None:
        self.pid = pid
        self.life = life
        self.descriptor = census.open_process(pid)

    def close(self) -> None:
        """Close what belongs to it here."""
        self.life.close()
        if self.descriptor is not None:
            os.close(self.descriptor)


class _Template:
    def __init__(self, control: socket.socket, *, namespaces: bool) -> None:
        self._control = control
        self._namespaces = namespaces
        self._runs: list[_Run] = []
        self._to_import = list(MODULES)

    def serve(self) -> None:
        """Fork a keeper for each request until the server closes the socket or sends none for long."""
        _freeze()
        while True:
            readable = self._wait([self._control])
            self._reap()
            if self._control in readable:
                request, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 4)
                if not request:
                    break
                self._start(json.loads(request), descriptors)
            elif not readable and not self._runs:
                if not self._to_import:
                    break
                self._import(self._to_import.pop(0))
        self._control.close()
        while self._runs:
            self._wait([])
            self._reap()

    def _wait(self, sources: list[socket.socket]) -> list[Any]:
        """Wait for a request or the end of a keeper; [] when neither came in time."""
        ends = [run.descriptor for run in self._runs if run.descriptor is not None]
        timeout: float | None = PAUSE_SECONDS if self._to_import else IDLE_SECONDS
        if self._runs:
            timeout = None if len(ends) == len(self._runs) else TICK_SECONDS
        waiting: list[Any] = [*sources, *ends]
        return select.select(waiting, [], [], timeout)[0]

    def _reap(self) -> None:
        """Collect the keepers that have ended and tell the server."""
        for run in list(self._runs):
            pid, status = os.waitpid(run.pid, os.WNOHANG)
            if pid:
                self._runs.remove(run)
                with contextlib.suppress(OSError):
                    run.life.send(str(status).encode())
                run.close()

    def _import(self, module: str) -> None:
        """Import one module; a run that needs one which cannot be imported will say so itself."""
        if module not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(module)
            _freeze()

    def _start(self, request: dict[str, str], descriptors: list[int]) -> None:
        """Fork the keeper of one run."""
        life = socket.socket(fileno=descriptors.pop())
        with contextlib.suppress(OSError, ValueError):  # the server has given up, and removed the folder
            for module in Job.read(request["job"]).preload:
                self._import(module)
        if _has_one_thread() and not select.select([life], [], [], 0)[0]:
            pid = os.fork()
            if pid == 0:
                self._become_keeper(request, descriptors, life)
            with contextlib.suppress(OSError):
                life.send(str(pid).encode())
            self._runs.append(_Run(pid, life))
        else:
            life.close()
        for descriptor in descriptors:
            os.close(descriptor)

    def _become_keeper(self, request: dict[str, str], descriptors: list[int], life: socket.socket) -> NoReturn:
        """Go on as the keeper, with its own standard streams and nothing else of this process."""
        try:
            os.setsid()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            self._control.close()
            life.close()
            for run in self._runs:
                run.close()
            os.chdir(Path(request["job"]).parent)
            kind = isolation.isolate(request["isolation"], lambda: self._namespaces)
            supervisor.keep(Job.read(request["job"]), supervisor.Reporter(), kind)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)


def _freeze() -> None:
    """Keep collections in the forked processes from touching, and thereby copying, what is shared with them."""
    gc.collect()
    gc.freeze()
