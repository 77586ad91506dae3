"""Lays a run out in a scratch folder, has its keeper started, and streams the events until the ranks have ended."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fsdp_mcp import call
from fsdp_mcp.errors import EnvironmentProblem
from fsdp_mcp.lab import Program
from fsdp_mcp.target import Target
from fsdp_mcp.verify import keeper
from fsdp_mcp.verify.keeper import Keeper
from fsdp_mcp.verify.rank_side import limits
from fsdp_mcp.verify.rank_side.job import Job, remove_tree

_POLL_SECONDS = 0.05
_START_SECONDS = 180.0
"""For importing torch, which takes a minute from a cold network disk."""
_END_SECONDS = 40.0
"""For the supervisor's own grace periods after the time-out, before the server ends it."""
_QUIET_SECONDS = 2.0
"""A call that is over sooner reports no progress."""


@dataclass(frozen=True)
class Folders:
    """Where a run lies.

    Args:
        scratch: removed after the run.
        work_dir: where the ranks run; below scratch unless the program names one.
        entry: the script.
        roots: folders of the user's files; reported file names are relative to the first that fits.
    """

    scratch: Path
    work_dir: Path
    entry: Path
    roots: tuple[Path, ...]


@dataclass(frozen=True)
class Facts:
    """What the supervisor told: how the run was started and the bare facts about each rank.

    Args:
        isolation: what kept the run apart.
        torch_version: of the target, as torch gives it.
        ranks: the bare facts about each rank.
        folders: where the run lay.
        packages: the folder that torch is installed in, which is left out of the paths in tracebacks.
        warm: whether the ranks were forked from a process that had torch imported before the run.
    """

    isolation: str
    torch_version: str
    ranks: list[dict[str, Any]]
    folders: Folders
    packages: Path
    warm: bool = False


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for one run and remove it after the block."""
    scratch = Path(os.path.realpath(tempfile.mkdtemp(prefix="fsdp-mcp-")))
    try:
        yield scratch
    finally:
        remove_tree(str(scratch))


def run_program(program: Program, target: Target, scratch: Path) -> Facts:
    """Run the program on its ranks and return what the supervisor tells about them.

    Raises:
        Cancelled: the caller went away; everything that was started has ended.
        EnvironmentProblem: the supervisor did not start.
    """
    folders = _lay_out(program, scratch)
    job = _job(program, folders)
    job.write(str(scratch / "job.json"))
    progress = _Progress(program)
    with keeper.start(target, scratch, fresh=job.fresh, tick=progress.tick) as running:
        started, ranks = _follow(running, program, progress, scratch / "supervisor.log")
    packages = target.torch_dir.parent if target.torch_dir else scratch
    return Facts(**started, warm=running.warm, ranks=ranks, folders=folders, packages=packages)


def _lay_out(program: Program, scratch: Path) -> Folders:
    """Make the folders and write the program's files."""
    for name in ("home", "tmp", "reports", "code"):
        (scratch / name).mkdir()
    work_dir = program.work_dir.resolve() if program.work_dir else scratch / "code"
    for name, content in program.files.items():
        path = work_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="")
    entry = work_dir / program.entry
    project = (program.project_dir.resolve(),) if program.project_dir else ()
    roots = dict.fromkeys((work_dir, *project, entry.parent))
    return Folders(scratch, work_dir, entry, tuple(roots))


def _job(program: Program, folders: Folders) -> Job:
    """Say it in the supervisor's words."""
    sources = [*program.files.values(), *_texts_beside(program, folders)]
    simulated = program.simulated
    wanted = [
        name for name, words in _PRELOADED.items() if simulated or any(_mentions(text, *words) for text in sources)
    ]
    alone = program.world_size == 1 and simulated is None
    import_path = [folders.entry.parent, program.project_dir or folders.work_dir, folders.work_dir]
    return Job(
        entry=str(folders.entry),
        arguments=list(program.arguments),
        world_size=program.world_size,
        nodes=program.nodes,
        timeout_seconds=program.timeout_seconds,
        scratch=str(folders.scratch),
        work_dir=str(folders.work_dir),
        import_path=[str(path) for path in dict.fromkeys(import_path)],
        user_roots=[str(root) for root in folders.roots],
        preload=wanted,
        fresh=simulated is None and any(_mentions(text, *_READ_AT_IMPORT) for text in sources),
        starts_ranks=alone and any(_mentions(text, "spawn(", "start_processes(") for text in sources),
        map_cuda=program.map_cuda_to_cpu and any(_mentions(text, *_FOR_GPUS) for text in sources),
        variant=program.variant,
        simulated_world=simulated.world_size if simulated else 0,
        simulated_rank=simulated.rank if simulated else 0,
        simulated_tensors=simulated.tensors if simulated else "fake",
        scratch_bytes=limits.SCRATCH_BYTES,
        memory_share=limits.MEMORY_SHARE,
    )


