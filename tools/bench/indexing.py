"""How long the first index takes, how large it is, and how long a later start needs to read it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from fsdp_mcp.cache import CACHE_VARIABLE
from tools.bench.figure import Figure
from tools.bench.processes import OURS, environment

_BUILD_BUDGET_SECONDS = 15
_READ_BUDGET_SECONDS = 0.2
_COMMAND_BUDGET_SECONDS = 0.5
_READ = """
import time
from fsdp_mcp.index import open_index
from fsdp_mcp.target import find_target
target = find_target()
started = time.process_time()
open_index(target)
print(time.process_time() - started)
"""


def measure_index(*, quick: bool) -> list[Figure]:
    """Return build time and size of an index in an empty cache, and the read time of a fresh process."""
    with tempfile.TemporaryDirectory(prefix="fsdp-mcp-bench-") as folder:
        used, built = _time_command([*OURS, "index"], cache=folder)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6
        reads = [float(_run([sys.executable, "-c", _READ], cache=folder)) for _ in range(3 if quick else 7)]
    return [
        Figure("index", "first build, processor time", used, "s", budget=_BUILD_BUDGET_SECONDS),
        Figure("index", "first build, wall time", built, "s"),
        Figure("index", "size", size, "MB"),
        Figure(
            "index",
            "read at a later start",
            min(reads),
            "s",
            budget=_READ_BUDGET_SECONDS,
            note=f"open_index in a fresh process, processor time, minimum of {len(reads)}",
        ),
    ]


def _run(command: list[str], *, cache: str | None = None) -> str:
    done = subprocess.run(
        command,
        env={**environment(), **({CACHE_VARIABLE: cache} if cache else {})},
        capture_output=True,
        check=False,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed: {done.stderr[-2000:]}")
    return done.stdout


def measure_command(*, quick: bool) -> list[Figure]:
    """Return the least time of a one-shot lookup on the command line, index built."""
    lookup = [*OURS, "lookup-api", "fully_shard"]
    _time_command(lookup)
    runs = [_time_command(lookup) for _ in range(3 if quick else 9)]
    plain = [_time_command([sys.executable, "-c", "pass"]) for _ in range(3)]
    return [
        Figure(
            "fsdp-mcp lookup-api fully_shard",
            name,
            min(run[column] for run in runs),
            "s",
            budget=budget,
            note=f"minimum of {len(runs)}; python -c pass takes {min(run[column] for run in plain):.2f} s",
        )
        for column, name, budget in ((0, "processor time", _COMMAND_BUDGET_SECONDS), (1, "wall time", None))
    ]


def _time_command(command: list[str], *, cache: str | None = None) -> tuple[float, float]:
    """Return the processor time of a command and of all it started, and its wall time."""
    before, started = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    _run(command, cache=cache)
    wall, after = time.perf_counter() - started, getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall
