"""read_doc: one guide, section or API entry in full, in pieces that fit."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fsdp_mcp.docs.search_index import SearchIndex
from fsdp_mcp.errors import BadArgument, UnknownName, closest
from fsdp_mcp.models import LIBRARY_KINDS, IndexEntry, Result
from fsdp_mcp.tokens import fit

_SCHEME = "fsdp://"
_LIBRARY = (f"{_SCHEME}official/", f"{_SCHEME}user/")
_FAILURES = f"{_SCHEME}failures/"
_FOOTER_TOKENS = 60


class Document(Result):
    """The text of a page, section or API entry, or the part of it that was asked for."""

    uri: str
    title: str
    url: str | None = Field(description="Official page")
    text: str
    next_offset: int | None = Field(description="Where the text goes on, in characters; null at the end")

    def render(self) -> str:
        """Return the text, the official page, and the call that reads on."""
        lines = [self.text.rstrip()]
        if self.url and self.url not in self.text:
            lines.append(f"Official page: {self.url}")
        if self.next_offset is not None:
            lines.append(f"Goes on: read_doc(uri={self.uri!r}, offset={self.next_offset})")
        return "\n\n".join(lines)


def read_doc(
    uri: Annotated[str, Field(description="A hit's uri, a guide's name or an API name", max_length=500)],
    *,
    max_tokens: Annotated[int, Field(description="Size of the reply", ge=100, le=10_000)] = 2000,
    offset: Annotated[int, Field(description="next_offset of the reply before", ge=0)] = 0,
    index: SearchIndex,
) -> Document:
    """Read a guide, a section (`fsdp://guides/fsdp2#mixed-precision`) or an API's docstring in full.

    Use it on a hit of search_docs. A guide without `#section` gives the whole page. What does not fit into
    max_tokens is read with offset=next_offset.
    """
    wanted, entries = _find(uri.strip(), index)
    text = "\n\n".join(_full_text(entry) for entry in entries)
    if offset > len(text):
        raise BadArgument(f"offset: got {offset}, but {wanted} has {len(text)} characters. Start at 0.")
    end = offset + fit(text[offset:], max_tokens=max_tokens - _FOOTER_TOKENS)
    return Document(
        uri=wanted,
        title=entries[0].title,
        url=entries[0].url or None,
        text=text[offset:end],
        next_offset=end if end < len(text) else None,
    )


def _find(wanted: str, index: SearchIndex) -> tuple[str, list[IndexEntry]]:
    """Return the canonical URI and the entries that make up the document."""
    uri = wanted if wanted.startswith(_SCHEME) else f"{_SCHEME}guides/{wanted}"
    if "#" in uri and (section := index.section(uri)):
        return uri, [section]
    if "#" not in uri and (page := index.page(uri)):
        return uri, page
    name = wanted.removeprefix(_SCHEME).partition("/")[2] if wanted.startswith(_SCHEME) else wanted
    bare, _, fragment = name.partition("#")
    if numbers := index.named(bare):
        return _named(index.entry(numbers[0]), fragment, wanted, index)
    raise UnknownName(_unknown(wanted, name, index))


def _named(entry: IndexEntry, fragment: str, wanted: str, index: SearchIndex) -> tuple[str, list[IndexEntry]]:
    """Return the document of an API that was given by name, or its part `fragment`."""
    if not fragment:
        return entry.uri, index.page(entry.uri)
    part = f"{entry.uri}#{fragment}"
    if section := index.section(part):
        return part, [section]
    known = [other.uri for other in index.page(entry.uri)]
    raise UnknownName(f"{wanted!r} has no part {fragment!r}. Parts: {', '.join(known[:8])}.")


def _unknown(wanted: str, name: str, index: SearchIndex) -> str:
    if "#" in wanted and (page := index.page(f"{_SCHEME}guides/{name.partition('#')[0]}")):
        slugs = [entry.uri for entry in page]
        near = closest(f"{_SCHEME}guides/{name}", slugs) or slugs[:5]
        return f"No section {wanted!r}. Closest: {', '.join(near)}."
    if wanted.startswith(_LIBRARY):
        return _unknown_in_library(wanted, index)
    stems = [guide.stem for guide in index.guides()]
    near = [f"{_SCHEME}guides/{stem}" for stem in closest(name, stems)]
    if wanted.startswith(_FAILURES):
        near += closest(wanted, [row.uri for row in index.rows if row.uri.startswith(_FAILURES)])
    near += [index.entry(index.by_name[found][0]).uri for found in index.spelling.closest(name, count=3, alike=0.6)]
    shown = f"Closest: {', '.join(dict.fromkeys(near))}. " if near else ""
    return f"No document {wanted!r}. {shown}Find it with search_docs."


def _unknown_in_library(wanted: str, index: SearchIndex) -> str:
    """Say which fetched or added pages come close, or how to get some."""
    pages = [row.uri for row in index.rows if row.kind in LIBRARY_KINDS]
    near = closest(wanted, pages) or closest(wanted.partition("#")[0], pages)
    get = "`fsdp-mcp docs list` on the command line tells what was fetched and added."
    return f"No document {wanted!r}. " + (f"Closest: {', '.join(near)}." if near else get)


def _full_text(entry: IndexEntry) -> str:
    """Return the text with a heading, so that each part of a longer document can be told."""
    return entry.text if entry.text.startswith("#") else f"## {entry.title}\n\n{entry.text}"
