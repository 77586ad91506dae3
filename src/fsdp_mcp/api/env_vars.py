"""Environment variables of torch.distributed, torchrun, NCCL, RCCL and Gloo: found by name, told, indexed.

They are facts of our own (`docs_corpus/facts/env_vars.yaml`), so they are answered without a torch, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

from pydantic import Field

from fsdp_mcp.api.answer import ApiAnswer, Detail
from fsdp_mcp.api.changes import Status
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.errors import closest
from fsdp_mcp.models import IndexEntry, Source, Value
from fsdp_mcp.releases import release_numbers

SCHEME = "fsdp://env/"
_OFFICIAL = "https://docs.pytorch.org/docs/stable/"
_TYPING_ERROR = 0.9
_SHORTEST_MISSPELT = 6

Reader = Literal[
    "torch",
    "torchrun",
    "nccl",
    "rccl",
    "gloo",
    "cuda",
    "rocm",
    "openmp",
    "mkl",
    "aws-ofi-nccl",
    "rdma-core",
]


class EnvVar(Value):
    """One row of `facts/env_vars.yaml`."""

    name: str
    aliases: tuple[str, ...] = Field(default=(), description="Older or other names that are still read")
    read_by: tuple[Reader, ...] = Field(description="Who acts on it; empty when it is only there to be read by you")
    set_by: Literal["torchrun"] | None = None
    meaning: str
    values: str = ""
    default: str | None = Field(default=None, description="What holds when it is unset")
    since: str | None = Field(default=None, description="First torch that reads it; 2.0 means 2.0 or earlier")
    until: str | None = Field(default=None, description="Last torch that reads it")
    name_since: str | None = Field(default=None, description="First torch that reads it by this name, not by an alias")
    library_since: str | None = Field(default=None, description="Release of the other library that brought it")
    file: str | None = Field(default=None, description="File of torch that names it")
    when: str = Field(description="When to touch it")
    source: Source


def env_vars() -> tuple[EnvVar, ...]:
    """Return all rows, in the order of the table."""
    return load_facts("env_vars", EnvVar)


@lru_cache(maxsize=1)
def _by_name() -> dict[str, EnvVar]:
    names = {alias: row for row in env_vars() for alias in row.aliases}
    return names | {row.name: row for row in env_vars()}


def find_env_var(name: str) -> EnvVar | None:
    """Return the variable of exactly that name or old name; names of variables are written in capitals."""
    return _by_name().get(name.removeprefix(SCHEME))


def misspelt_env_var(name: str) -> EnvVar | None:
    """Return the variable that `name` is a slip of the keyboard away from: other case, a letter too many, two swapped.

    NCCL has variables beside those of the table, so that a name must be nearly right to be taken for another.
    """
    wanted = name.removeprefix(SCHEME).upper()
    if "_" not in wanted or len(wanted) < _SHORTEST_MISSPELT:
        return None
    near = [known for known in closest(wanted, _by_name(), count=1) if abs(len(known) - len(wanted)) <= 1]
    alike = [known for known in near if SequenceMatcher(None, known, wanted).ratio() >= _TYPING_ERROR]
    return _by_name()[alike[0]] if alike else None


def closest_env_vars(name: str) -> list[str]:
    """Return the names that resemble one that is written like a variable, the nearest first."""
    written_so = name.isupper() and "_" in name
    return closest(name, _by_name()) if written_so else []


def describe_env_var(row: EnvVar) -> str:
    """Return meaning, values, default, advice and origin as Markdown."""
    facts = {
        "Values": row.values,
        "Default": row.default,
        "When to touch it": row.when,
        "Set by": f"{row.set_by}, for its workers" if row.set_by else None,
        "Read by": ", ".join(row.read_by),
        "Also named": ", ".join(row.aliases),
        "Since": row.library_since,
    }
    lines = [f"- {label}: {_sentence(fact)}" for label, fact in facts.items() if fact]
    return "\n".join([row.meaning, "", *lines])


def _sentence(fact: str) -> str:
    return fact if fact.endswith((".", ")")) else f"{fact}."


def env_var_answer(
    row: EnvVar, *, asked: str, version: str, installed: str | None, detail: Detail = "summary"
) -> ApiAnswer:
    """Return what lookup_api says of a variable.

    Args:
        row: the variable.
        asked: the name that was asked for, of which the answer says so when it is another.
        version: the torch that is asked about.
        installed: the torch that is installed, or None.
        detail: how much is rendered.
    """
    status = _status(row, version)
    return ApiAnswer(
        name=row.name,
        qualified_name=row.name,
        kind="env_var",
        status=status,
        signature=None,
        parameters=(),
        returns=None,
        summary=row.meaning,
        text=describe_env_var(row),
        since=row.since,
        since_exact=True,
        until=row.until,
        changes=(),
        other_paths=row.aliases,
        replaced_by=None,
        page=_page(row) or None,
        url=row.source.url,
        source=row.file,
        torch_version=version,
        warnings=tuple(_notes(row, asked, status, version, installed)),
        detail=detail,
    )


def _status(row: EnvVar, version: str) -> Status:
    asked = release_numbers(version)
    if row.since and row.since != "2.0" and release_numbers(row.since) > asked:
        return "not_yet"
    return "removed" if row.until and release_numbers(row.until) < asked else "available"


def _notes(row: EnvVar, asked: str, status: Status, version: str, installed: str | None) -> Iterator[str]:
    name = asked.removeprefix(SCHEME)
    if name in row.aliases:
        yield f"{name} is another name of it."
    elif name != row.name:
        yield f"No variable is known as {name}; this is the closest."
    if row.name_since and status == "available" and release_numbers(version) < release_numbers(row.name_since):
        yield f"Torch {version} reads it as {', '.join(row.aliases)}; the name {row.name} came with {row.name_since}."
    if status == "not_yet":
        yield f"Torch {version} does not read {row.name} yet; it came with {row.since}."
    if status == "removed":
        yield f"Torch {version} no longer reads {row.name}; torch {row.until} was the last."
    if installed and release_numbers(installed) != release_numbers(version):
        yield f"About torch {version}, while torch {installed} is installed: values and default may differ."


def _page(row: EnvVar) -> str:
    """Return the name of the official page of torch that describes it, or an empty text."""
    path = row.source.url.partition("#")[0]
    return path.removeprefix(_OFFICIAL).removesuffix(".html") if path.startswith(_OFFICIAL) else ""


def env_var_entries(*, torch_version: str) -> Iterator[IndexEntry]:
    """Yield a searchable entry for each variable, in the order of the table."""
    for row in env_vars():
        yield IndexEntry(
            uri=f"{SCHEME}{row.name}",
            title=row.name,
            kind="env_var",
            text=describe_env_var(row),
            page=_page(row),
            url=row.source.url,
            symbol=row.name,
            names=row.aliases,
            torch_version=torch_version,
        )
