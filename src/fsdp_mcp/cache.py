"""Says where the cache lies, and clears it: indexes, fetched official pages, the list of the user's collections."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

CACHE_VARIABLE = "FSDP_MCP_CACHE_DIR"
LIBRARY_VARIABLE = "FSDP_MCP_LIBRARY_DIR"
"""Set for the child process that builds an index, whose cache may be another than the one with the library."""


def cache_root() -> Path:
    """Return the folder that indexes are kept in: FSDP_MCP_CACHE_DIR, else the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else user_cache_path("fsdp-mcp", appauthor=False)


def library_root() -> Path:
    """Return the folder of the fetched pages and the list of collections."""
    named = os.environ.get(LIBRARY_VARIABLE)
    return Path(named) if named else cache_root() / "library"


def clear_indexes() -> None:
    """Remove all in the cache that is built again by itself: everything but the library."""
    root = cache_root()
    kept = library_root()
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        if path == kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def clear_all() -> None:
    """Remove the cache with the fetched pages and the list of collections; the user's own documents are elsewhere."""
    shutil.rmtree(cache_root(), ignore_errors=True)


def is_writable(folder: Path) -> bool:
    """Return whether files can be made in `folder`, which is made when it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
