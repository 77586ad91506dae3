"""Keeps the list of collections: which folders the user added, which releases were fetched. Imports nothing heavy."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from fsdp_mcp.cache import CACHE_VARIABLE, is_writable, library_root
from fsdp_mcp.errors import BadArgument, EnvironmentProblem, UnknownName, did_you_mean
from fsdp_mcp.models import Value
from fsdp_mcp.releases import release_numbers

OFFICIAL_PREFIX = "official-"
MANIFEST = "manifest.json"
SUFFIXES = frozenset({".md", ".markdown", ".rst", ".rest"})
MOST_FILES = 2_000
MOST_BYTES = 1_000_000
"""Of one document; a longer one is data rather than text to read."""

_MOST_LOOKED_AT = 50_000  # names in a folder: beyond, it is no folder of documents
_SKIPPED_FOLDERS = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "build", "dist"})
_NAME = re.compile(r"[^\W_][\w.-]{0,39}\Z")
_RECHECK_SECONDS = 3.0  # Looking at a large folder takes milliseconds, which a search has not.


class Skipped(Value):
    """A document that is not indexed, and why."""

    path: str
    why: str


class UserCollection(Value):
    """A folder or file that the user added; its documents stay where they are and are read from there."""

    name: str
    origin: str = Field(description="Absolute path")
    added: str = Field(description="Day, YYYY-MM-DD")


class FetchedFile(Value):
    """One page as it was downloaded."""

    page: str = Field(description="Name below the documentation's address, without .html")
    path: str = Field(description="File below the release's folder")
    sha256: str
    bytes: int


class Release(Value):
    """The official pages of one release of torch, as far as they have been fetched."""

    torch_version: str = Field(description="X.Y.Z")
    origin: str = Field(description="Address or folder that they came from")
    fetched: str = Field(description="Day, YYYY-MM-DD")
    complete: bool = Field(description="Whether every page was tried")
    files: tuple[FetchedFile, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def name(self) -> str:
        """What `docs list` and `docs remove` call it."""
        return f"{OFFICIAL_PREFIX}{self.torch_version}"


class Found(NamedTuple):
    """A document in a user's folder."""

    path: str
    """Relative to the folder, with slashes."""
    size: int
    changed: int
    """Time of the last change in nanoseconds."""


class Folder(NamedTuple):
    """The documents of a user's folder, in the order of their paths, and what was left out."""

    documents: tuple[Found, ...]
    skipped: tuple[Skipped, ...]


Kind = Literal["official", "user"]
Record = TypeVar("Record", bound=Value)


# --- the list -----------------------------------------------------------------------------------------------------


def user_collections() -> list[UserCollection]:
    """Return the folders that the user added, by name; an entry of the list that is damaged is left out."""
    return [found for path in sorted(_user_dir().glob("*.json")) if (found := _read(path, UserCollection)) is not None]


def releases() -> list[Release]:
    """Return the releases whose pages were fetched, the oldest first."""
    paths = (library_root() / "official").glob(f"*/{MANIFEST}")
    found = [release for path in paths if (release := _read(path, Release)) is not None]
    return sorted(found, key=lambda release: version_key(release.torch_version))


def release_for(torch_version: str | None) -> Release | None:
    """Return the fetched release that serves this torch: its own, else one of the same X.Y, else the newest."""
    found = releases()
    wanted = torch_version or ""
    own = [release for release in found if release.torch_version == wanted]
    near = [release for release in found if release_numbers(release.torch_version) == release_numbers(wanted)]
    return next(iter([*own, *reversed(near), *reversed(found)]), None)


def release_dir(torch_version: str) -> Path:
    """Return the folder of the pages of a release."""
    return library_root() / "official" / torch_version


