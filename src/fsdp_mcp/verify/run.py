"""run_on_gloo: run code on local CPU ranks that talk through Gloo, and say what each rank did."""

from __future__ import annotations

import ast
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fsdp_mcp import call
from fsdp_mcp.errors import BadArgument, Forbidden
from fsdp_mcp.lab import Program
from fsdp_mcp.models import Diagnose
from fsdp_mcp.run_report import RunReport
from fsdp_mcp.simulated import SimulatedRank
from fsdp_mcp.target import Target, require_torch

if TYPE_CHECKING:
    from fsdp_mcp.verify.comparison import Variant

_MOST_CODE_BYTES = 1 << 20
_MOST_FILES_BYTES = 4 << 20
_ENTRY = "train.py"


def run_on_gloo(
    code: Annotated[str | None, Field(description="Script text")] = None,
    *,
    path: Annotated[str | None, Field(description="Script file, instead of code")] = None,
    world_size: Annotated[int, Field(ge=1, le=16, description="Ranks")] = 2,
    nodes: Annotated[int, Field(ge=1, description="Pretended nodes")] = 1,
    timeout_seconds: Annotated[float, Field(ge=1, le=600, description="Stuck ranks end then")] = 60,
    arguments: Annotated[list[str], Field(description="Of the script")] = [],  # noqa: B006
    files: Annotated[dict[str, str], Field(description="Other files: name to text")] = {},  # noqa: B006
    project_dir: Annotated[str | None, Field(description="Put on the import path")] = None,
    map_cuda_to_cpu: Annotated[bool, Field(description="Run CUDA calls on CPU")] = True,
    compare: Annotated[str | None, Field(description="Also run and compare: single_process, ddp, code or path")] = None,
    simulate: Annotated[
        int | dict[str, int] | None, Field(description="Instead: one rank of a world {world_size, rank}, up to 4096")
    ] = None,
    diagnose: Diagnose = lambda _: None,
) -> RunReport:
    """Run a torch.distributed script on CPU ranks over Gloo; say how each ended and the line it failed or hangs at.

    No GPU, no network, an empty folder, an end at the time limit. Prove code here before it goes to GPUs.
    """
    if not call.current().may_run:
        raise Forbidden("This server does not run code. Start it with --allow-run, or use the stdio server.")
    script = _script(code, path)
    _check_names(files, taken=script.files)
    simulated = _simulated(simulate, compare, nodes)
    if simulated is None and world_size % nodes:
        raise BadArgument(f"nodes={nodes} does not divide world_size={world_size}. Give a divisor, such as 1.")
    program = Program(
        files={**files, **script.files},
        entry=script.entry,
        arguments=tuple(arguments),
        world_size=world_size,
        nodes=nodes,
        timeout_seconds=timeout_seconds,
        project_dir=_folder(project_dir),
        map_cuda_to_cpu=map_cuda_to_cpu,
    )
    target = require_torch()
    _check_parses(script.text, target)
    if simulated is not None:
        report = _simulate(replace(program, world_size=1, simulated=simulated), target)
    else:
        report = _run(program, target) if compare is None else _run_both(program, compare, target)
    return report if report.ok else report.model_copy(update={"diagnosis": diagnose(_log(report))})


def _log(report: RunReport) -> str:
    """Return what the ranks that failed by themselves wrote, as a launcher would print it."""
    failed = [rank for rank in report.ranks if rank.status == "error" or (rank.error and rank.status == "killed")]
    texts = {rank.rank: f"{rank.output}\n{rank.error.traceback if rank.error else ''}" for rank in failed}
    return "\n".join(f"[rank{rank}]: {line}" for rank, text in texts.items() for line in text.splitlines())


def _simulated(simulate: dict[str, int] | int | None, compare: str | None, nodes: int) -> SimulatedRank | None:
    """Return which rank to simulate, None for a real run."""
    if simulate is None:
        return None
    if compare is not None:
        raise BadArgument("simulate computes no values, so there is nothing to compare. Give simulate or compare.")
    from fsdp_mcp.verify import simulation

    return simulation.simulated_rank(simulate, nodes)


def _why_real(report: RunReport) -> str:
    """Say what happened with fake tensors."""
    first = report.first_failure
    place = f" at {first.file}:{first.line}" if first and first.file else ""
    return f"real tensors, as fake ones failed{place}: {first.message if first else 'no result'}"


