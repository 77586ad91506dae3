"""Keeps count of what the CUDA mapping changed and at which line of the user's."""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_KINDS = 200
"""A script that maps more different things than this has been understood by then."""


class Record:
    """What was mapped or has no meaning on the CPU, written to a file on each new kind and at the end."""

    def __init__(self, path: Path, is_users: Callable[[str], bool]) -> None:
        self._path = path
        self._is_users = is_users
        self._counts: dict[tuple[str, str, str | None, int | None], int] = {}
        self._lock = threading.Lock()
        atexit.register(self._write)

    def mapped(self, what: str) -> None:
        """Note something that now happens on the CPU."""
        self._note("mapped", what)

    def unsupported(self, what: str) -> None:
        """Note something that has no meaning on the CPU."""
        self._note("unsupported", what)

    def _note(self, kind: str, what: str) -> None:
        key = (kind, what, *self._users_line())
        with self._lock:
            new = key not in self._counts
            if new and len(self._counts) >= MOST_KINDS:
                return
            self._counts[key] = self._counts.get(key, 0) + 1
        if new:
            self._write()

    def _users_line(self) -> tuple[str | None, int | None]:
        """Return file and line of the innermost frame in the user's files."""
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None:
            if self._is_users(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return None, None

    def _write(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            rows: list[Any] = [[*key, count] for key, count in self._counts.items()]
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps(rows), encoding="utf-8")
            part.replace(self._path)
