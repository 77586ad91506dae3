"""Starts the keeper of a run, forked from the warm process or as a process of its own, and ends it with the run."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from fsdp_mcp.target import Target
from fsdp_mcp.verify import warm
from fsdp_mcp.verify.rank_side.job import START

ISOLATION = "FSDP_MCP_ISOLATION"
"""Names a weaker isolation than namespaces, for code that needs the network."""

_END_SECONDS = 10.0

_PASSED_ON = frozenset(
    (
        *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CC", "CXX", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT"),
        *("NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
    )
)
"""All that a run sees of the server's environment beside the locale: where programs and libraries lie, no secrets."""


class Keeper(Protocol):
    """The process that ends everything of a run as soon as we close the pipe that it reads, or die."""

    @property
    def warm(self) -> bool:
        """Whether torch was imported before the run was asked for."""

    @property
    def output(self) -> IO[bytes]:
        """The events, a line of JSON each."""

    def let_go(self) -> None:
        """Close the pipe: what still runs is ended."""

    def wait(self, seconds: float) -> bool:
        """Return whether it has ended, after that time at the latest."""

    def kill(self) -> None:
        """End a keeper that does not end by itself; its first child dies with it, and the others with that one."""


@contextlib.contextmanager
def start(target: Target, scratch: Path, *, fresh: bool, tick: Callable[[], None]) -> Iterator[Keeper]:
    """Start the keeper; at the end of the block it and all that it started have ended, however the block ends.

    Args:
        target: the interpreter of the ranks.
        scratch: the folder of the run, with `job.json`.
        fresh: whether the ranks need processes that have not imported torch; so they do without isolation.
        tick: called while we wait; what it raises ends the run.
    """
    environment = _environment()
    wanted = os.environ.get(ISOLATION, "namespaces")
    fresh = fresh or wanted == "process_group"
    with (scratch / "supervisor.log").open("wb") as log:
        request = warm.Request(scratch, wanted, log)
        keeper: Keeper | None = None if fresh else warm.fork_keeper(target, environment, request, tick)
        keeper = keeper or _ColdKeeper(target, {**environment, ISOLATION: wanted}, scratch, log)
    try:
        yield keeper
        keeper.wait(_END_SECONDS)  # letting go of it now would make it remove what we still read
    finally:
        keeper.let_go()
        if not keeper.wait(_END_SECONDS):
            keeper.kill()
        keeper.output.close()


def _environment() -> dict[str, str]:
    """Return the environment that the supervisor starts with, and the ranks inherit."""
    kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("LC_")}
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**kept, **single, "CUDA_VISIBLE_DEVICES": ""}


class _ColdKeeper:
    """A keeper that is our child and imports torch for this run."""

    warm = False

    def __init__(self, target: Target, environment: dict[str, str], scratch: Path, log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            [str(target.python), "-c", START, str(Path(__file__).parent), str(scratch / "job.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=scratch,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdout
        self.output: IO[bytes] = self._process.stdout

    def let_go(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=seconds)
            return True
        return False

    def kill(self) -> None:
        if os.name == "nt":
            self._process.kill()
        else:
            import signal

            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