def _mentions(text: str, *words: str) -> bool:
    folded = text.casefold()
    return any(word in folded for word in words)


_PRELOADED = {
    "torch.distributed.fsdp": ("fsdp", "fully_shard"),
    "torch.distributed.checkpoint": ("async_save",),
    "torch._dynamo": ("fsdp", "fully_shard", "optim", "compile"),  # the first step of an optimizer imports it
}
"""Modules imported once before the fork when a source mentions one of the words, instead of once in each rank."""

_FOR_GPUS = ("cuda", "nccl", "accelerator", "device_module", "cpuoffloadpolicy", "fullyshardeddataparallel")
"""Words of scripts that expect a GPU, though they may not name one."""

_READ_AT_IMPORT = (
    *("torch_distributed_debug", "torch_logs", "torch_cpp_log_level", "omp_num_threads", "mkl_num_threads"),
    *("torchdynamo_", "torchinductor_", "torch_compile_debug", "pytorch_jit"),
)
"""Variables that torch and OpenMP read at import: a script that sets one needs a process without torch."""

_MOST_FOLDERS = 300
_MOST_SOURCE_FILES = 300
_MOST_SOURCE_BYTES = 1 << 20


def _texts_beside(program: Program, folders: Folders) -> Iterator[str]:
    """Yield the Python files of the user's project, as far as a quick look goes."""
    if not program.project_dir and folders.entry.is_relative_to(folders.work_dir):
        return
    looked = 0
    for top in dict.fromkeys((folders.entry.parent, program.project_dir or folders.entry.parent)):
        for parent, names, files in itertools.islice(os.walk(top), _MOST_FOLDERS):
            names[:] = [name for name in names if not name.startswith(".") and name not in ("site-packages", "venv")]
            for path in (Path(parent, name) for name in files if name.endswith(".py")):
                if looked < _MOST_SOURCE_FILES and path.is_file() and path.stat().st_size < _MOST_SOURCE_BYTES:
                    looked += 1
                    yield path.read_text(encoding="utf-8", errors="replace")


def _follow(
    running: Keeper, program: Program, progress: _Progress, log: Path
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Take the supervisor's events, telling the caller how far the run is, until the ranks have ended."""
    lines: queue.Queue[bytes | None] = queue.Queue()
    threading.Thread(target=_read_lines, args=(running.output, lines), daemon=True).start()
    started: dict[str, str] = {}
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        progress.tick(running=bool(started))
        with contextlib.suppress(queue.Empty):
            line = lines.get(timeout=_POLL_SECONDS)
            if line is None:
                raise EnvironmentProblem(_why_it_ended(log))
            event = json.loads(line)
            if event["event"] == "failed":
                raise EnvironmentProblem(f"The run ended without a result. {event['value']}.")
            if event["event"] == "ended":
                return started, event["value"]
            started = event["value"]
            deadline = time.monotonic() + program.timeout_seconds + _END_SECONDS
    raise EnvironmentProblem(f"The supervisor of the ranks did not answer in time and was ended. {_why_it_ended(log)}")


def _read_lines(output: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed by the other thread at the end
        for line in output:
            lines.put(line)
    lines.put(None)


def _why_it_ended(log: Path) -> str:
    """Return the end of what the supervisor printed."""
    text = log.read_text(encoding="utf-8", errors="replace").strip() if log.is_file() else ""
    return f"The supervisor of the ranks ended early: {text[-1000:] or 'it printed nothing'}"


class _Progress:
    """Tells the caller once a second what the run is doing, after the first two seconds, and hears of its end."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._started = self._now = time.monotonic()
        self._next = self._started + _QUIET_SECONDS

    def tick(self, *, running: bool = False) -> None:
        """Report if it is time to; raise Cancelled when the caller went away."""
        call.check_cancelled()
        self._now = time.monotonic()
        if self._now < self._next:
            return
        self._next = self._now + 1
        seconds = self._now - self._started
        size = self._program.world_size
        what = f"{size} rank{'s' if size > 1 else ''} running" if running else "importing torch"
        call.report(round(seconds, 1), self._program.timeout_seconds, f"{what}, {seconds:.0f} s")
