"""Answers for one API name: signature, parameters, description, history, for the torch that is installed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.errors import UnknownName
from fsdp_mcp.models import ApiParameter, ApiSymbol, Result, SymbolKind, Value

Detail = Literal["summary", "signature", "full"]
Status = Literal["available", "deprecated", "removed", "moved", "not_yet"]
_SUMMARY_CHARACTERS = 360
_TABLE_CHARACTERS = 1100
_MOST_OTHERS = 5


class Change(Value):
    """What one release changed."""

    version: str = Field(description="Release, X.Y")
    change: str


class ApiAnswer(Result):
    """What there is to know of one API."""

    name: str
    qualified_name: str
    kind: SymbolKind
    status: Status
    signature: str | None
    parameters: tuple[ApiParameter, ...]
    returns: str | None
    summary: str | None
    text: str | None
    since: str | None = Field(description="First release that has it; 2.0 means 2.0 or earlier")
    since_exact: bool = Field(description="False when the release may be earlier, as read from stubs of C++ types")
    until: str | None = Field(description="Last release that has it")
    changes: tuple[Change, ...]
    other_paths: tuple[str, ...]
    replaced_by: str | None
    page: str | None
    url: str | None
    source: str | None
    torch_version: str | None
    warnings: tuple[str, ...]
    detail: Detail = Field(default="summary", exclude=True)

    def render(self) -> str:
        """Return signature, summary and parameters as `detail` asks, then status, history and where to read on."""
        blocks = [self._head(), *self._described(), self._footer()]
        return "\n\n".join(block for block in blocks if block)

    def _head(self) -> str:
        version = f", torch {self.torch_version}" if self.torch_version else ""
        head = f"**{self.qualified_name}** ({self.kind}{version})"
        code = f"```python\n{self.signature}\n```" if self.signature else ""
        notes = [f"- {note}" for note in self.warnings]
        return "\n".join(part for part in (head, *notes, code) if part)

    def _described(self) -> list[str]:
        if self.detail == "signature":
            return []
        if self.detail == "full":
            return [self.text or "", *_full_table(self.parameters)]
        return [_shortened(self.summary or "", _SUMMARY_CHARACTERS), *_short_table(self.parameters)]

    def _footer(self) -> str:
        lines = [self._history(), *(f"- {change.version}: {change.change}" for change in self._shown_changes())]
        if self.replaced_by:
            lines.append(f"Use instead: {self.replaced_by}")
        if self.other_paths and self.detail != "signature":
            lines.append(f"Also importable as: {', '.join(self.other_paths)}")
        lines.append(" · ".join(part for part in (self.url, self.source) if part))
        return "\n".join(line for line in lines if line)

    def _history(self) -> str:
        words = [f"Status: {self.status}."]
        if self.since:
            words.append(f"Since torch {self.since}{'' if self.since_exact else ' or earlier'}.")
        if self.until:
            words.append(f"Last in torch {self.until}.")
        return " ".join(words)

    def _shown_changes(self) -> tuple[Change, ...]:
        return self.changes if self.detail == "full" else self.changes[-3:]


def lookup_api(
    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=300,
            description="Name, whole or its end: fully_shard, dist.all_reduce, DTensor.full_tensor",
        ),
    ],
    *,
    torch_version: Annotated[
        str | None,
        Field(max_length=20, description="X.Y to ask about another release; null is the installed one"),
    ] = None,
    detail: Annotated[
        Detail, Field(description="summary: what a call needs; signature: no prose; full: the whole docstring")
    ] = "summary",
    catalogue: Catalogue,
) -> ApiAnswer:
    """Look up one PyTorch distributed API as the installed torch defines it: signature, parameters, status, history.

    Use it before writing code that calls torch.distributed, FSDP, DTensor, device mesh, distributed checkpoint,
    DDP or activation checkpointing: names and defaults change between releases. Takes old and partial names and
    says where they went. To find an API by what it does, use search_docs.
    """
    found = find(catalogue, name)
    return _answer(found[0], others=found[1:], catalogue=catalogue, detail=detail)


def find(catalogue: Catalogue, name: str) -> tuple[ApiSymbol, ...]:
    """Return the symbols that `name` may mean, the most public first.

    Raises:
        UnknownName: there is none; the message lists the closest names.
    """
    found = catalogue.find(name.strip().strip("`").removesuffix("()"))
    if found:
        return found
    raise UnknownName(_unknown(catalogue, name))


def _unknown(catalogue: Catalogue, name: str) -> str:
    where = f" in torch {catalogue.torch_version}" if catalogue.torch_version else ""
    nearest = catalogue.closest(name)
    if not nearest:
        return f"No API named {name!r}{where}. Search for it with search_docs."
    return f"No API named {name!r}{where}. Closest: {', '.join(nearest)}. Call lookup_api with one of them."


def _answer(symbol: ApiSymbol, *, others: tuple[ApiSymbol, ...], catalogue: Catalogue, detail: Detail) -> ApiAnswer:
    warnings = []
    if symbol.build_dependent:
        warnings.append("Some builds or systems of torch lack this name.")
    if symbol.deprecated:
        warnings.append(f"Deprecated: {' '.join(symbol.deprecated.split())}")
    if others:
        warnings.append(_also(others))
    return ApiAnswer(
        name=symbol.name,
        qualified_name=symbol.qualified_name,
        kind=symbol.kind,
        status="deprecated" if symbol.deprecated else "available",
        signature=symbol.signature,
        parameters=symbol.parameters,
        returns=symbol.returns,
        summary=symbol.summary,
        text=symbol.text,
        since=None,
        since_exact=False,
        until=None,
        changes=(),
        other_paths=symbol.other_paths,
        replaced_by=None,
        page=symbol.page or None,
        url=symbol.url or None,
        source=symbol.source,
        torch_version=catalogue.torch_version,
        warnings=tuple(warnings),
        detail=detail,
    )


def _also(others: tuple[ApiSymbol, ...]) -> str:
    names = [symbol.qualified_name for symbol in others[:_MOST_OTHERS]]
    more = len(others) - len(names)
    return f"Other APIs of that name: {', '.join(names)}{f' and {more} more' if more else ''}."


def _short_table(parameters: tuple[ApiParameter, ...]) -> list[str]:
    """Return a line for each documented public parameter, its description cut so that the table stays short."""
    shown = [parameter for parameter in parameters if not parameter.name.lstrip("*").startswith("_")]
    if not shown:
        return []
    limit = max(60, min(220, _TABLE_CHARACTERS // len(shown)))
    return ["\n".join(f"- {_name_of(item)}{_colon(_shortened(item.description or '', limit))}" for item in shown)]


def _full_table(parameters: tuple[ApiParameter, ...]) -> list[str]:
    if not parameters:
        return []
    rows = [f"- {_name_of(item)}{_colon(_indented(item.description or ''))}" for item in parameters]
    return ["**Parameters:**\n\n" + "\n".join(rows)]


def _name_of(parameter: ApiParameter) -> str:
    since = f" (since {parameter.since})" if parameter.since else ""
    return f"`{parameter.name}`{since}"


def _colon(text: str) -> str:
    return f": {text}" if text else ""


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _shortened(text: str, limit: int) -> str:
    """Return the first sentences of `text` that fit in `limit` characters, else its beginning with an ellipsis."""
    flat = " ".join(text.split())
    if len(flat) <= limit:
        return flat
    head = flat[:limit]
    end = max(head.rfind(". "), head.rfind("; "))
    return head[: end + 1] if end >= limit // 3 else head[: head.rfind(" ")].rstrip(",;:") + " …"
