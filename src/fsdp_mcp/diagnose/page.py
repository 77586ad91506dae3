"""The failure pages: what is matched, what it means, what to do; one file each in docs_corpus/failures."""

from __future__ import annotations

import operator
import re
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field

from fsdp_mcp.corpus import corpus_dir, read_yaml
from fsdp_mcp.errors import FsdpMcpError
from fsdp_mcp.models import Value
from fsdp_mcp.releases import release_numbers

_HEADING = re.compile(r"^## (?P<name>.+)$", re.MULTILINE)
_EXCERPT = re.compile(r"^```log\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


class Sign(str, Enum):
    """What is concluded from many lines together, which no single line says; signs.py tells how."""

    TIMED_OUT_TOGETHER = "timed_out_together"
    """Two or more ranks report a time-out of the same collective: number, kind and size agree."""
    TIMED_OUT_APART = "timed_out_apart"
    """Ranks report time-outs of different collectives of one group: they have left each other's order."""
    SIZES_DIFFER = "sizes_differ"
    """Same number and kind, but ranks gave different element counts."""
    FIRST_COLLECTIVE = "first_collective"
    """The collective that timed out is the first one of its group."""
    GATHER_AGAINST_BARRIER = "gather_against_barrier"
    """Ranks timed out apart: some gather or scatter shards, the others wait in a collective of one element."""
    SHORT_TIMEOUT = "short_timeout"
    """The time-out is shorter than the default of the backend."""
    RANKS_MISSING = "ranks_missing"
    """Some ranks of a known world report nothing where others report a time-out."""
    RANKS_BEHIND = "ranks_behind"
    """Some ranks never enqueued the collective in which the others timed out."""
    ONE_RANK_RAISED = "one_rank_raised"
    """Some ranks raised an exception of their own while others failed in communication or reported nothing."""
    RAISED_BY_DISTRIBUTED = "raised_by_distributed"
    """A function of torch.distributed, or of what builds on it, raised the exception."""
    ALL_RANKS_RAISED = "all_ranks_raised"
    """Every rank that is seen raised the same exception."""
    NET_PLUGIN_DIFFERS = "net_plugin_differs"
    NCCL_VERSION_DIFFERS = "nccl_version_differs"
    """Hosts report different values for the same thing in their NCCL_DEBUG=INFO lines."""
    RECORDER_RANKS_MISSING = "recorder_ranks_missing"
    """Flight-recorder dumps: some ranks never called a collective in which others wait."""
    RECORDER_CALLS_DIFFER = "recorder_calls_differ"
    """Flight-recorder dumps: ranks called different kinds at the same place in the order of a group."""
    RECORDER_SIZES_DIFFER = "recorder_sizes_differ"
    """Flight-recorder dumps: ranks gave different sizes or dtypes."""
    RECORDER_NO_DUMP = "recorder_no_dump"
    """Flight-recorder dumps: the ranks agree, and there is no dump of others in the group."""
    RECORDER_ALL_WAIT = "recorder_all_wait"
    """Flight-recorder dumps: every rank of the group called the same and none completed it."""
    STACKS_DIFFER = "stacks_differ"
    """py-spy dumps of several processes: their main threads stand at different places."""
    STACKS_AGREE = "stacks_agree"
    """py-spy dumps of several processes: all stand in the same collective at the same line."""


class Reference(Value):
    """An official page or an issue."""

    name: str
    url: str


class FailurePage(Value):
    """One known failure.

    A pattern is a regular expression that one line, without its prefix, has to hold. It begins and ends at word
    borders and holds a whole word, by which it is found.
    """

    id: str = Field(description="File name without .md")
    title: str
    summary: str = Field(description="The cause in one sentence")
    torch: str = Field(description="Releases that show it, e.g. `>=2.4`")
    group: str
    role: Literal["cause", "suspect", "consequence", "notice"] = Field(
        description="cause: explains the rest; suspect: a cause when nothing better is found; consequence: follows from"
        " another failure; notice: harmless"
    )
    names_rank: bool = Field(False, description="Whether a consequence's last line is of the rank that failed first")
    match: tuple[str, ...] = Field((), description="Any of these lines")
    requires: tuple[str, ...] = Field((), description="And every one of these, on any line")
    along: tuple[str, ...] = Field((), description="And at least one of these, on any line")
    raised_in: tuple[str, ...] = Field(
        (),
        description="And the innermost frame of a traceback is any of these; gives way to pages that know it",
    )
    signs: tuple[Sign, ...] = Field((), description="And every one of these signs")
    context: tuple[str, ...] = Field((), description="Lines that make it likelier")
    likelier: tuple[Sign, ...] = Field((), description="Signs that make it likelier")
    excludes: tuple[str, ...] = Field((), description="Lines that rule it out")
    refines: tuple[str, ...] = Field((), description="Pages that this one is a case of: dropped when this one applies")
    says: tuple[str, ...] = Field(
        (), description="Sentences with {named} parts of the matched line, added to the cause where all are there"
    )
    confidence: Literal["high", "medium", "low"] = "high"
    pages: tuple[Reference, ...] = Field(min_length=1)
    symbols: tuple[str, ...] = ()
    cause: str
    fix: str
    next_evidence: str
    tell_apart: str = ""
    excerpt: str = Field(description="Log lines in which this page is found first; empty for signs of recorder dumps")

    def holds_for(self, version: str) -> bool:
        """Return whether a release, `X.Y` or `X.Y.Z`, may show this failure."""
        release = release_numbers(version)
        return all(_COMPARED[sign](release, release_numbers(bound)) for sign, bound in _BOUND.findall(self.torch))


_BOUND = re.compile(r"(>=|<=|<|>)\s*(\d+\.\d+)")
_COMPARED = {">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt}


class BrokenFailurePage(FsdpMcpError):
    """A failure page that lacks a part."""


@lru_cache(maxsize=1)
def failure_pages() -> tuple[FailurePage, ...]:
    """Return all failure pages in name order."""
    return tuple(read_page(path) for path in sorted((corpus_dir() / "failures").glob("*.md")))


def read_page(path: Path) -> FailurePage:
    """Return the page in a file.

    Raises:
        BrokenFailurePage: it lacks front matter, a section or a field.
    """
    _, header, body = [*path.read_text(encoding="utf-8").split("---\n", 2), "", ""][:3]
    sections = _sections(body)
    excerpt = _EXCERPT.search(sections.get("Excerpt", ""))
    try:
        return FailurePage(
            **read_yaml(header),
            id=path.stem,
            cause=sections["Cause"],
            fix=sections["Fix"],
            next_evidence=sections["Next evidence"],
            tell_apart=sections.get("Tell apart", ""),
            excerpt=excerpt["text"] if excerpt else "",
        )
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise BrokenFailurePage(f"failures/{path.name}: {error}") from error


def _sections(body: str) -> dict[str, str]:
    """Return the text below each `##` heading."""
    parts = _HEADING.split(body)
    return {name.strip(): text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