def _simulate(program: Program, target: Target) -> RunReport:
    """Simulate with fake tensors; with real ones when that fails and real ones get on better."""
    from fsdp_mcp.verify import launch, simulation

    started = time.monotonic()
    with launch.scratch_folder() as scratch:
        ran = _run_in(scratch, program, target)
    if ran.report.ok or ran.report.ranks[0].status != "error":
        return ran.report
    with launch.scratch_folder() as scratch:
        again = _run_in(scratch, simulation.with_real_tensors(program), target)
    wants_values = simulation.failed_for_want_of_values(ran.variant.facts)
    better = again.report.ok or (wants_values and again.report.ranks[0].status == "error")
    seconds = round(time.monotonic() - started, 2)
    if not better or again.report.simulation is None:
        return ran.report.model_copy(update={"seconds": seconds})
    told = simulation.with_note(again.report.simulation, _why_real(ran.report))
    return again.report.model_copy(update={"seconds": seconds, "simulation": told})


_VARIANTS = ("single_process", "ddp")


def _run_both(program: Program, compare: str, target: Target) -> RunReport:
    """Run the program and its variant, and report the first with how far the second is from it."""
    from fsdp_mcp.verify import comparison, launch

    kind = compare if compare in _VARIANTS else "code"
    if kind == "code" and compare.replace("-", "_").isidentifier():
        raise BadArgument(f"compare: got {compare!r}. Give single_process, ddp, a .py file or the text of a script.")
    second: str | Program = compare
    if kind == "code":
        script = _script_at(compare, "compare") if _is_path(compare) else _script_text(compare, "compare")
        _check_parses(script.text, target, "compare: the code")
        second = replace(program, files={**program.files, **script.files}, entry=script.entry)
    if kind == "single_process" and program.world_size == 1:
        raise BadArgument("compare='single_process' needs world_size above 1: the first run is one process already.")
    started = time.monotonic()
    with launch.scratch_folder() as one, launch.scratch_folder() as other:
        runs = [
            _run_in(folder, variant, target)
            for folder, variant in zip((one, other), comparison.variants(program, second), strict=True)
        ]
        found = comparison.compare(runs[0].variant, runs[1].variant, kind, target)
    return runs[0].report.model_copy(update={"comparison": found, "seconds": round(time.monotonic() - started, 2)})


def _is_path(text: str) -> bool:
    return "\n" not in text and text.endswith(".py")


def run_ranks(program: Program) -> RunReport:
    """Run a program on its ranks; return what each did and which failed first.

    Raises:
        Cancelled: the caller went away; everything that was started has ended.
        EnvironmentProblem: there is no torch to run it with, or the ranks could not be started.
    """
    return _run(program, require_torch())


def _run(program: Program, target: Target) -> RunReport:
    from fsdp_mcp.verify import launch  # what does the work is loaded on the first call

    with launch.scratch_folder() as scratch:
        return _run_in(scratch, program, target).report


@dataclass(frozen=True)
class _Ran:
    """One run: the report, and what a comparison needs while the folder of the run is there."""

    report: RunReport
    variant: Variant


def _run_in(scratch: Path, program: Program, target: Target) -> _Ran:
    """Run a program in a folder and report on it."""
    from fsdp_mcp.verify import comparison, hang, launch, report, run_numbers, simulation

    started = time.monotonic()
    facts = launch.run_program(program, target, scratch)
    ranks = report.rank_reports(facts)
    mapped, unsupported = report.mapped(facts)
    calls = hang.read_calls(facts)
    simulated = program.simulated
    why = hang.explain(facts, ranks, calls) if simulated is None else None
    first = hang.first_failure(facts, ranks, why)
    recorded = run_numbers.read(facts)
    told = RunReport(
        ok=why is None and all(rank.status == "ok" for rank in ranks),
        seconds=round(time.monotonic() - started, 2),
        warm=facts.warm,
        isolation=facts.isolation,
        torch_version=facts.torch_version.partition("+")[0],
        ranks=ranks,
        first_failure=first,
        mapped=mapped,
        unsupported=unsupported,
        numbers=run_numbers.numbers(recorded, facts),
        hang=why,
        collectives=hang.totals(calls) if simulated is None else (),
        simulation=simulation.read(facts, simulated) if simulated else None,
    )
    if simulated is not None:
        told = _numbered_as(told, simulated.rank)
    failure = (
        f"rank {first.rank}: {first.message}" + (f" ({first.file}:{first.line})" if first.file else "")
        if first
        else None
    )
    return _Ran(told, comparison.Variant(facts, recorded, program.world_size, failure))


