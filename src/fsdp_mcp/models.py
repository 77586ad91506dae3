"""The types that two or more modules share; all are frozen values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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


class Value(BaseModel):
    """A frozen value without surplus fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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


class Diagnosis(Value):
    """The known failure that explains a run or a log."""

    id: str
    title: str
    cause: str
    fix: str
    url: str


Diagnose = Callable[[str], Diagnosis | None]
"""Takes a log, returns the known failure that it shows."""


Isolation = Literal["namespaces", "subreaper", "process_group"]


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


class GeneratedFile(Value):
    """One file of generated code."""

    path: str = Field(description="Relative path")
    content: str
