"""Proves a script on CPU Gloo: plans small runs of it, reads their losses, and writes the receipt."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shlex import join, quote

from fsdp_mcp import call
from fsdp_mcp.generate.recipe import DEFAULT_SIZES, Options
from fsdp_mcp.lab import Program
from fsdp_mcp.models import GeneratedFile, Receipt
from fsdp_mcp.run_report import RunReport
from fsdp_mcp.target import require_torch

Prove = Callable[[Program], RunReport]

_LOSS = re.compile(r"^step (\d+) loss (\S+)", re.MULTILINE)
_TIMEOUT_SECONDS = 120
_TOLERANCE = 1e-5  # losses are printed with six decimals
_PROOF_SIZES = {"batch_size": 4, "sequence_length": 16, "dim": 64, "layers": 2}


@dataclass(frozen=True)
class Leg:
    """One run of the script: its arguments, and the folder below the scratch folder that it runs in."""

    arguments: tuple[str, ...]
    folder: str = "."


@dataclass(frozen=True)
class Plan:
    """The runs that prove a script, smaller than what was asked for.

    Args:
        world_size: ranks of each run.
        nodes: pretended nodes.
        legs: one run; or first half, resumed second half, and the whole without a stop.
        differences: what is smaller or other than in the script as handed over.
    """

    world_size: int
    nodes: int
    legs: tuple[Leg, ...]
    differences: tuple[str, ...]


@dataclass(frozen=True)
class _Outcome:
    """What the runs came to: all reports, the losses by step in the order seen, and what is wrong if anything."""

    reports: tuple[RunReport, ...]
    losses: tuple[float, ...]
    error: str | None


def plan(options: Options) -> Plan:
    """Return how to prove the script of these options."""
    world_size, shard_group, reshard = _sizes(options)
    sizes = _size_arguments(options, shard_group, reshard)
    differences = [f"{options.world_size} ranks -> {world_size}", "CUDA with NCCL -> CPU with Gloo"]
    if options.world_size == world_size:
        del differences[0]
    if options.strategy == "hsdp" and options.shard_group != shard_group:
        differences.append(f"shard group {options.shard_group} -> {shard_group}")
    if options.reshard_size not in (None, reshard):
        differences.append(f"reshard_after_forward {options.reshard_size} -> {reshard}")
    if options.cpu_offload:
        differences.append(_offload_difference(options))
    differences += [f"{name} {DEFAULT_SIZES[name]} -> {small}" for name, small in _small_sizes(options).items()]
    if options.what == "snippet":
        differences.append("the snippet ran inside the script that what='script' gives")
    nodes = 2 if options.strategy == "hsdp" and options.nodes > 1 else 1
    return Plan(world_size=world_size, nodes=nodes, legs=_legs(options, sizes), differences=tuple(differences))


def prove_script(script: str, handed_over: tuple[GeneratedFile, ...], options: Options, prove: Prove) -> Receipt:
    """Run the script as planned and return the receipt, which says so when it failed.

    Raises:
        Cancelled: the caller went away.
        EnvironmentProblem: there is no torch to run with.
    """
    target = require_torch()
    planned = plan(options)
    outcome = _run(script, planned, options, prove)
    last = outcome.reports[-1]
    differences = planned.differences
    if options.torch_version and not last.torch_version.startswith(options.torch_version):
        differences = (*differences, f"torch {options.torch_version} -> {last.torch_version}")
    return Receipt(
        ok=outcome.error is None,
        command=_command(planned, options),
        torch_version=last.torch_version,
        python_version=target.python_version,
        world_size=planned.world_size,
        nodes=planned.nodes,
        seconds=round(sum(report.seconds for report in outcome.reports), 2),
        losses=outcome.losses,
        differences=differences,
        isolation=last.isolation,
        sha256={file.path: sha256(file.content.encode("utf-8")).hexdigest() for file in handed_over},
        error=outcome.error,
    )


def _sizes(options: Options) -> tuple[int, int, int | None]:
    """Return the ranks, shard group and reshard size of the proof: the least that still has every group twice."""
    hybrid, resharded = options.strategy == "hsdp", options.reshard_size is not None
    if hybrid and resharded:
        return 8, 4, 2
    if hybrid:
        return 4, 2, None
    return (4, 4, 2) if resharded else (2, 2, None)


def _size_arguments(options: Options, shard_group: int, reshard: int | None) -> tuple[str, ...]:
    """Return the arguments that make the script small."""
    arguments: list[str] = []
    for name, size in _small_sizes(options).items():
        arguments += [f"--{name.replace('_', '-')}", str(size)]
    if options.strategy == "hsdp":
        arguments += ["--shard-size", str(shard_group)]
    if reshard is not None:
        arguments += ["--reshard-after-forward", str(reshard)]
    return tuple(arguments)


def _small_sizes(options: Options) -> dict[str, int]:
    """Return the sizes of the proof; only the built-in model takes other ones than the batch size."""
    names = ("batch_size",) if options.model else tuple(_PROOF_SIZES)
    return {name: _PROOF_SIZES[name] for name in names}


def _offload_difference(options: Options) -> str:
    if options.strategy == "fsdp1":
        return "cpu_offload off: FSDP1 offloads from an accelerator only"
    return "pin_memory True -> False"


def _legs(options: Options, sizes: tuple[str, ...]) -> tuple[Leg, ...]:
    """Return the runs: eight steps; with a checkpoint also four, a stop, and four more."""
    join_epochs = options.strategy == "ddp_join"
    half = ("--epochs", "1", "--steps-per-epoch", "4") if join_epochs else ("--steps", "4")
    whole = ("--epochs", "2", "--steps-per-epoch", "4") if join_epochs else ("--steps", "8")
    if options.checkpoint == "none":
        return (Leg((*whole, *sizes)),)
    return (
        Leg((*half, *sizes), "stopped"),
        Leg((*whole, *sizes, "--resume"), "stopped"),
        Leg((*whole, *sizes), "uninterrupted"),
    )


def _run(script: str, planned: Plan, options: Options, prove: Prove) -> _Outcome:
    """Run the legs one after the other, until one fails."""
    reports: list[RunReport] = []
    losses: list[dict[int, float]] = []
    with tempfile.TemporaryDirectory(prefix="fsdp-mcp-") as scratch:
        for leg in planned.legs:
            call.report(len(reports), len(planned.legs), f"running on {planned.world_size} Gloo ranks")
            folder = Path(scratch) / leg.folder
            folder.mkdir(exist_ok=True)
            report = prove(_program(script, leg, folder, planned, options))
            reports.append(report)
            losses.append(_losses(report))
            if not report.ok:
                break
    seen = {step: loss for one_leg in losses[:2] for step, loss in one_leg.items()}
    error = _failure(reports[-1]) or _not_falling(seen) or _not_resumed(losses)
    return _Outcome(tuple(reports), tuple(seen[step] for step in sorted(seen)), error)


def _program(script: str, leg: Leg, folder: Path, planned: Plan, options: Options) -> Program:
    return Program(
        files={"train.py": script},
        arguments=leg.arguments,
        world_size=planned.world_size,
        nodes=planned.nodes,
        timeout_seconds=_TIMEOUT_SECONDS,
        project_dir=Path(options.project_dir) if options.project_dir else None,
        work_dir=folder,
    )


def _losses(report: RunReport) -> dict[int, float]:
    """Return the losses that rank 0 printed, by step."""
    output = next((rank.output for rank in report.ranks if rank.rank == 0), "")
    return {int(step): float(loss) for step, loss in _LOSS.findall(output)}


def _failure(report: RunReport) -> str | None:
    """Return what the first failing rank said, with its line."""
    first = report.first_failure
    if report.ok or first is None:
        return None if report.ok else "the run failed without a word"
    place = f" ({first.file}:{first.line})" if first.file else ""
    return f"rank {first.rank} {first.status}: {first.message}{place}"


def _not_falling(losses: dict[int, float]) -> str | None:
    """Return a complaint when the loss is not finite or does not end below its start."""
    if len(losses) < 2:
        return "the script printed fewer than two losses"
    first, last = losses[min(losses)], losses[max(losses)]
    if math.isfinite(last) and last < first:
        return None
    return f"the loss did not fall: {first:.4f} at step {min(losses)}, {last:.4f} at step {max(losses)}"


def _not_resumed(losses: list[dict[int, float]]) -> str | None:
    """Return a complaint when the resumed run's losses are not those of the uninterrupted run."""
    if len(losses) < 3:
        return None
    before, resumed, whole = losses
    expected = {step: loss for step, loss in whole.items() if step not in before}
    same = resumed.keys() == expected.keys() and all(
        math.isclose(resumed[step], expected[step], rel_tol=0, abs_tol=_TOLERANCE) for step in expected
    )
    return None if same else f"resumed losses {resumed} are not those of the run without a stop {expected}"


def _command(planned: Plan, options: Options) -> str:
    """Return the shell line that repeats the runs on the CPU of any machine."""
    path = f" PYTHONPATH={quote(options.project_dir)}" if options.project_dir else ""
    start = f"torchrun --standalone --nproc-per-node {planned.world_size} train.py"
    folders = [("--checkpoint-dir", leg.folder) if options.checkpoint == "dcp" else () for leg in planned.legs]
    lines = [f"{start} {join((*leg.arguments, *folder))}" for leg, folder in zip(planned.legs, folders, strict=True)]
    return " && ".join([f"export CUDA_VISIBLE_DEVICES={path}", *lines])
