"""Says where the cache lies: the indexes, the fetched official pages and the list of the user's collections."""

from __future__ import annotations

import os
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


def is_writable(folder: Path) -> bool:
    """Return whether files can be made in `folder`, which is made when it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
