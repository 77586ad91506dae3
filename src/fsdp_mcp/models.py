"""The types that two or more modules share; all are frozen values."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from fsdp_mcp.simulated import SimulatedRank, Simulation
from fsdp_mcp.value import Value as Value  # noqa: PLC0414, others may take it from here

Kind = Literal["guide", "api", "env_var", "option", "failure", "rule", "official", "user"]
"""What a document is; it names the URI scheme (`env_var` is `fsdp://env/`, `option` is `fsdp://torchrun/`)."""

LIBRARY_KINDS = frozenset({"official", "user"})
"""What the user fetched or added, as opposed to what comes with us or with torch."""

PAGE_KINDS = LIBRARY_KINDS | {"guide"}
"""Sections of pages, whose titles are headings rather than names."""

SymbolKind = Literal[
    "module",
    "class",
    "function",
    "method",
    "property",
    "attribute",
    "constant",
    "exception",
    "type",
    "env_var",
    "option",
]


class Result(Value):
    """What a tool returns: fields for programs and, by `render`, a compact Markdown text for a model."""

    @abstractmethod
    def render(self) -> str:
        """Return the answer first, then reasons, then where to look next, as Markdown."""

    @property
    def negative(self) -> bool:
        """Whether the answer is a negative one, which the command line turns into exit status 1."""
        return False


class Source(Value):
    """Where a statement comes from."""

    title: str = Field(description="Name of the page and section")
    url: str = Field(description="Address of the page")


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One searchable section: a guide section, an API summary, a parameter, a member."""

    uri: str
    """What read_doc takes; unique in an index."""
    title: str
    """Heading or qualified name."""
    kind: Kind
    text: str
    """Markdown body that is ranked and excerpted."""
    page: str
    """Guide stem, or the official page name such as `distributed.fsdp.fully_shard`."""
    url: str
    """Official page with anchor, or an empty string."""
    symbol: str = ""
    """Qualified name of the API that the entry is about, or an empty string."""
    names: tuple[str, ...] = ()
    """Further identifiers that mean exactly this entry: aliases, public paths, bare names."""
    torch_version: str = ""
    """The torch that the text speaks of, `2.13.0`, or a range as a guide's front matter gives it."""


class ApiParameter(Value):
    """One parameter of a callable, or one field of a dataclass."""

    name: str = Field(description="Name with its stars, as written in the signature")
    type: str | None = Field(default=None, description="Annotation as written, else the docstring's type")
    default: str | None = Field(default=None, description="Default as source text; null when required")
    description: str | None = Field(default=None, description="From the docstring")
    since: str | None = Field(default=None, description="First release that accepts it; 2.0 means 2.0 or earlier")


class ApiSymbol(Value):
    """One public object of the target torch, read without importing it."""

    name: str = Field(description="Last component")
    qualified_name: str = Field(description="Canonical public path")
    kind: SymbolKind
    signature: str | None = Field(default=None, description="`name(parameters) -> returns`")
    parameters: tuple[ApiParameter, ...] = ()
    returns: str | None = Field(default=None, description="Return annotation, else the docstring's")
    summary: str | None = Field(default=None, description="First paragraph of the docstring, RST rendered to Markdown")
    text: str | None = Field(default=None, description="Docstring as Markdown, without the parameter table")
    other_paths: tuple[str, ...] = Field(default=(), description="Other public paths of the same object")
    home: str = Field(default="", description="Defining path, private parts included")
    source: str | None = Field(default=None, description="`torch/.../file.py:line`")
    page: str = Field(default="", description="Official page name, e.g. distributed.fsdp.fully_shard")
    url: str = Field(default="", description="Official page with anchor")
    deprecated: str | None = Field(default=None, description="Text of the deprecation, when marked")
    bases: tuple[str, ...] = ()
    build_dependent: bool = Field(default=False, description="Absent from some builds, e.g. ProcessGroupNCCL")


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


class Diagnosis(Value):
    """The known failure that explains a run or a log."""

    id: str
    title: str
    cause: str
    fix: str
    url: str


