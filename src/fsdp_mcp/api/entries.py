"""Turns the symbols of a torch into entries for the search index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fsdp_mcp.models import ApiParameter, ApiSymbol, IndexEntry

_MEMBERS = frozenset({"method", "property", "attribute"})
_LONG_TABLE_CHARACTERS = 700
"""A parameter table longer than this is cut into an entry for each parameter."""


def index_entries(symbols: Iterable[ApiSymbol], *, torch_version: str) -> Iterator[IndexEntry]:
    """Yield an entry for each symbol worth finding, and one for each parameter of those with a long table.

    Members without a docstring have no entry of their own; their class lists them. The fields of a dataclass are its
    parameters.
    """
    symbols = tuple(symbols)
    members = _members_by_class(symbols)
    uses = Counter(symbol.name for symbol in symbols)
    classes = {symbol.qualified_name: symbol for symbol in symbols if symbol.kind == "class"}
    for symbol in symbols:
        if not _worth_finding(symbol, classes):
            continue
        long = _table_length(symbol.parameters) > _LONG_TABLE_CHARACTERS
        yield _symbol_entry(symbol, members, uses, torch_version=torch_version, with_descriptions=not long)
        if long:
            for parameter in symbol.parameters:
                if parameter.description:
                    yield _parameter_entry(symbol, parameter, torch_version=torch_version)


def _members_by_class(symbols: tuple[ApiSymbol, ...]) -> dict[str, list[str]]:
    members: dict[str, list[str]] = {}
    for symbol in symbols:
        if symbol.kind in _MEMBERS:
            owner, _, name = symbol.qualified_name.rpartition(".")
            members.setdefault(owner, []).append(name)
    return members


def _worth_finding(symbol: ApiSymbol, classes: Mapping[str, ApiSymbol]) -> bool:
    """Whether a symbol gets an entry: all but undocumented members and modules, and fields of a dataclass."""
    if symbol.kind == "module":
        return symbol.summary is not None
    if symbol.kind not in _MEMBERS:
        return True
    if symbol.summary is None:
        return False
    owner = classes.get(symbol.qualified_name.rpartition(".")[0])
    return owner is None or symbol.name not in {parameter.name for parameter in owner.parameters}


def _table_length(parameters: Iterable[ApiParameter]) -> int:
    return sum(len(parameter.description or "") for parameter in parameters)


def _symbol_entry(
    symbol: ApiSymbol,
    members: Mapping[str, list[str]],
    uses: Mapping[str, int],
    *,
    torch_version: str,
    with_descriptions: bool,
) -> IndexEntry:
    blocks = [
        f"```{'' if symbol.kind == 'option' else 'python'}\n{symbol.signature}\n```" if symbol.signature else "",
        f"Deprecated: {symbol.deprecated}" if symbol.deprecated else "",
        symbol.text or "",
        _table(symbol.parameters) if with_descriptions else "",
        f"Members: {', '.join(members[symbol.qualified_name])}." if symbol.qualified_name in members else "",
    ]
    return IndexEntry(
        uri=_uri(symbol),
        title=symbol.qualified_name,
        kind="option" if symbol.kind == "option" else "api",
        text="\n\n".join(block for block in blocks if block),
        page=symbol.page,
        url=symbol.url,
        symbol=symbol.qualified_name,
        names=tuple(_names(symbol, uses)),
        torch_version=torch_version,
    )


def _uri(symbol: ApiSymbol) -> str:
    if symbol.kind == "option":
        return f"fsdp://torchrun/{symbol.name.lstrip('-')}"
    return f"fsdp://api/{symbol.qualified_name}"


def _names(symbol: ApiSymbol, uses: Mapping[str, int]) -> Iterator[str]:
    """Yield what means exactly this symbol: its other paths, `Class.member`, and its bare name when that is its own."""
    yield from symbol.other_paths
    if symbol.kind in _MEMBERS:
        yield ".".join(symbol.qualified_name.split(".")[-2:])
    if symbol.kind not in _MEMBERS or uses[symbol.name] == 1:
        yield symbol.name


def _table(parameters: Iterable[ApiParameter]) -> str:
    return "\n".join(
        f"- `{parameter.name}`: {parameter.description}" for parameter in parameters if parameter.description
    )


def _parameter_entry(symbol: ApiSymbol, parameter: ApiParameter, *, torch_version: str) -> IndexEntry:
    name = parameter.name.lstrip("*")
    typed = f"{parameter.name}: {parameter.type}" if parameter.type else parameter.name
    shown = typed if parameter.default is None else f"{typed} = {parameter.default}"
    return IndexEntry(
        uri=f"fsdp://api/{symbol.qualified_name}#param-{name}",
        title=f"{symbol.qualified_name}, parameter {name}",
        kind="api",
        text=f"`{shown}`\n\n{parameter.description}",
        page=symbol.page,
        url=symbol.url,
        symbol=symbol.qualified_name,
        names=(f"{symbol.name}.{name}",),
        torch_version=torch_version,
    )
