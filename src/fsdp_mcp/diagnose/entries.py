"""The failure pages as entries of the search index."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fsdp_mcp.diagnose.page import FailurePage
from fsdp_mcp.models import IndexEntry

_PART = re.compile(r"\(\?P<\w+>[^()]*\)|\\.|[\\^$*+?()|\[\]]")


def failure_entries(pages: Iterable[FailurePage]) -> list[IndexEntry]:
    """Return one entry for each page."""
    return [_entry(page) for page in pages]


def _entry(page: FailurePage) -> IndexEntry:
    return IndexEntry(
        uri=f"fsdp://failures/{page.id}",
        title=page.title,
        kind="failure",
        text=_text(page),
        page=page.id,
        url=page.pages[0].url,
        names=(page.id,),
        torch_version=page.torch,
    )


def _text(page: FailurePage) -> str:
    """Return the page for reading: what it is, how it shows, what to do."""
    shown = "; ".join(f"`{_plain(pattern)}`" for pattern in (*page.match, *page.requires)[:4])
    parts = [
        page.summary,
        f"Shows as: {shown}." if shown else "",
        f"Cause: {page.cause}",
        f"Fix: {page.fix}",
        f"Not to be confused: {page.tell_apart}" if page.tell_apart else "",
        f"Next evidence: {page.next_evidence}",
        f"Names: {', '.join(f'`{symbol}`' for symbol in page.symbols)}." if page.symbols else "",
        "Sources: " + ", ".join(f"[{reference.name}]({reference.url})" for reference in page.pages),
    ]
    return "\n\n".join(part for part in parts if part)


def _plain(pattern: str) -> str:
    """Return a pattern as the words that it holds, an ellipsis for what varies."""
    unescaped = re.sub(r"\\([^\w\s])", lambda match: match[1] if match[1] in ".:/-'" else " ", pattern)
    return re.sub(r"(\s*\.{3}\s*)+", " ... ", _PART.sub("...", unescaped)).strip()
