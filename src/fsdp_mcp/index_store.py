"""Keeps an index in a folder: written whole or not at all, checked when read, never pickled."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fsdp_mcp import call
from fsdp_mcp.docs.postings import Postings
from fsdp_mcp.docs.question import Family, Synonym
from fsdp_mcp.docs.search_index import Row, SearchIndex
from fsdp_mcp.models import IndexEntry, Value

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

META = "meta.json"
ENTRIES = "entries.json"
TERMS = "terms.json"
POSTINGS = "postings.bin"
CATALOGUE = "catalogue.json"
_KEPT_INDEXES = 5
_LOCK_POLL_SECONDS = 0.1


class FileCheck(Value):
    """Size and CRC-32 of a file, by which a truncated or damaged one is told."""

    bytes: int
    crc: int


class Meta(Value):
    """What an index is made of; written last."""

    byteorder: str
    torch_version: str | None
    missing: str
    entries: int
    lengths: tuple[int, int, int, int]
    """Items of the arrays in postings.bin: starts, documents, weights, idf."""
    glossary: tuple[Synonym, ...]
    families: tuple[Family, ...]
    files: dict[str, FileCheck]
    seconds: float
    """How long the build took."""


def write_search(
    folder: Path,
    entries: Sequence[IndexEntry],
    postings: Postings,
) -> tuple[int, int, int, int]:
    """Write entries and postings into `folder`; return the lengths of the four arrays."""
    rows = [Row(*(getattr(entry, field) for field in Row._fields)) for entry in entries]
    _write_json(folder / ENTRIES, rows)
    _write_json(folder / TERMS, postings.terms)
    with (folder / POSTINGS).open("wb") as file:
        for numbers in (postings.starts, postings.documents, postings.weights, postings.idf):
            numbers.tofile(file)
    return len(postings.starts), len(postings.documents), len(postings.weights), len(postings.idf)


def write_meta(
    folder: Path,
    *,
    lengths: tuple[int, int, int, int],
    entries: int,
    torch_version: str | None,
    missing: str,
    glossary: Sequence[Synonym],
    families: Sequence[Family],
    seconds: float,
) -> None:
    """Write the file that makes a folder an index, with a check of every other file in it."""
    files = {path.name: _check(path.read_bytes()) for path in sorted(folder.iterdir()) if path.is_file()}
    meta = Meta(
        byteorder=sys.byteorder,
        torch_version=torch_version,
        missing=missing,
        entries=entries,
        lengths=lengths,
        glossary=tuple(glossary),
        families=tuple(families),
        files=files,
        seconds=seconds,
    )
    (folder / META).write_text(meta.model_dump_json(), encoding="utf-8")


def read_search(folder: Path) -> SearchIndex | None:
    """Return the search index in `folder`, or None when there is none or a file is missing or damaged."""
    try:
        meta = Meta.model_validate_json((folder / META).read_bytes())
        contents = {name: (folder / name).read_bytes() for name in meta.files}
        if meta.byteorder != sys.byteorder or any(_check(contents[name]) != meta.files[name] for name in contents):
            return None
        rows = [Row(*row) for row in json.loads(contents[ENTRIES])]
        terms = tuple(json.loads(contents[TERMS]))
        postings = _unpack(contents[POSTINGS], terms=terms, lengths=meta.lengths)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return SearchIndex(
        rows=rows,
        postings=postings,
        synonyms=meta.glossary,
        families=meta.families,
        torch_version=meta.torch_version,
        missing=meta.missing,
    )


def _unpack(data: bytes, *, terms: tuple[str, ...], lengths: tuple[int, int, int, int]) -> Postings:
    arrays: list[array[int] | array[float]] = []
    start = 0
    for code, length in zip("IIff", lengths, strict=True):
        numbers: array[int] | array[float] = array(code)
        end = start + length * numbers.itemsize
        numbers.frombytes(data[start:end])
        arrays.append(numbers)
        start = end
    starts, documents, weights, idf = arrays
    return Postings(terms=terms, starts=starts, documents=documents, weights=weights, idf=idf)  # type: ignore[arg-type]


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def _check(data: bytes) -> FileCheck:
    return FileCheck(bytes=len(data), crc=zlib.crc32(data))


@contextmanager
def replaced_folder(final: Path) -> Iterator[Path]:
    """Give a fresh folder beside `final` to fill; at the end it takes the place of `final` in one step."""
    fresh = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        yield fresh
        _let_others_read(fresh)
        _swap(fresh, final)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _let_others_read(folder: Path) -> None:
    """Open to everybody what tempfile keeps private: an index built with an image is read by another user."""
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)


def _swap(fresh: Path, final: Path) -> None:
    old = fresh.with_name(f"{fresh.name}-old")
    with suppress(FileNotFoundError):
        final.rename(old)  # A reader that is in the middle of the old files sees them vanish and builds anew.
    fresh.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def lock_of(folder: Path) -> Path:
    """Return the lock file of an index folder."""
    return folder.with_name(f"{folder.name}.lock")


def log_of(folder: Path) -> Path:
    """Return the file that a child process which builds this index writes its messages to."""
    return folder.with_name(f"{folder.name}.log")


def output_of(folder: Path) -> Path:
    """Return the file that such a child prints the folder to."""
    return folder.with_name(f"{folder.name}.out")


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path` against other processes; waiting for it can be cancelled.

    Where the file system has no locks, nobody waits: an index is then built twice, and the later one stays.
    """
    with path.open("a+b") as file:
        while not _try_lock(file.fileno()):
            call.report(0, None, "Waiting for another process that builds the index")
            time.sleep(_LOCK_POLL_SECONDS)
        yield


def _try_lock(descriptor: int) -> bool:
    """Take the lock if it is free; closing the file gives it back, also when the process dies."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def remove_old_indexes(root: Path, *, keep: Path, superseded: Sequence[Path] = ()) -> None:
    """Keep the index `keep` and the few that were built last, but none of those that it took the place of."""
    with suppress(OSError):
        built = [path.parent for path in root.glob(f"*/{META}")]
        others = sorted((path for path in built if path != keep), key=lambda path: path.stat().st_mtime, reverse=True)
        current = [path for path in others if path not in superseded]
        for folder in [*superseded, *current[_KEPT_INDEXES - 1 :]]:
            shutil.rmtree(folder, ignore_errors=True)
            for beside in (lock_of(folder), log_of(folder), output_of(folder)):
                beside.unlink(missing_ok=True)
