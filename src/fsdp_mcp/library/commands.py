"""The four verbs of `fsdp-mcp docs`: fetch, add, list, remove; each returns what the command prints."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

from pydantic import Field

from fsdp_mcp.errors import BadArgument
from fsdp_mcp.library import shelf
from fsdp_mcp.library.fetch import fetch, release_of, source_of
from fsdp_mcp.library.reading import Reading, read_collection, read_release
from fsdp_mcp.library.shelf import Kind, Release, Skipped, UserCollection
from fsdp_mcp.models import Result, Value
from fsdp_mcp.phrases import count

_SHOWN_SKIPPED = 10

Report = Callable[[float, float | None, str], None]


class CollectionSummary(Value):
    """One line of `docs list`."""

    name: str
    kind: Kind
    pages: int
    sections: int
    origin: str = Field(description="Folder, file or address")
    date: str = Field(description="Day on which it was added or fetched, YYYY-MM-DD")
    skipped: tuple[Skipped, ...] = Field(description="Documents that are left out, and why")


class LibraryReport(Result):
    """What the library holds, or what one command did to it."""

    did: str = Field(description="What was done; empty for a list")
    collections: tuple[CollectionSummary, ...]

    def render(self) -> str:
        """Return a line for each collection, then what was left out of it."""
        lines = [self.did] if self.did else []
        if not self.did and not self.collections:
            lines.append("No collections. `fsdp-mcp docs fetch` gets the official pages, `docs add` takes your own.")
        for collection in self.collections:
            lines.append(_line(collection))
            lines += _skipped_lines(collection.skipped)
        return "\n".join(lines)


def _line(found: CollectionSummary) -> str:
    counted = f"{count(found.pages, 'page')}, {count(found.sections, 'section')}"
    return f"{found.name}  {found.kind}  {counted}  {found.date}  {found.origin}"


def _skipped_lines(skipped: tuple[Skipped, ...]) -> list[str]:
    lines = [f"  skipped: {one.path} {one.why}" for one in skipped[:_SHOWN_SKIPPED]]
    more = len(skipped) - _SHOWN_SKIPPED
    return [*lines, f"  skipped: {more} more (--json lists all)"] if more > 0 else lines


def add_documents(path: str, *, name: str) -> LibraryReport:
    """Put the folder or file `path` on the list under `name`; adding the same path again only counts anew.

    Raises:
        BadArgument: the path is not there, holds no document, or the name is taken or cannot be one.
        EnvironmentProblem: the library cannot be written.
    """
    name = shelf.checked_name(name)
    origin = Path(path).expanduser().resolve()
    if not origin.exists():
        raise BadArgument(f"{path}: is not there. Give a folder or file of Markdown or reStructuredText.")
    if origin.is_file() and origin.suffix.lower() not in shelf.SUFFIXES:
        raise BadArgument(f"{path}: expected a file that ends in {', '.join(sorted(shelf.SUFFIXES))}.")
    _check_free(name, origin)
    collection = UserCollection(name=name, origin=str(origin), added=date.today().isoformat())
    reading = read_collection(collection, uris={})
    if not reading.entries:
        why = "; ".join(f"{one.path} {one.why}" for one in reading.skipped[:3]) or "there is none"
        endings = ", ".join(sorted(shelf.SUFFIXES))
        raise BadArgument(f"{path}: holds no document ({endings}) that can be indexed: {why}.")
    shelf.put_collection(collection)
    return LibraryReport(did=f"Added {name}.", collections=(_user_summary(collection, reading),))


def _check_free(name: str, origin: Path) -> None:
    for other in shelf.user_collections():
        if other.name.casefold() == name.casefold() and (other.origin != str(origin) or other.name != name):
            raise BadArgument(
                f"--name: {other.name!r} is the collection of {other.origin}. "
                f"Take another name, or first `fsdp-mcp docs remove {other.name}`."
            )


def fetch_official(*, version: str, source: str | None, report: Report) -> LibraryReport:
    """Download the official pages of the release that `version` names, from `source` or from GitHub.

    Raises:
        BadArgument: the version or the source cannot be one.
        UnknownName: the source has no page of that release.
        EnvironmentProblem: the source cannot be reached, or the library cannot be written.
    """
    torch_version = release_of(version)
    release = fetch(source_of(source, torch_version=torch_version), torch_version=torch_version, report=report)
    reading = read_release(release, uris={})
    return LibraryReport(did=f"Fetched {release.name}.", collections=(_official_summary(release, reading),))


def list_collections() -> LibraryReport:
    """Return every collection, its documents counted as they are now."""
    official = [_official_summary(release, read_release(release, uris={})) for release in shelf.releases()]
    own = [_user_summary(collection, read_collection(collection, uris={})) for collection in shelf.user_collections()]
    return LibraryReport(did="", collections=(*official, *own))


def remove_collection(name: str) -> LibraryReport:
    """Take a collection out of the search.

    Raises:
        UnknownName: there is none of that name.
    """
    kind = shelf.remove(name)
    left = "the documents themselves stay where they are" if kind == "user" else "its pages are deleted"
    return LibraryReport(did=f"Removed {name}; {left}.", collections=())


def _user_summary(collection: UserCollection, reading: Reading) -> CollectionSummary:
    return CollectionSummary(
        name=collection.name,
        kind="user",
        pages=reading.pages,
        sections=len(reading.entries),
        origin=collection.origin,
        date=collection.added,
        skipped=reading.skipped,
    )


def _official_summary(release: Release, reading: Reading) -> CollectionSummary:
    unfinished = () if release.complete else (Skipped(path="the rest", why="has not arrived; run docs fetch again"),)
    return CollectionSummary(
        name=release.name,
        kind="official",
        pages=reading.pages,
        sections=len(reading.entries),
        origin=release.origin,
        date=release.fetched,
        skipped=(*reading.skipped, *unfinished),
    )
