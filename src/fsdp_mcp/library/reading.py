"""Reads the documents of the library into index entries; what is broken is reported and left out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsdp_mcp.library import shelf
from fsdp_mcp.library.fetch import verified
from fsdp_mcp.library.links import ApiLinks, uris_of
from fsdp_mcp.library.pages import (
    BrokenDocument,
    Part,
    decode,
    official_entries,
    read_parts,
    references_of,
    user_entries,
)
from fsdp_mcp.library.shelf import Release, Skipped, UserCollection
from fsdp_mcp.models import IndexEntry

_log = logging.getLogger(__name__)
_MOST_SECTIONS = 20_000
_LONGEST_URI = 400  # read_doc takes 500 characters, and the anchor has some


@dataclass(frozen=True)
class Reading:
    """What a collection holds.

    Args:
        entries: one for each section, page by page.
        pages: how many pages they come from.
        skipped: documents that are left out.
    """

    entries: tuple[IndexEntry, ...]
    pages: int
    skipped: tuple[Skipped, ...]


def library_entries(torch_version: str | None, *, api: Iterable[IndexEntry]) -> Iterator[IndexEntry]:
    """Yield the entries of all that the library has for this torch; names of APIs become links to `api`.

    A document that cannot be read is logged and left out.
    """
    uris = uris_of(api)
    release = shelf.release_for(torch_version)
    if release is not None:
        reading = read_release(release, uris=uris)
        _log_skipped(release.name, reading.skipped[len(release.skipped) :])
        yield from reading.entries
    for collection in shelf.user_collections():
        reading = read_collection(collection, uris=uris)
        _log_skipped(collection.name, reading.skipped)
        yield from reading.entries


def _log_skipped(name: str, skipped: Iterable[Skipped]) -> None:
    for one in skipped:
        _log.warning("%s: left out %s, which %s", name, one.path, one.why)


def read_release(release: Release, *, uris: Mapping[str, str]) -> Reading:
    """Return the sections of the official pages of a release, each page checked by its checksum.

    What the fetch skipped comes first in the list of what is left out.
    """
    skipped = list(release.skipped)
    pages: dict[str, tuple[str, list[Part]]] = {}
    for file in release.files:
        try:
            text = decode(verified(release, file))
            pages[file.page] = text, _parts(text, path=file.path, links=ApiLinks(uris))
        except BrokenDocument as error:
            skipped.append(Skipped(path=file.path, why=str(error)))
    references = references_of(pages)
    entries: list[IndexEntry] = []
    for file in release.files:
        if file.page in pages:  # Read again, now that it is known where references to other pages lead.
            links = ApiLinks(uris, references=references, page=file.page)
            parts = _parts(pages[file.page][0], path=file.path, links=links)
            entries.extend(official_entries(parts, page=file.page, torch_version=release.torch_version))
    return Reading(tuple(entries), _pages(entries), tuple(skipped))


def read_collection(collection: UserCollection, *, uris: Mapping[str, str]) -> Reading:
    """Return the sections of the documents that the user added, as they are now."""
    origin = Path(collection.origin)
    if not origin.exists():
        return Reading((), 0, (Skipped(path=collection.origin, why="is not there any more"),))
    folder = shelf.look_into(origin)
    entries: list[IndexEntry] = []
    skipped = list(folder.skipped)
    for document in folder.documents:
        if len(entries) >= _MOST_SECTIONS:
            skipped.append(Skipped(path=document.path, why=f"and later ones: {_MOST_SECTIONS:,} sections are enough"))
            break
        try:
            found = _document_entries(collection, origin, document.path, uris=uris)
        except BrokenDocument as error:
            skipped.append(Skipped(path=document.path, why=str(error)))
            continue
        entries.extend(found)
    return Reading(tuple(entries), _pages(entries), tuple(skipped))


def _document_entries(
    collection: UserCollection, origin: Path, path: str, *, uris: Mapping[str, str]
) -> list[IndexEntry]:
    try:
        data = (origin if origin.is_file() else origin / path).read_bytes()
    except OSError as error:
        raise BrokenDocument(f"cannot be read ({error.strerror})") from None
    found = user_entries(_parts(decode(data), path=path, links=ApiLinks(uris)), collection=collection.name, path=path)
    if not found:
        raise BrokenDocument("is empty")
    if len(found[0].uri) > _LONGEST_URI:
        raise BrokenDocument(f"has a path of more than {_LONGEST_URI} characters")
    return found


def _parts(text: str, *, path: str, links: ApiLinks) -> list[Part]:
    """Parse a page; one that the parser cannot take is broken, whatever it trips over."""
    try:
        return read_parts(text, path=path, links=links)
    except BrokenDocument:
        raise
    except Exception as error:
        raise BrokenDocument(f"cannot be parsed ({type(error).__name__}: {error})") from error


def _pages(entries: Iterable[IndexEntry]) -> int:
    return len({entry.page for entry in entries})