Diagnose = Callable[[str], Diagnosis | None]
"""Takes a log, returns the known failure that it shows."""


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
            lines.append(f"**First NaN or infinity**: rank {nan.rank}, step {nan.step}: {_cut(nan.what, 150)}{place}")
        if self.disagreeing:
            one = self.disagreeing[0]
            size = "NaN" if one.largest_difference is None else f"{one.largest_difference:.2g}"
            more = f"; {len(self.disagreeing) - 1} more" if len(self.disagreeing) > 1 else ""
            lines.append(
                f"**Ranks disagree**: {one.what} {_cut(one.name, 80)} differs by {size} at step {one.step} between"
                f" {_numbered(list(one.ranks), word='rank')}{more}"
            )
        if self.stopped:
            lines.append(f"The record of numbers ends early: {_cut(self.stopped, 150)}")
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
            _count(self.steps, "step")
            if self.steps
            else f"{_count(self.losses[0].count, 'backward')}, no optimizer step"
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
                place = f" in {_cut(found.name, 60)}" if found.name else ""
                step = f" at step {found.step}" if found.step else ""
                lines.append(f"- {what}: {found.absolute:.2g} (tolerance {found.tolerance:.2g}){place}{step}")
        return "\n".join([*lines, *(f"- {_cut(note, 250)}" for note in self.notes[:3])])


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


Isolation = Literal["namespaces", "subreaper", "process_group"]


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


class Receipt(Value):
    """Proof that generated code ran: what, where, how long, with which losses."""

    ok: bool
    command: str = Field(description="Shell line that repeats the proof")
    torch_version: str
    python_version: str
    world_size: int
    nodes: int
    seconds: float
    losses: tuple[float, ...] = Field(description="Loss of rank 0 at each reported step")
    differences: tuple[str, ...] = Field(description="What the proof changed, e.g. `shard group 8 -> 2`")
    isolation: Isolation
    sha256: dict[str, str] = Field(description="Digest of each file as handed over")
    error: str | None = Field(default=None, description="First failing rank's error")


