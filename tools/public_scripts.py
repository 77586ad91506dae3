"""Run public scripts written for CUDA in run_on_gloo and print the share that starts.

    python -m tools.public_scripts ROWS.jsonl REPOSITORIES [--how HOW.jsonl] [--only ID ...] [--python INTERPRETER]

Each row names a script (`id`, `repo`, `path`) that lies at REPOSITORIES/repo/path, and may give `arguments`, `files`
(name to text, written where the script runs), `copies` (files beside the script that it opens by relative names) and
`world_size` (1 for a script that starts its ranks itself); rows of HOW.jsonl add these to the row of the same `id`.

Counting rule. A script has started when every rank has issued a collective after its model was built, that is after
the model was wrapped, sharded, handed to an optimizer or called. Scripts that need a package that is not installed are
third-party gaps and left out of the share. The rest stopped for a named reason (arguments, data or weights that are not
there, an error that names its cause) or because of a fault of the mapping: an error that speaks of CUDA, NCCL or an
accelerator, or a stop without a reason. The share is that of scripts that started or stopped for a named reason.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fsdp_mcp.lab import CodeError, Program
from fsdp_mcp.run_report import RunReport
from fsdp_mcp.verify.run import run_ranks

_SECONDS = 120.0
_SECONDS_AFTER_START = 15
"""How long a script goes on after it has started: an error there is shown and does not count."""

Kind = Literal["started", "named reason", "third-party gap", "mapping fault"]

OBSERVER = """
import os, sys, threading
from pathlib import Path
os.environ.update(HF_HUB_OFFLINE="1", WANDB_MODE="disabled", TOKENIZERS_PARALLELISM="false")  # and maps cuda
import torch, torch.distributed as dist, torch.distributed.fsdp, torch.distributed._functional_collectives as functional

_built = threading.Event()
_here = Path.cwd()

def _end():
    (_here / f"ended{os.environ.get('RANK', '0')}").touch()
    os._exit(0)

def _collective():
    mark = _here / f"started{os.environ.get('RANK', os.getpid())}"
    if _built.is_set() and not mark.exists():
        mark.touch()
        timer = threading.Timer(SECONDS_AFTER_START, _end)
        timer.daemon = True
        timer.start()

def _watch(owner, name, before=None, after=None):
    original = getattr(owner, name, None)
    if original is None:
        return
    def watched(*args, **kwargs):
        if before:
            before()
        result = original(*args, **kwargs)
        if after:
            after()
        return result
    watched.__name__ = name
    watched.__wrapped__ = original
    setattr(owner, name, watched)

_watch(torch.optim.Optimizer, "__init__", before=_built.set)
_watch(torch.nn.parallel.DistributedDataParallel, "__init__", before=_built.set, after=_collective)
_watch(torch.distributed.fsdp.FullyShardedDataParallel, "__init__", before=_built.set)
_watch(torch.nn.Module, "__call__", before=_built.set)
_watch(torch.distributed.fsdp, "fully_shard", before=_built.set)
for _name in dir(dist.ProcessGroup):
    if _name.strip("_").startswith(("all", "broadcast", "reduce", "gather", "scatter", "send", "recv", "barrier")):
        _watch(dist.ProcessGroup, _name, before=_collective)
for _name in dir(functional):
    if _name.startswith(("all_", "reduce_", "broadcast")):
        _watch(functional, _name, before=_collective)

sys.argv[0] = SCRIPT
if "RANK" in os.environ:  # else spawned ranks run this file again
    __file__ = SCRIPT
