"""What a run on local ranks shows: errors, numbers, comparisons, hangs; the parts of a run's report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from fsdp_mcp.models import Value
from fsdp_mcp.phrases import count, cut, numbered
from fsdp_mcp.simulated import SimulatedRank


class CodeError(Value):
    """An exception in a rank, located at the user's innermost line."""

    type: str = Field(description="Exception class, or a limit: MemoryLimit, ProcessLimit, FileSizeLimit, Cancelled")
    message: str
    file: str | None = None
    line: int | None = None
    code: str | None = Field(default=None, description="The source line")
    traceback: str | None = None


class StuckAt(Value):
    """Where a rank stood when time ran out: the user's innermost frame."""

    file: str
    line: int
    function: str
    code: str | None = None


class RankReport(Value):
    """What one rank did."""

    rank: int
    status: Literal["ok", "error", "hung", "killed"] = Field(
        description="killed: ended because another rank failed, or by a limit that error.type names"
    )
    exit_code: int | None = None
    signal: str | None = None
    output: str = Field(default="", description="stdout and stderr together, the last 4,000 characters")
    output_omitted_bytes: int = 0
    error: CodeError | None = None
    stuck_at: StuckAt | None = None
    collective: str | None = Field(default=None, description="Collective in flight when the rank hung")


class FirstFailure(Value):
    """The rank that failed first."""

    rank: int
    status: Literal["error", "hung", "killed"]
    message: str
    file: str | None = None
    line: int | None = None


class Mapped(Value):
    """One kind of CUDA use that was mapped to CPU."""

    what: str
    line: int | None = None
    count: int = 1


class Unsupported(Value):
    """A CUDA use that has no meaning on CPU."""

    what: str
    line: int | None = None


class RankLosses(Value):
    """The losses of one rank."""

    rank: int
    count: int
    values: tuple[float | None, ...] = Field(
        description="Of each step, the first ten and the last ten when there are more; null for NaN or infinity"
    )


class FirstNaN(Value):
    """Where NaN or infinity was first seen."""

    rank: int
    step: int
    what: str = Field(description="The loss, or the gradient of which parameter")
    file: str | None = None
    line: int | None = None


class Disagreement(Value):
    """A value that ranks have to hold alike, and do not."""

    name: str = Field(description="Parameter, without the names of wrappers")
    what: Literal["parameter", "gradient"]
    step: int = Field(description="Checks follow steps 1, 2, 4, 8 and so on, and the last")
    ranks: tuple[int, ...]
    largest_difference: float | None = Field(description="At least; null for NaN on some ranks")


class Numbers(Value):
    """What training computed."""

    steps: int = Field(description="Of optimizers, each after at least one backward")
    losses: tuple[RankLosses, ...]
    skipped_steps: int = Field(default=0, description="Left out by a GradScaler")
    first_nan: FirstNaN | None = None
    disagreeing: tuple[Disagreement, ...] = ()
    stopped: str | None = Field(default=None, description="Why a rank's record ends before the run")

    def lines(self) -> list[str]:
        """Return the numbers in a few lines."""
        lines = [self._losses()]
        if nan := self.first_nan:
            place = f" ({nan.file}:{nan.line})" if nan.file else ""
            lines.append(f"**First NaN or infinity**: rank {nan.rank}, step {nan.step}: {cut(nan.what, 150)}{place}")
        if self.disagreeing:
            one = self.disagreeing[0]
            size = "NaN" if one.largest_difference is None else f"{one.largest_difference:.2g}"
            more = f"; {len(self.disagreeing) - 1} more" if len(self.disagreeing) > 1 else ""
            lines.append(
                f"**Ranks disagree**: {one.what} {cut(one.name, 80)} differs by {size} at step {one.step} between"
                f" {numbered(list(one.ranks), word='rank')}{more}"
            )
        if self.stopped:
            lines.append(f"The record of numbers ends early: {cut(self.stopped, 150)}")
        return lines

    def _losses(self) -> str:
        """Say where the loss went, and how far ranks are apart."""
        ends = [(losses.values[0], losses.values[-1]) for losses in self.losses]
        means = [_mean([end[at] for end in ends]) for at in (0, 1)]
        where = f"{_value(means[0])} -> {_value(means[1])}"
        if len(ends) == 1:
            who = f" on rank {self.losses[0].rank}" if self.losses[0].rank else ""
        else:
            who = ", equal on all ranks" if len({losses.values for losses in self.losses}) == 1 else ", mean of ranks"
        steps = (
            count(self.steps, "step") if self.steps else f"{count(self.losses[0].count, 'backward')}, no optimizer step"
        )
        if self.skipped_steps:
            steps += f" ({self.skipped_steps} skipped by GradScaler)"
        return f"Loss {where} in {steps}{who}"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) and known else None


