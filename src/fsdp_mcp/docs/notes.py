"""Adds to an entry what its docstring lacks: a sentence in the words people use, and further words to find it by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from pydantic import Field

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import IndexEntry, Value

_GUIDES = "fsdp://guides/"


class ApiNote(Value):
    """A row of api_notes: what a symbol, parameter or variable is for, said as its users say it."""

    name: str = Field(description="Title of the entry: `torch.x.y`, `torch.x.y, parameter z`, a variable")
    note: str = Field(description="One or two sentences in own words, shown with the entry")
    words: str = Field(default="", description="Further words of users, in English and Chinese; found, not shown")
    source: str = Field(description="Official page or source file")


class SearchWords(Value):
    """A row of search_words: what an entry is about in the words of those who ask; found, not shown."""

    name: str = Field(description="Title of the entry, or `guide#section` without `fsdp://guides/`")
    words: str = Field(description="Words in English and Chinese")


@lru_cache(maxsize=1)
def _notes() -> dict[str, ApiNote]:
    return {row.name: row for row in load_facts("api_notes", ApiNote)}


@lru_cache(maxsize=1)
def _words() -> dict[str, str]:
    return {row.name: row.words for row in load_facts("search_words", SearchWords)}


def with_notes(entries: Iterable[IndexEntry]) -> Iterator[IndexEntry]:
    """Yield the entries; the text of one that has a note says it after the signature."""
    for entry in entries:
        row = _notes().get(entry.title)
        yield replace(entry, text=_placed(row.note, entry.text)) if row else entry


def further_words(entry: IndexEntry) -> str:
    """Return the words by which `entry` is found beside those of its text."""
    row = _notes().get(entry.title)
    name = entry.uri.removeprefix(_GUIDES) if entry.kind == "guide" else entry.title
    return " ".join(filter(None, [row.words if row else "", _words().get(name, "")]))


def _placed(note: str, text: str) -> str:
    """Put a note after the signature with which a text begins, or before a text without one."""
    if not text.startswith("`"):
        return f"{note}\n\n{text}"
    end = text.find("\n```", 3) + 4 if text.startswith("```") else text.find("\n")
    return f"{text}\n\n{note}" if end < 4 else f"{text[:end]}\n\n{note}{text[end:]}"