def _numbered_as(report: RunReport, rank: int) -> RunReport:
    """Return the report of a simulation with the number of the simulated rank."""
    first = report.first_failure
    return report.model_copy(
        update={
            "ranks": tuple(one.model_copy(update={"rank": rank}) for one in report.ranks),
            "first_failure": first.model_copy(update={"rank": rank}) if first else None,
        }
    )


@dataclass(frozen=True)
class _Script:
    """The script to run: its text, the files to write for it, and what to start."""

    text: str
    files: dict[str, str]
    entry: str


def _script(code: str | None, path: str | None) -> _Script:
    """Return the script that exactly one of `code` and `path` gives."""
    if (code is None) == (path is None):
        both = "both" if code is not None else "neither"
        raise BadArgument(f"Give exactly one of code (the text) and path (a file); got {both}.")
    return _script_at(str(path), "path") if code is None else _script_text(code, "code")


def _script_text(code: str, argument: str) -> _Script:
    _check_size(code, argument, _MOST_CODE_BYTES)
    return _Script(code, {_ENTRY: code}, _ENTRY)


def _script_at(path: str, argument: str) -> _Script:
    file = call.allowed_path(path, argument=argument)
    if not file.is_file():
        raise BadArgument(f"{argument}: there is no file {path!r}. Give a Python file below the working directory.")
    if file.stat().st_size > _MOST_CODE_BYTES:
        raise BadArgument(f"{argument}: {path!r} has {file.stat().st_size:,} bytes; 1 MB at most.")
    text = file.read_text(encoding="utf-8", errors="replace")
    if not text.strip():
        raise BadArgument(f"{argument}: {path!r} is empty. Give a Python script.")
    return _Script(text, {}, str(file))


def _check_size(text: str, argument: str, most: int) -> None:
    """Refuse text that is empty, too long or cannot be written to a file."""
    if not text.strip():
        raise BadArgument(f"{argument}: got no text. Give a Python script.")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise BadArgument(
            f"{argument}: character {error.start} is half of a surrogate pair; give valid text."
        ) from None
    if size > most:
        raise BadArgument(
            f"{argument}: got {size:,} bytes, {most >> 20} MB at most. Put data into the project and give path."
        )


def _check_names(files: dict[str, str], *, taken: dict[str, str]) -> None:
    """Refuse file names that leave the folder of the run or stand for the script."""
    for name in files:
        parts = PurePosixPath(name).parts
        outside = not parts or ".." in parts or PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive
        if outside or "\\" in name or "\0" in name:
            raise BadArgument(
                f"files: {name!r} is no relative file name. Use names such as 'model.py' or 'data/a.txt'."
            )
        if str(PurePosixPath(name)) in taken:
            raise BadArgument(f"files: {name!r} is the name that `code` runs under. Rename the file.")
    if files:
        _check_size("\n".join(files.values()) + "\n#", "files", _MOST_FILES_BYTES)


def _folder(text: str | None) -> Path | None:
    if text is None:
        return None
    folder = call.allowed_path(text, argument="project_dir")
    if not folder.is_dir():
        raise BadArgument(f"project_dir: there is no folder {text!r}. Give a folder below the working directory.")
    return folder


def _check_parses(text: str, target: Target, what: str = "The code") -> None:
    """Refuse code that does not parse, before anything is started.

    Left to the ranks when the target is a newer Python than ours, which may know more syntax.
    """
    if tuple(int(part) for part in target.python_version.split(".")[:2]) > sys.version_info[:2]:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        line = f" at line {error.lineno}: {(error.text or '').strip()[:200]}" if error.lineno else ""
        raise BadArgument(f"{what} does not parse: {error.msg}{line}. Nothing was started.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadArgument(f"{what} does not parse: {error}. Nothing was started.") from None