def _value(value: float | None) -> str:
    return "NaN" if value is None else f"{value:.4g}"


class Difference(Value):
    """How far two variants are apart where they are farthest in terms of the tolerance."""

    absolute: float
    relative: float = Field(description="To the loss, the step's largest gradient, the parameter's largest value")
    tolerance: float = Field(description="Absolute difference that the order of sums explains there")
    within: bool
    name: str | None = Field(default=None, description="Parameter")
    step: int | None = None


class Comparison(Value):
    """Whether a second variant computes the same, from the same seed."""

    variant: str = Field(description="single_process, ddp or code")
    losses: Difference | None = Field(default=None, description="Of means over ranks")
    gradients: Difference | None = None
    parameters: Difference | None = Field(default=None, description="At the end")
    equal: bool | None = Field(description="Null when nothing could be compared")
    first_step: int | None = Field(default=None, description="The first step over the tolerance")
    notes: tuple[str, ...] = ()

    def render(self) -> str:
        """Return the verdict, a line for each kind of number, and the notes."""
        verdict = {True: "equal within rounding", False: "**not equal**", None: "**not compared**"}[self.equal]
        since = f", from step {self.first_step} on" if self.first_step else ""
        lines = [f"Compared with {self.variant}: {verdict}{since}"]
        for what in ("losses", "gradients", "parameters"):
            found: Difference | None = getattr(self, what)
            if found is not None:
                place = f" in {cut(found.name, 60)}" if found.name else ""
                step = f" at step {found.step}" if found.step else ""
                lines.append(f"- {what}: {found.absolute:.2g} (tolerance {found.tolerance:.2g}){place}{step}")
        return "\n".join([*lines, *(f"- {cut(note, 250)}" for note in self.notes[:3])])


HangKind = Literal[
    "rank_conditional_collective",
    "uneven_inputs",
    "different_order",
    "different_shapes",
    "different_kinds",
    "different_roots",
    "wrong_group",
    "peer_exited",
    "unmatched_send_recv",
    "no_store",
    "slow_or_stuck_elsewhere",
]


class Waiting(Value):
    """A rank in a collective, send or receive that other ranks do not take part in."""

    rank: int
    collective: str
    group: tuple[int, ...] = Field(description="Global ranks of the group")
    shape: tuple[int, ...] = Field(description="Of the tensor, [] where there is none")
    dtype: str | None = None
    detail: str | None = Field(default=None, description="Root, ranks of a new group, or rows for each rank")
    sequence: int = Field(description="Number of the call within its group, from 1")
    file: str | None = None
    line: int | None = None
    code: str | None = None


class Elsewhere(Value):
    """A rank that does not take part."""

    rank: int
    status: Literal["ended", "failed", "running"]
    collective: str | None = Field(default=None, description="Function of torch.distributed that it is in")
    file: str | None = None
    line: int | None = None
    code: str | None = None


class Hang(Value):
    """Why ranks wait for each other, or got each other's data."""

    kind: HangKind
    explanation: str = Field(description="Who waits where, who does not come, and why")
    meaning: str
    change: str = Field(description="What to change")
    url: str
    waiting: tuple[Waiting, ...]
    elsewhere: tuple[Elsewhere, ...] = ()


class CollectiveTotal(Value):
    """How often a rank made one kind of collective, send or receive on one group."""

    rank: int
    kind: str
    group: tuple[int, ...] = Field(description="Global ranks of the group")
    count: int
    bytes: int = Field(description="Of the larger side, all calls together")


@dataclass(frozen=True)
class Program:
    """What to start on every rank.

    Args:
        files: relative path to content, written into the folder that the ranks run in.
        entry: the file of `files` that each rank runs as `__main__`, or an absolute path.
        arguments: command-line arguments of the entry.
        world_size: ranks, 1 to 16.
        nodes: pretended nodes; divides world_size.
        timeout_seconds: 1 to 600, after which the ranks are reported as hung and ended.
        project_dir: a folder put on the import path, or None.
        map_cuda_to_cpu: run CUDA calls of the program on the CPU and report each mapping.
        work_dir: an existing folder to run in, which is kept; None makes a scratch folder and removes it.
        variant: keep gradients and parameters for a comparison, as written, without dropout, or with DDP for FSDP.
        simulated: the one rank of a larger world to simulate; world_size is 1 then.
    """

    files: dict[str, str]
    entry: str = "train.py"
    arguments: tuple[str, ...] = ()
    world_size: int = 2
    nodes: int = 1
    timeout_seconds: float = 60
    project_dir: Path | None = None
    map_cuda_to_cpu: bool = False
    work_dir: Path | None = None
    variant: Literal["as_is", "without_dropout", "ddp"] | None = None
    simulated: SimulatedRank | None = None