def version_key(version: str) -> tuple[int, ...]:
    """Return what versions are ordered by."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def put_collection(collection: UserCollection) -> None:
    """Write a collection into the list."""
    check_writable()
    write_whole(_user_dir() / f"{collection.name}.json", collection.model_dump_json(indent=1))


def put_release(release: Release) -> None:
    """Write the manifest of a release beside its pages."""
    write_whole(release_dir(release.torch_version) / MANIFEST, release.model_dump_json(indent=1))


def remove(name: str) -> Kind:
    """Take a collection off the list, with the fetched pages of a release; a user's own documents are not touched.

    Raises:
        UnknownName: there is no such collection; the message lists those there are.
    """
    found = {collection.name: collection.origin for collection in user_collections()}
    fetched = {release.name: release for release in releases()}
    if name in found:
        check_writable()
        (_user_dir() / f"{name}.json").unlink(missing_ok=True)
        return "user"
    if name in fetched:
        check_writable()
        folder = release_dir(fetched[name].torch_version)
        (folder / MANIFEST).unlink(missing_ok=True)
        for file in fetched[name].files:
            (folder / file.path).unlink(missing_ok=True)
        _remove_empty(folder)
        return "official"
    known = [*found, *fetched]
    shown = f"There are {', '.join(known)}." if known else "There are none; see `fsdp-mcp docs add --help`."
    raise UnknownName(f"No collection named {name!r}. {did_you_mean(name, known)}{shown}")


def _remove_empty(folder: Path) -> None:
    """Remove the folders that are left empty, the deepest first."""
    for path, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(path):  # noqa: PTH208, Path.iterdir leaves a handle open when only its first item is read
            Path(path).rmdir()


def checked_name(name: str) -> str:
    """Return a name that a collection may have.

    Raises:
        BadArgument: the name could not stand in a URI or a file name, or means an official release.
    """
    if not _NAME.match(name) or name.endswith("."):
        raise BadArgument(f"--name: got {name!r}, expected up to 40 letters, digits, dots, dashes or underscores.")
    if name.casefold().startswith(OFFICIAL_PREFIX):
        raise BadArgument(f"--name: {name!r} is a name of fetched pages. Take one without {OFFICIAL_PREFIX!r}.")
    return name


def check_writable() -> None:
    """Make sure that the library can be changed.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    if not is_writable(library_root()):
        raise EnvironmentProblem(f"{library_root()} cannot be written. Name another cache with {CACHE_VARIABLE}.")


def _user_dir() -> Path:
    return library_root() / "user"


def _read(path: Path, model: type[Record]) -> Record | None:
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one step: a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# --- the user's folders -------------------------------------------------------------------------------------------


def look_into(origin: Path) -> Folder:
    """Return the documents below `origin`, or `origin` itself when it is a file.

    Hidden folders and those of packages and builds are left out, links are not followed, and there are bounds on
    the number and the size of documents.
    """
    documents: list[Found] = []
    skipped: list[Skipped] = []
    if origin.is_file():
        state = origin.stat()
        return _bounded([Found(origin.name, state.st_size, state.st_mtime_ns)], [])
    for looked_at, entry in enumerate(_walk(origin)):
        if looked_at >= _MOST_LOOKED_AT:
            skipped.append(Skipped(path=".", why=f"only the first {_MOST_LOOKED_AT:,} files were looked at"))
            break
        if Path(entry.name).suffix.lower() in SUFFIXES:
            state = entry.stat(follow_symlinks=False)
            path = Path(entry.path).relative_to(origin).as_posix()
            documents.append(Found(path, state.st_size, state.st_mtime_ns))
    return _bounded(documents, skipped)


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the plain files below `folder` by name; a folder that cannot be read is passed over."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and entry.name not in _SKIPPED_FOLDERS:
                yield from _walk(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield entry


def _bounded(documents: list[Found], skipped: list[Skipped]) -> Folder:
    large = [found for found in documents if found.size > MOST_BYTES]
    kept = [found for found in documents if found.size <= MOST_BYTES]
    skipped += [Skipped(path=found.path, why=f"has more than {MOST_BYTES:,} bytes") for found in large]
    if len(kept) > MOST_FILES:
        more = f"and {len(kept) - MOST_FILES:,} more documents: add a smaller folder"
        skipped.append(Skipped(path=kept[MOST_FILES].path, why=more))
    return Folder(tuple(kept[:MOST_FILES]), tuple(skipped))


# --- the state that an index depends on ---------------------------------------------------------------------------

_KNOWN: dict[Path, tuple[float, str, str]] = {}


def fingerprint(torch_version: str | None) -> str:
    """Return what changes with any document that an index for this torch holds; empty for an empty library."""
    lists = [path for path in _lists() if path.is_file()]
    if not lists:
        return ""
    release = release_for(torch_version)
    digest = hashlib.sha256(_folders_state(lists).encode())
    digest.update((release.model_dump_json() if release else "").encode())
    return digest.hexdigest()[:12]


def _lists() -> list[Path]:
    root = library_root()
    return [*sorted((root / "user").glob("*.json")), *sorted((root / "official").glob(f"*/{MANIFEST}"))]


def _folders_state(lists: list[Path]) -> str:
    """Return a digest of the names, sizes and times of all documents, looked at anew after a few seconds."""
    written = "".join(f"{path.name}:{(state := path.stat()).st_mtime_ns}:{state.st_size};" for path in lists)
    looked_at, known, value = _KNOWN.get(library_root(), (0.0, "", ""))
    now = time.monotonic()
    if known != written or now - looked_at >= _RECHECK_SECONDS:
        folders = [(collection, look_into(Path(collection.origin))) for collection in user_collections()]
        value = hashlib.sha256(repr(folders).encode()).hexdigest()
        _KNOWN[library_root()] = (now, written, value)
    return value
