"""Describes C++ types in words of our own where neither their stub nor the running torch has a docstring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from pydantic import Field

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import ApiSymbol, Value

_REPOSITORY = "https://github.com/pytorch/pytorch/blob/v2.13.0/"
_BINARY = "torch._C."


class CppType(Value):
    """One row of `facts/cpp_types.yaml`."""

    name: str = Field(description="Qualified name; * stands for any text")
    text: str
    members: dict[str, str] = Field(default={}, description="Member to what it is for")
    file: str = Field(description="Where it was read, in the repository of torch")


def with_types_described(symbols: Iterable[ApiSymbol]) -> tuple[ApiSymbol, ...]:
    """Return the symbols, C++ types and functions without a docstring described, their members listed."""
    return tuple(_described(symbol, _type_text(symbol)) for symbol in symbols)


def with_members_described(symbols: Iterable[ApiSymbol]) -> tuple[ApiSymbol, ...]:
    """Return the symbols, members of C++ types without a docstring described.

    Apart from the types, since dozens of `timeout` and `rank` would only be in the way of a search.
    """
    return tuple(_described(symbol, _member_text(symbol)) for symbol in symbols)


def _described(symbol: ApiSymbol, text: str | None) -> ApiSymbol:
    if text is None or symbol.summary or not symbol.home.startswith(_BINARY):
        return symbol
    return symbol.model_copy(update={"summary": text.partition("\n\n")[0], "text": text})


def _type_text(symbol: ApiSymbol) -> str | None:
    row = next(_rows(symbol.qualified_name), None)
    if row is None:
        return None
    members = [f"- `{name}`: {text}" for name, text in row.members.items()]
    return "\n\n".join(filter(None, [row.text, "\n".join(members), f"Read in [{row.file}]({_REPOSITORY}{row.file})."]))


def _member_text(symbol: ApiSymbol) -> str | None:
    owner, _, member = symbol.qualified_name.rpartition(".")
    return next((row.members[member] for row in _rows(owner) if member in row.members), None)


def _rows(name: str) -> Iterator[CppType]:
    """Yield the rows for a name, the exact one first; a star does not reach into nested names."""
    rows = load_facts("cpp_types", CppType)
    yield from (row for row in rows if row.name == name)
    yield from (row for row in rows if "*" in row.name and _matches(name, row.name))


def _matches(name: str, pattern: str) -> bool:
    return name.count(".") == pattern.count(".") and fnmatchcase(name, pattern)
