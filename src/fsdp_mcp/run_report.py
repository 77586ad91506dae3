"""The report of a run on local ranks, and how it is told."""

from __future__ import annotations

import re

from pydantic import Field

from fsdp_mcp.lab import (
    CollectiveTotal,
    Comparison,
    FirstFailure,
    Hang,
    HangKind,
    Mapped,
    Numbers,
    RankReport,
    Unsupported,
)
from fsdp_mcp.models import Diagnosis, Isolation, Result
from fsdp_mcp.phrases import count, cut, numbered
from fsdp_mcp.simulated import Simulation


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
        what = self.simulation.title() if self.simulation else count(len(self.ranks), "rank")
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
        return f"**failed**: {how}. Rank {first.rank} first{place}: {cut(first.message, 500)}" + (
            f"\n`{cut(code, 200)}`" if code else ""
        )

    def _rank(self, number: int) -> RankReport:
        return next(rank for rank in self.ranks if rank.rank == number)

    def _why_it_hangs(self) -> str:
        hang = self.hang
        if hang is None:
            return ""
        name = hang.kind.replace("_", " ")
        return f"**{name}**: {cut(hang.explanation, 600)}\n{hang.meaning} Change: {hang.change} ({hang.url})"

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
        return [f"- {numbered(ranks, word='rank')}: {cut(how, 220)}" for how, ranks in groups.items()]

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
        return [cut(f"{text}{_at_lines(found)}", 120) for text, found in lines.items()]


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
        return f"{rank.status}{doing} at {stuck.file}:{stuck.line} `{cut(stuck.code or stuck.function, 120)}`"
    if rank.error is not None:
        place = f" at {rank.error.file}:{rank.error.line}" if rank.error.file else ""
        return f"{rank.status}{place}: {rank.error.type}: {cut(rank.error.message, 160)}"
    return f"{rank.status}{f' in {rank.collective}' if rank.collective else ''}"


def _code_of(rank: RankReport) -> str | None:
    """Return the source line at which a rank failed or hung."""
    if rank.error is not None:
        return rank.error.code
    return rank.stuck_at.code if rank.stuck_at else None


def _at_lines(lines: list[int]) -> str:
    return f" ({numbered(lines, word='line')})" if lines else ""


def _one_line_each(lines: list[str], *, most: int) -> str:
    """Join lines, counting those beyond the first `most`."""
    more = [f"- and {len(lines) - most} more"] if len(lines) > most else []
    return "\n".join([*lines[:most], *more])
