"""Finds the official page that describes an API, and its anchor there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import ApiSymbol, Value

_ROOT = "https://docs.pytorch.org/docs/stable/"


class PageRow(Value):
    """One row of `facts/symbol_pages.yaml`."""

    page: str
    prefixes: tuple[str, ...]
    documents: tuple[str, ...]


def with_page(symbol: ApiSymbol) -> ApiSymbol:
    """Return the symbol with its official page and address, unless it has them."""
    if symbol.page:
        return symbol
    page, url = locate((symbol.qualified_name, *symbol.other_paths))
    return symbol.model_copy(update={"page": page, "url": url})


def locate(paths: Iterable[str]) -> tuple[str, str]:
    """Return page and address of an object known by these paths; two empty strings when no page covers it.

    A name that its page documents, or a member of one, gets an anchor; any other only the page.
    """
    paths = tuple(paths)
    for path in paths:
        page = _documented(path)
        if page is not None:
            return page, f"{_ROOT}{page}.html#{path}"
    for path in paths:
        for prefix in _ancestors(path):
            page = _tables()[1].get(prefix)
            if page is not None:
                return page, f"{_ROOT}{page}.html"
    return "", ""


def _documented(path: str) -> str | None:
    return next((_tables()[0][name] for name in _ancestors(path) if name in _tables()[0]), None)


def _ancestors(path: str) -> Iterable[str]:
    """Yield the path and everything above it, the nearest first."""
    while path:
        yield path
        path = path.rpartition(".")[0]


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, str], dict[str, str]]:
    """Return the page of each documented name and of each prefix."""
    rows = load_facts("symbol_pages", PageRow)
    return (
        {name: row.page for row in rows for name in row.documents},
        {prefix: row.page for row in rows for prefix in row.prefixes},
    )
