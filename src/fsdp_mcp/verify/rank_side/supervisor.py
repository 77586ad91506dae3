"""The processes between the server and the ranks.

The keeper isolates the run, starts the supervisor as its only child and ends everything when the server closes the
pipe, dies, or the supervisor is done. It is a small process without torch, or a fork of the template, which has torch
imported (see template.py); all else is the same in both. The supervisor imports torch once, holds the TCPStore, forks
the ranks, watches them and reports. It stays with one OpenMP thread and runs no tensor operation: a rank forked after
a parallel region would wait for threads that do not exist in it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

from . import census, isolation, limits, rank_main
from .job import START, Job, remove_tree
from .watch import Rank, Watch

CAN_FORK = sys.platform.startswith("linux")
"""Elsewhere, and without isolation, each rank is a fresh process: macOS cannot fork once its frameworks are loaded."""


def main() -> None:
    """Run as keeper, or as one rank where ranks are started and not forked."""
    job_file, *rank = sys.argv[2:]
    job = Job.read(job_file)
    if rank:
        _become_started_rank(job, *(int(word) for word in rank))
    reporter = Reporter()
    if os.name == "nt":
        threading.Thread(target=_end_with_server, daemon=True).start()
        _supervise(job, reporter, "process_group")
    else:
        wanted = os.environ.pop("FSDP_MCP_ISOLATION", "namespaces")
        keep(job, reporter, isolation.isolate(wanted, isolation.try_namespaces))


class Reporter:
    """Writes JSON lines into the pipe to the server; whatever else prints goes to stderr."""

    def __init__(self) -> None:
        self._pipe = os.dup(1)
        os.dup2(2, 1)

    def send(self, event: str, value: Any = None) -> None:
        """Send one line; a server that is gone is no error, its end is noticed elsewhere."""
        data = (json.dumps({"event": event, "value": value}) + "\n").encode()
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._pipe, data) :]

    def close(self) -> None:
        """Close the pipe in a process that has nothing to report."""
        os.close(self._pipe)


def keep(job: Job, reporter: Reporter, kind: str) -> None:
    """Start the supervisor and end everything when it ends or the server is gone.

    The server removes the scratch folder after it has read it; here it goes when the server is not there any more.

    Args:
        job: what to run.
        reporter: the pipe to the server.
        kind: what `isolate` has done to this process.
    """
    child = os.fork()
    if child == 0:
        isolation.settle_first_process(kind, job.scratch)
        _supervise(job, reporter, kind)
        os._exit(0)  # taking down an interpreter with torch costs a quarter of a second
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    status = _wait_for(child, job)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if status is not None and os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        reporter.send("failed", f"{name} ended the supervisor of the ranks: the code sent it, or memory ran out")
    census.end_all(census.reap_children, own_namespace=False)


def _wait_for(child: int, job: Job) -> int | None:
    """Return the wait status of the supervisor; None when the server went away first and all is ended and removed."""
    descriptor = census.open_process(child)
    waiting, tick = ([0], 0.01) if descriptor is None else ([0, descriptor], 1.0)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if 0 in select.select(waiting, [], [], tick)[0] and not os.read(0, 64):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            census.end_all(census.reap_children, own_namespace=False)
            remove_tree(job.scratch)
            return None


def _end_with_server() -> None:
    """On Windows: wait for the end of the pipe from the server, then end this process, whose ranks notice."""
    while os.read(0, 64):
        pass
    os._exit(1)


def _supervise(job: Job, reporter: Reporter, kind: str) -> None:
    """Start the ranks, watch them and report the facts about each."""
    try:
        import torch
        from torch.distributed import TCPStore

        for module in job.preload:
            importlib.import_module(module)
    except Exception as error:
        reporter.send("failed", f"The target interpreter cannot import torch: {type(error).__name__}: {error}")
        return
    gc.freeze()  # so that a collection in a rank does not touch, and thereby copy, the pages shared with this process
    _forget_finalizers()
    bound = limits.address_space_bound()
    if CAN_FORK and kind != "process_group" and not job.fresh:
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            port = listener.getsockname()[1]
            ranks: list[Rank] = []
            for rank in range(job.world_size):
                ranks.append(_fork_rank(job, rank, port, bound, [reporter, listener, *ranks]))
            # Opened after the forks, because its thread would not exist in them; the socket keeps early connections.
            store = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=listener.detach())
    else:
        store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        ranks = [_start_rank(job, rank, store.port, bound) for rank in range(job.world_size)]
    for started in ranks:
        started.start_reading()
    reporter.send("started", {"isolation": kind, "torch_version": torch.__version__})
    facts = Watch(job, ranks, own_namespace=kind == "namespaces").run()
    reporter.send("ended", facts)


def _forget_finalizers() -> None:
    """Spare the ranks what torch's libraries would undo at exit for this process: a tenth of a short run."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False


def _fork_rank(job: Job, rank: int, port: int, bound: int, not_for_ranks: list[Any]) -> Rank:
    """Fork one rank; in the child this closes what is not for ranks, runs the script and does not return."""
    output, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return Rank(rank, pid, output)
    os.setsid()
    isolation.die_with_parent()
    os.close(output)
    for closable in not_for_ranks:
        closable.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (write_end, 1), (write_end, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(write_end)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.update(rank_main.environment(job, rank, port))
    return rank_main.end_process(rank_main.run(job, rank, bound))


def _start_rank(job: Job, rank: int, port: int, bound: int) -> Rank:
    """Start one rank as a process of its own."""
    output, write_end = os.pipe()
    folder = str(Path(__file__).parents[1])
    job_file = str(Path(job.scratch, "job.json"))
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", START, folder, job_file, str(rank), str(port), str(bound)],
        stdin=subprocess.DEVNULL,
        stdout=write_end,
        stderr=write_end,
        env={**os.environ, **rank_main.environment(job, rank, port)},
        start_new_session=True,
    )
    os.close(write_end)
    return Rank(rank, process.pid, output, process)


def _become_started_rank(job: Job, rank: int, port: int, bound: int) -> None:
    """Run one rank in this process, which the supervisor has started for it."""
    isolation.die_with_parent()
    rank_main.end_process(rank_main.run(job, rank, bound))
