"""Keeps count of what the CUDA mapping changed and at which line of the user's."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .cuda_patch import is_compiling

MOST_KINDS = 200
"""A script that maps more different things than this has been understood by then."""


class Record:
    """What was mapped or has no meaning on the CPU, written to a file on each new kind and at the end.

    A process that the rank starts adds to the same counts through a file of its own.
    """

    def __init__(self, path: Path, is_users: Callable[[str], bool]) -> None:
        self.path = path
        self.is_users = is_users
        self._counts: dict[tuple[str, str, str | None, int | None], int] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()
        atexit.register(self._write)

    def mapped(self, what: str) -> None:
        """Note something that now happens on the CPU."""
        if not is_compiling():
            self._note("mapped", what, self._users_line())

    def unsupported(self, what: str, place: tuple[str, int] | None = None) -> None:
        """Note something that has no meaning on the CPU, at the user's current line unless a place is given."""
        if not is_compiling():
            self._note("unsupported", what, place or self._users_line())

    def _note(self, kind: str, what: str, place: tuple[str | None, int | None]) -> None:
        if os.getpid() != self._process:
            self._start_anew()
        key = (kind, what, *place)
        with self._lock:
            new = key not in self._counts
            if new and len(self._counts) >= MOST_KINDS:
                return
            self._counts[key] = self._counts.get(key, 0) + 1
        if new:
            self._write()

    def _start_anew(self) -> None:
        """Keep a file of its own in a forked child, such as a worker of a DataLoader."""
        self._process, self._counts, self._lock = os.getpid(), {}, threading.Lock()
        self.path = self.path_of_child()

    def path_of_child(self) -> Path:
        """Return where this process, if it is a child of the rank, keeps its counts."""
        return self.path.with_name(f"{self.path.name}-{os.getpid()}")

    def _users_line(self) -> tuple[str | None, int | None]:
        """Return file and line of the innermost frame in the user's files."""
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None:
            if self.is_users(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return None, None

    def _write(self) -> None:
        if os.getpid() != self._process:
            return
        with self._lock, contextlib.suppress(OSError, ValueError):
            rows: list[Any] = [[*key, count] for key, count in self._counts.items()]
            for child in sorted(self.path.parent.glob(f"{self.path.name}-*[0-9]")):
                rows += json.loads(child.read_text(encoding="utf-8"))
            part = self.path.with_name(f"{self.path.name}.part")
            part.write_text(json.dumps(rows), encoding="utf-8")
            part.replace(self.path)
