"""Opens the index of a torch: from the cache, or after a child process has built it. Imports nothing heavy."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fsdp_mcp import call
from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.cache import CACHE_VARIABLE, LIBRARY_VARIABLE, cache_root, is_writable, library_root
from fsdp_mcp.corpus import corpus_dir
from fsdp_mcp.docs.search_index import SearchIndex
from fsdp_mcp.errors import EnvironmentProblem
from fsdp_mcp.index_store import CATALOGUE, exclusive, lock_of, log_of, output_of, read_search, remove_old_indexes
from fsdp_mcp.library.shelf import fingerprint
from fsdp_mcp.target import Target, find_target

SCHEMA = 1
"""Raised when the files of an index change their form."""

_POLL_SECONDS = 0.05
_REPORT_SECONDS = 1.0
_BUILD_SECONDS = 300  # A build takes about ten; a child that hangs must not hold calls for ever.

Report = Callable[[float, float | None, str], None]


@dataclass(frozen=True)
class OpenIndex:
    """An index that has been read.

    Args:
        folder: where it lies.
        search: sections and entries for search_docs and read_doc.
        catalogue: the symbols for lookup_api; empty without torch.
    """

    folder: Path
    search: SearchIndex
    catalogue: Catalogue


def index_key(target: Target) -> str:
    """Return the folder name of the index of `target`: it changes with its torch, our corpus, our code, the library."""
    library = fingerprint(target.torch_version)
    return f"{_key_without_library(target)}{f'-{library}' if library else ''}"


def _key_without_library(target: Target) -> str:
    torch = f"{target.torch_version}-{target.git_version}-{_installed_at(target.torch_dir)}"
    digest = hashlib.sha256(f"{SCHEMA}:{torch}:{_corpus_fingerprint()}".encode()).hexdigest()[:16]
    return f"torch-{target.torch_version or 'none'}-{digest}"


def open_index(target: Target | None = None) -> OpenIndex:
    """Return the index of `target` (the found one by default), built first when there is none.

    A build runs in a child process; the caller is told how long it takes, about once a second, and may cancel.

    Raises:
        EnvironmentProblem: the index could not be built; the message has the last line of the child.
        Cancelled: the caller went away while waiting.
    """
    target = target or find_target()
    key = index_key(target)
    opened = _open_existing(key, [root / key for root in (cache_root(), *_temporary_root_if_made())])
    if opened is None:
        build = _start_build(key, target)
        _wait(build.child, target)
        # The child names its folder: it has another key when our package was replaced since this process began.
        opened = _open_existing(key, build.folders())
        if opened is None:
            raise EnvironmentProblem(build.failure())
    return opened


def build_index(target: Target | None = None, *, force: bool = False, report: Report | None = None) -> Path:
    """Build the index of `target` in this process unless it is there, and return its folder.

    Two processes at once build once: the second waits and finds it done. `force` builds it anew.

    Raises:
        EnvironmentProblem: the cache folder cannot be written.
    """
    from fsdp_mcp.index_build import build

    target = target or find_target()
    root = cache_root()
    if not is_writable(root):
        raise EnvironmentProblem(f"The cache folder {root} cannot be written. Name another with {CACHE_VARIABLE}.")
    folder = root / index_key(target)
    with exclusive(lock_of(folder)):
        if force or read_search(folder) is None:
            others = [] if force else _of_another_library(folder, _key_without_library(target))
            build(folder, target, earlier=others, report=report or call.report)
            remove_old_indexes(root, keep=folder, superseded=others)
    return folder


def _of_another_library(folder: Path, key: str) -> list[Path]:
    """Return the indexes beside `folder` that differ from it by nothing but the documents of the library."""
    return [
        path for path in [folder.with_name(key), *folder.parent.glob(f"{key}-*")] if path.is_dir() and path != folder
    ]


# --- reading ----------------------------------------------------------------------------------------------------

_OPENED: dict[str, OpenIndex] = {}
_OPENING = threading.Lock()


def _open_existing(key: str, folders: Iterable[Path]) -> OpenIndex | None:
    """Return the index of that key from this process, else the first whole one in `folders`, or None."""
    with _OPENING:
        for folder in folders:
            if key in _OPENED:
                break
            search = read_search(folder)
            catalogue = Catalogue.load(folder / CATALOGUE) if search is not None else None
            if search is not None and catalogue is not None:
                _forget_other_libraries(key)
                _OPENED[key] = OpenIndex(folder, search, catalogue)
        return _OPENED.get(key)


def _forget_other_libraries(key: str) -> None:
    """Drop the indexes of the same torch with earlier documents of the library: each takes tens of megabytes."""
    stem = "-".join(key.split("-")[:3])
    for other in [other for other in _OPENED if "-".join(other.split("-")[:3]) == stem]:
        del _OPENED[other]


def _installed_at(torch_dir: Path | None) -> int:
    """Return the whole second at which the torch package was installed, 0 without torch."""
    if torch_dir is None:
        return 0
    records = [*torch_dir.parent.glob("torch-*.dist-info/RECORD"), torch_dir / "version.py"]
    return max((int(path.stat().st_mtime) for path in records if path.is_file()), default=0)


@lru_cache(maxsize=1)
def _corpus_fingerprint() -> str:
    """Return a digest of the guides, of the tables and of the code that reads them."""
    digest = hashlib.sha256()
    for path in _ingredients():
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _ingredients() -> Iterator[Path]:
    package = Path(__file__).parent
    yield from sorted((corpus_dir() / "guides").glob("*.md"))
    yield from sorted((corpus_dir() / "failures").glob("*.md"))
    yield from sorted((corpus_dir() / "facts").glob("*.yaml"))
    yield from sorted((corpus_dir() / "api_history").glob("*.jsonl"))
    for folder in ("docs", "api", "library"):
        yield from sorted((package / folder).glob("*.py"))
    yield from (package / "sections.py", package / "index_build.py", package / "index_store.py")


# --- building in a child ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _temporary_root() -> Path:
    """Return a folder for this process alone, used when the cache cannot be written."""
    root = Path(tempfile.mkdtemp(prefix="fsdp-mcp-index-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def _temporary_root_if_made() -> list[Path]:
    return [_temporary_root()] if _temporary_root.cache_info().currsize else []


@dataclass(frozen=True)
class _Build:
    """A child process that builds, the file with what it prints, and the file with what it logs."""

    child: subprocess.Popen[bytes]
    output: Path
    log: Path

    def folders(self) -> list[Path]:
        """Return the folder that the child built, as it printed it."""
        line = _last_line(self.output)
        return [Path(line)] if line else []

    def failure(self) -> str:
        """Say why the build left no index."""
        why = _last_line(self.log)[:300] or "it said nothing"
        return f"The index could not be built: {why}. Try `fsdp-mcp index --force`."


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


_BUILDS: dict[str, _Build] = {}
_STARTING = threading.Lock()


def _start_build(key: str, target: Target) -> _Build:
    """Return the child that builds `key`; it is started unless one runs."""
    with _STARTING:
        running = _BUILDS.get(key)
        if running is None or running.child.poll() is not None:
            running = _BUILDS[key] = _spawn(key, target)
        return running


def _spawn(key: str, target: Target) -> _Build:
    root = cache_root() if is_writable(cache_root()) else _temporary_root()
    output, log = output_of(root / key), log_of(root / key)
    with output.open("wb") as printed, log.open("wb") as logged:
        child = subprocess.Popen(
            [sys.executable, "-m", "fsdp_mcp", "index", "--python", str(target.python)],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=logged,
            env={
                **os.environ,
                CACHE_VARIABLE: str(root),
                LIBRARY_VARIABLE: str(library_root()),
                "PYTHONIOENCODING": "utf-8",
            },
            start_new_session=True,
        )
    atexit.register(_end, child)
    return _Build(child, output, log)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
        child.wait()


def _wait(child: subprocess.Popen[bytes], target: Target) -> None:
    """Wait for a build, telling the caller every second; a cancelled caller leaves, the build goes on."""
    started = told = time.monotonic()
    while child.poll() is None:
        now = time.monotonic()
        if now - started > _BUILD_SECONDS:
            _end(child)
        if now - told >= _REPORT_SECONDS:
            told = now
            seconds = round(now - started)
            call.report(seconds, None, f"Indexing torch {target.torch_version or '(none)'}, once: {seconds} s so far")
        call.check_cancelled()
        time.sleep(_POLL_SECONDS)
