"""Fetches the official pages of a release into the library: resumes, checks, skips what is broken."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

from fsdp_mcp import call
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.errors import BadArgument, UnknownName
from fsdp_mcp.library import shelf
from fsdp_mcp.library.download import FolderSource, Source, WebSource
from fsdp_mcp.library.pages import BrokenDocument, decode
from fsdp_mcp.library.shelf import MOST_BYTES, FetchedFile, Release, Skipped
from fsdp_mcp.models import Value

_SOURCES = "https://raw.githubusercontent.com/pytorch/pytorch/v{torch_version}/docs/source"
_RELEASE = re.compile(r"v?(\d{1,3}\.\d{1,3})(\.\d{1,3})?(?:[.+a-z][\w.+]*)?\Z")
_SUFFIXES = (".md", ".rst")
_RENDERED_SUFFIXES = (".md.txt", ".rst.txt")
"""What Sphinx adds to the sources that it publishes beside the pages, in `_sources`."""

_HTML = re.compile(rb"\s*<(?:!doctype|html)", re.IGNORECASE)

Report = Callable[[float, float | None, str], None]


class OfficialPageRow(Value):
    """One row of `facts/official_pages.yaml`."""

    page: str
    source: str


def release_of(version: str) -> str:
    """Return the release X.Y.Z that a version of torch names; builds between releases belong to theirs.

    Raises:
        BadArgument: it is no version.
    """
    match = _RELEASE.match(version.strip())
    if match is None:
        raise BadArgument(f"--torch: got {version!r}, expected a release such as 2.6 or 2.6.0.")
    return f"{match[1]}{match[2] or '.0'}"


def source_of(named: str | None, *, torch_version: str) -> Source:
    """Return the source that `--from` names: an address or a folder; the release's tag on GitHub by default.

    Raises:
        BadArgument: it is neither.
    """
    if named is None:
        return WebSource(_SOURCES.format(torch_version=torch_version))
    if re.match(r"https?://[^/\s]", named):
        return WebSource(named)
    folder = Path(named).expanduser()
    if "://" in named or not folder.is_dir():
        raise BadArgument(f"--from: got {named!r}, expected an http(s) address or an existing folder.")
    return FolderSource(folder)


def fetch(source: Source, *, torch_version: str, report: Report) -> Release:
    """Download the official pages of a release that are not in the library yet, and return what there is now.

    Pages that arrived whole before, from the same source, are kept; the manifest is written after each page, so that an
    interrupted fetch goes on where it stopped. A page that the release lacks or that is broken is skipped.

    Raises:
        EnvironmentProblem: the source cannot be reached, or the library cannot be written.
        UnknownName: the source has none of the pages.
    """
    shelf.check_writable()
    pages = [row.page for row in load_facts("official_pages", OfficialPageRow)]
    release = _start(source, torch_version=torch_version)
    kept = {file.page: file for file in release.files if _arrived(release, file)}
    skipped: list[Skipped] = []
    suffixes = _suffixes(source)
    for number, page in enumerate(pages):
        report(number, len(pages), page)
        if page in kept:
            continue
        found = _fetch_page(source, page, suffixes)
        if isinstance(found, Skipped):
            skipped.append(found)
            continue
        suffix, data = found
        suffixes.sort(key=suffix.__ne__)  # A release has nearly all its pages in one language: ask for that first.
        kept[page] = _keep(data, page=page, suffix=suffix, torch_version=torch_version)
        shelf.put_release(release.model_copy(update={"files": tuple(kept.values()), "complete": False}))
    if not kept:
        raise UnknownName(f"{source.origin} has no page of torch {torch_version}. Give a release, such as --torch 2.6.")
    in_order = tuple(kept[page] for page in pages if page in kept)
    release = release.model_copy(update={"files": in_order, "skipped": tuple(skipped), "complete": True})
    shelf.put_release(release)
    report(len(pages), len(pages), "done")
    return release


def _start(source: Source, *, torch_version: str) -> Release:
    """Return what an earlier fetch from the same source left, else a release without pages."""
    known = [release for release in shelf.releases() if release.torch_version == torch_version]
    if known and known[0].origin == source.origin:
        return known[0]
    today = date.today().isoformat()
    return Release(torch_version=torch_version, origin=source.origin, fetched=today, complete=False)


def _suffixes(source: Source) -> list[str]:
    return list(_RENDERED_SUFFIXES if source.origin.endswith("/_sources") else _SUFFIXES)


def _fetch_page(source: Source, page: str, suffixes: list[str]) -> tuple[str, bytes] | Skipped:
    """Return the ending and the content of a page, or why there is none."""
    for suffix in suffixes:
        call.check_cancelled()
        data = source.read(f"{page}{suffix}")
        if data is None:
            continue
        why = _broken(data)
        if why:
            return Skipped(path=f"{page}{suffix}", why=why)
        return suffix, data
    return Skipped(path=page, why="not among the pages of this release (404)")


def _broken(data: bytes) -> str:
    """Return why these bytes are no page; empty when they are one."""
    if len(data) > MOST_BYTES:
        return f"has more than {MOST_BYTES:,} bytes"
    if _HTML.match(data):
        return "is a web page instead of its source: a proxy or a login may stand in between"
    try:
        return "" if decode(data).strip() else "is empty"
    except BrokenDocument as error:
        return str(error)


def _keep(data: bytes, *, page: str, suffix: str, torch_version: str) -> FetchedFile:
    path = f"{page}{suffix.removesuffix('.txt')}"
    shelf.write_whole(shelf.release_dir(torch_version) / path, data)
    return FetchedFile(page=page, path=path, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def _arrived(release: Release, file: FetchedFile) -> bool:
    """Return whether the file is there as it was downloaded."""
    try:
        verified(release, file)
    except BrokenDocument:
        return False
    return True


def verified(release: Release, file: FetchedFile) -> bytes:
    """Return the content of a fetched page.

    Raises:
        BrokenDocument: it is missing, or its checksum is another than when it was downloaded.
    """
    try:
        data = (shelf.release_dir(release.torch_version) / file.path).read_bytes()
    except OSError as error:
        raise BrokenDocument(f"cannot be read ({error.strerror}); run docs fetch again") from None
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise BrokenDocument("is damaged: its checksum differs; run docs fetch again")
    return data