class RunReport(Result):
    """What every rank of a run did, and which failed first."""

    ok: bool
    seconds: float
    warm: bool = Field(default=False, description="Whether the ranks were forked from a process with torch imported")
    isolation: Isolation
    torch_version: str
    ranks: tuple[RankReport, ...]
    first_failure: FirstFailure | None = None
    diagnosis: Diagnosis | None = None
    mapped: tuple[Mapped, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    numbers: Numbers | None = Field(default=None, description="Null when no loss.backward() was seen")
    comparison: Comparison | None = None
    simulation: Simulation | None = Field(default=None, description="Null for a real run")
    hang: Hang | None = None
    collectives: tuple[CollectiveTotal, ...] = ()

    @property
    def negative(self) -> bool:
        """A run that did not end well, or whose variants differ, is a negative answer."""
        return not self.ok or (self.comparison is not None and self.comparison.equal is not True)

    def render(self) -> str:
        """Return the verdict, the first failure with its line, the other ranks, and the end of one rank's output."""
        parts = [
            self._verdict(),
            self._why_it_hangs(),
            _one_line_each(self._rank_lines(), most=6),
            self._known_cause(),
            self._numbers(),
            "\n".join(self.simulation.lines()) if self.simulation else "",
            self._output(),
            _one_line_each(self._cuda_lines(), most=6),
        ]
        return "\n\n".join(part for part in parts if part)

    def _verdict(self) -> str:
        what = self.simulation.title() if self.simulation else _count(len(self.ranks), "rank")
        how = f"{what} in {self.seconds:.1f} s (torch {self.torch_version}, {self.isolation})"
        first = self.first_failure
        if self.simulation and (self.ok or first is None):
            return f"**simulated**: {how}. It computes nothing and proves no result."
        if self.ok or first is None:
            return f"**ok**: {how}"
        if self.hang:
            return f"**failed**: {how}"
        place = f" at {first.file}:{first.line}" if first.file else ""
        code = _code_of(self._rank(first.rank))
        return f"**failed**: {how}. Rank {first.rank} first{place}: {_cut(first.message, 500)}" + (
            f"\n`{_cut(code, 200)}`" if code else ""
        )

    def _rank(self, number: int) -> RankReport:
        return next(rank for rank in self.ranks if rank.rank == number)

    def _why_it_hangs(self) -> str:
        hang = self.hang
        if hang is None:
            return ""
        name = hang.kind.replace("_", " ")
        return f"**{name}**: {_cut(hang.explanation, 600)}\n{hang.meaning} Change: {hang.change} ({hang.url})"

    def _rank_lines(self) -> list[str]:
        """Say how each rank ended, those that ended alike in one line; nothing when all is well or told already."""
        first = self.first_failure
        told = first.rank if first and (first.status == "error" or self._rank(first.rank).error) else None
        explained = ("hung", "killed", "ok") if self.hang else ()
        groups: dict[str, list[int]] = {}
        noticed = [rank.rank for rank in self.hang.waiting] if self.hang and self.hang.kind in _NOTICED else []
        for rank in () if self.ok else self.ranks:
            if (rank.rank != told or self.hang) and rank.status not in explained and rank.rank not in noticed:
                groups.setdefault(_how_it_ended(rank), []).append(rank.rank)
        return [f"- {_numbered(ranks, word='rank')}: {_cut(how, 220)}" for how, ranks in groups.items()]

    def _known_cause(self) -> str:
        known = self.diagnosis
        return f"Known failure: {known.title}. {known.cause} Fix: {known.fix} ({known.url})" if known else ""

    def _numbers(self) -> str:
        """Say what training computed, and how far the variants are apart."""
        lines = self.numbers.lines() if self.numbers else []
        return "\n".join([*lines, *([self.comparison.render()] if self.comparison else [])])

    def _output(self) -> str:
        """Quote the end of what one rank printed: the first that failed, else rank 0."""
        rank = self._rank(self.first_failure.rank if self.first_failure else self.ranks[0].rank)
        text = _CPP_FRAMES.sub("", _OVERWRITTEN.sub("", rank.output)).strip("\n")
        if self.hang and rank.error and rank.error.traceback:  # the explanation says why its communication broke
            text = text[: max([found.start() for found in _TRACEBACK.finditer(text)] or [len(text)])].strip("\n")
        if not text:
            return f"Rank {rank.rank} printed nothing."
        shown = text.encode("utf-8")[-_SHOWN_OUTPUT_BYTES:].decode("utf-8", errors="ignore")
        omitted = len(text.encode("utf-8")) - len(shown.encode("utf-8")) + rank.output_omitted_bytes
        cut = f", after {omitted:,} bytes left out" if omitted else ""
        fence = "```" if "```" not in shown else "~~~~"
        cut += ", whose numbers mean nothing" if self.simulation else ""
        return f"Output of rank {rank.rank}{cut}:\n{fence}\n{shown}\n{fence}"

    def _cuda_lines(self) -> list[str]:
        """Say which CUDA uses ran on the CPU instead, and which could not."""
        uses = [("no meaning on CPU", use.what, use.line) for use in self.unsupported]
        uses += [("mapped", use.what, use.line) for use in self.mapped]
        lines: dict[str, list[int]] = {}
        for kind, what, line in uses:
            lines.setdefault(f"- {kind}: {what}", []).extend([line] if line else [])
        return [_cut(f"{text}{_at_lines(found)}", 120) for text, found in lines.items()]


_SHOWN_OUTPUT_BYTES = 1_500
_OVERWRITTEN = re.compile(r"[^\r\n]*\r(?=[^\r\n])")
"""What a progress bar has written over."""
_RANK_PREFIX = r"^(?:\[rank\d+\]: )?"
_CPP_FRAMES = re.compile(rf"{_RANK_PREFIX}(?:frame #\d+: .*|<omitting python frames>)\n?", re.MULTILINE)
_TRACEBACK = re.compile(rf"{_RANK_PREFIX}Traceback \(most recent call last\):$", re.MULTILINE)
_NOTICED: tuple[HangKind, ...] = (
    *("rank_conditional_collective", "uneven_inputs", "peer_exited", "unmatched_send_recv"),
    *("different_kinds", "different_order", "wrong_group"),
)
"""Kinds of hangs of which the errors of the waiting ranks say nothing but that a connection broke."""


def _how_it_ended(rank: RankReport) -> str:
    """Describe the end of one rank in a line."""
    if rank.stuck_at is not None:
        doing = f" in {rank.collective}" if rank.collective else ""
        stuck = rank.stuck_at
        return f"{rank.status}{doing} at {stuck.file}:{stuck.line} `{_cut(stuck.code or stuck.function, 120)}`"
    if rank.error is not None:
        place = f" at {rank.error.file}:{rank.error.line}" if rank.error.file else ""
        return f"{rank.status}{place}: {rank.error.type}: {_cut(rank.error.message, 160)}"
    return f"{rank.status}{f' in {rank.collective}' if rank.collective else ''}"


def _code_of(rank: RankReport) -> str | None:
    """Return the source line at which a rank failed or hung."""
    if rank.error is not None:
        return rank.error.code
    return rank.stuck_at.code if rank.stuck_at else None


def _cut(text: str, most: int) -> str:
    """Shorten a text to one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _numbered(numbers: list[int], *, word: str) -> str:
    return f"{word} {numbers[0]}" if len(numbers) == 1 else f"{word}s {', '.join(map(str, numbers))}"


def _at_lines(lines: list[int]) -> str:
    return f" ({_numbered(lines, word='line')})" if lines else ""


def _one_line_each(lines: list[str], *, most: int) -> str:
    """Join lines, counting those beyond the first `most`."""
    more = [f"- and {len(lines) - most} more"] if len(lines) > most else []
    return "\n".join([*lines[:most], *more])


class GeneratedFile(Value):
    """One file of generated code."""

    path: str = Field(description="Relative path")
    content: str