sys.path[:0] = [os.path.dirname(SCRIPT), REPOSITORY + "/src"]
exec(compile(open(SCRIPT, "rb").read(), SCRIPT, "exec"), globals())
"""
"""What the ranks run: it marks in a file that a rank has started, and executes the script as `__main__`."""


@dataclass(frozen=True)
class Script:
    """One row.

    Args:
        id: of the row.
        file: the script.
        repository: the folder of its repository, put on the import path.
        arguments: command line.
        files: to write into the folder that the ranks run in.
        world_size: ranks.
    """

    id: str
    file: Path
    repository: Path
    arguments: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    world_size: int = 2


@dataclass(frozen=True)
class Verdict:
    """How far a script came, and why it stopped."""

    kind: Kind
    why: str


def main(words: list[str]) -> int:
    """Run all rows and print a line for each and the share."""
    parser = argparse.ArgumentParser(prog="tools.public_scripts")
    parser.add_argument("rows", type=Path)
    parser.add_argument("repositories", type=Path)
    parser.add_argument("--how", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--python", help="interpreter with torch, where FSDP_MCP_PYTHON does not name it")
    arguments = parser.parse_args(words)
    if arguments.python:
        os.environ["FSDP_MCP_PYTHON"] = arguments.python
    counts: collections.Counter[Kind] = collections.Counter()
    for script in read_rows(arguments.rows, arguments.repositories.resolve(), arguments.how):
        if arguments.only and script.id not in arguments.only:
            continue
        verdict = run(script)
        counts[verdict.kind] += 1
        print(f"{script.id:<14} {verdict.kind:<16} {verdict.why}", flush=True)
    print(summary(counts))
    return 0


def summary(counts: collections.Counter[Kind]) -> str:
    """Return the share as a line."""
    counted = sum(counts.values()) - counts["third-party gap"]
    good = counts["started"] + counts["named reason"]
    return (
        f"{good} of {counted} started ({counts['started']}) or stopped for a named reason ({counts['named reason']}); "
        f"{counts['mapping fault']} mapping faults; {counts['third-party gap']} third-party gaps left out"
    )


def read_rows(rows: Path, repositories: Path, how: Path | None) -> Iterator[Script]:
    """Return the scripts of a file of JSON lines, with how each is run."""
    added = {row["id"]: row for row in _lines(how)} if how else {}
    for given in _lines(rows):
        row = {**given, **added.get(given["id"], {})}
        repository = repositories / row["repo"]
        file = repository / row["path"]
        beside = {name: (file.parent / name).read_text(encoding="utf-8") for name in row.get("copies", ())}
        yield Script(
            id=row["id"],
            file=file,
            repository=repository,
            arguments=tuple(row.get("arguments", ())),
            files={**beside, **row.get("files", {})},
            world_size=row.get("world_size", 2),
        )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run(script: Script) -> Verdict:
    """Run one script and judge how far it came."""
    if not script.file.is_file():
        return Verdict("named reason", "the script is not in the repository")
    observer = OBSERVER
    values = {
        "SECONDS_AFTER_START": _SECONDS_AFTER_START,
        "SCRIPT": str(script.file),
        "REPOSITORY": str(script.repository),
    }
    for name, value in values.items():
        observer = observer.replace(name, repr(value))
    with tempfile.TemporaryDirectory(prefix="public-") as folder:
        program = Program(
            files={"observe.py": observer, **script.files},
            entry="observe.py",
            arguments=script.arguments,
            world_size=script.world_size,
            timeout_seconds=_SECONDS,
            project_dir=script.repository,
            map_cuda_to_cpu=True,
            work_dir=Path(folder),
        )
        report = run_ranks(program)
        started = len(list(Path(folder).glob("started*")))
        ended = len(list(Path(folder).glob("ended*")))
    if started >= script.world_size:
        return Verdict("started", "went on" if ended or report.ok else f"then {_why(report)}")
    return judge(report, script)


_SPEAKS_OF_DEVICES = re.compile(
    r"cuda|nccl|accelerator|nvidia|cudnn|\bgpu|Cpu(Stream|Event|Context)|SimpleNamespace|unknown parameter type", re.I
)
_NOT_THERE = (
    "FileNotFoundError",
    "LocalEntryNotFoundError",
    "ConnectionError",
    "OfflineModeIsEnabled",
    "NotADirectoryError",
)
_OFFLINE = re.compile(r"offline|couldn't connect|name resolution|Connection|urlopen|Can't load|not found|no file", re.I)


def judge(report: RunReport, script: Script) -> Verdict:
    """Say why a script that did not start has stopped."""
    if report.ok:
        return Verdict("named reason", "ended by itself without a model and a collective")
    first = report.first_failure
    error = report.ranks[first.rank].error if first else None
    return _stopped(error, report, script) if error else Verdict("mapping fault", _why(report))


def _stopped(error: CodeError, report: RunReport, script: Script) -> Verdict:
    """Say why a script stopped with an error."""
    why = _why(report)
    if error.type in ("ModuleNotFoundError", "ImportError"):
        return _import(error, script, why)
    if error.type == "SystemExit":
        return Verdict("named reason", f"{why}: {textwrap.shorten(_last_line(report), 160)}")
    if error.type in _NOT_THERE or (
        error.type in ("OSError", "URLError", "RuntimeError") and _OFFLINE.search(error.message)
    ):
        return Verdict("named reason", f"data or weights are not there: {why}")
    if _SPEAKS_OF_DEVICES.search(_said(error)):
        return Verdict("mapping fault", why)
    return Verdict("named reason", why)


def _said(error: CodeError) -> str:
    """Return the message; of one that quotes the traceback of a spawned rank, the last line."""
    return error.message.strip().splitlines()[-1] if "Traceback" in error.message else error.message


def _import(error: CodeError, script: Script, why: str) -> Verdict:
    """Tell a package that is not installed from a name that this torch no longer has."""
    name = re.search(r"No module named '([\w.]+)'|from '([\w.]+)'", error.message)
    module = (name[1] or name[2] if name else "").partition(".")[0]
    local = any((folder / module).exists() or (folder / f"{module}.py").exists() for folder in script.file.parents)
    if module == "torch" or local:
        return Verdict("named reason", why)
    return Verdict("third-party gap", why)


def _why(report: RunReport) -> str:
    """Return the first failure in a line."""
    first = report.first_failure
    if first is None:
        return "no failure"
    place = f" at {first.file}:{first.line}" if first.file else ""
    error = report.ranks[first.rank].error
    message = f"{error.type}: {_said(error)}" if error else first.message
    return textwrap.shorten(f"{first.status}: {message}", 200) + place


def _last_line(report: RunReport) -> str:
    lines = [rank.output.strip().splitlines() for rank in report.ranks]
    return next((found[-1] for found in lines if found), "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
