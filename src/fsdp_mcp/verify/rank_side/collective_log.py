"""The log of a rank's collectives: what recording writes and what the watch and the report read.

A log survives a rank that hangs inside torch or is killed: each call is written before it starts. Equal calls share
one description, a line of JSON; each call is then a line with the number of its description, a few bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

MOST_BYTES = 64 << 20
"""Ten million calls; a log that grows beyond is not read further."""

_READ_BYTES = 1 << 20

STEP = b"step\n"
"""Marks in the log of a simulated rank where training begins and where each optimizer step ends."""


class Place(NamedTuple):
    """A line of the user's code that was being executed."""

    file: str
    line: int
    function: str


class Call(NamedTuple):
    """What one rank handed to one collective, send or receive; equal calls are one object.

    Args:
        kind: function of torch.distributed that does it, such as all_reduce.
        group: name of the group, the same on all its ranks.
        ranks: global ranks of the group.
        shape: of the tensor that is sent, or received where only one rank sends.
        elements: number of them, that all ranks have to agree on; None where they may differ.
        dtype: of the tensor.
        size: bytes of the larger side.
        detail: reduction or root, which all ranks have to agree on.
        peer: global rank at the other end of a send or receive, None for any.
        tag: of a send or receive.
        places: the user's lines, innermost first.
        splits: rows sent to, and received from, each rank of the group; empty where all get the same.
    """

    kind: str
    group: str
    ranks: tuple[int, ...]
    shape: tuple[int, ...]
    elements: int | None
    dtype: str
    size: int
    detail: str
    peer: int | None
    tag: int
    places: tuple[Place, ...]
    splits: tuple[tuple[int, ...], ...] = ()


class Writer:
    """Appends to the log of this rank."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._described = 0

    def describe(self, call: Call) -> bytes:
        """Write the description of a new kind of call; return what `note` takes."""
        line = b"%d\n" % self._described
        self._described += 1
        self.note(json.dumps(call).encode() + b"\n")
        return line

    def note(self, line: bytes) -> None:
        """Write one line; a script that closed our descriptor loses its log, nothing else."""
        with contextlib.suppress(OSError):
            os.write(self._file, line)


class Reader:
    """Reads a log while it grows. What a rank left there is not trusted: lines that make no sense are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._calls: list[Call] = []

    def new_calls(self) -> list[Call]:
        """Return the calls begun since the last time, in their order."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(max(0, min(_READ_BYTES, MOST_BYTES - self._offset)))
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [call for line in lines for call in self.take(line)]

    def take(self, line: bytes) -> list[Call]:
        """Return the call that a line stands for, [] for a description."""
        if line.startswith(b"["):
            self._calls.append(_parsed(line))
            return []
        with contextlib.suppress(ValueError, IndexError):
            return [self._calls[int(line)]]
        return []


def read_steps(path: Path) -> list[list[Call]]:
    """Return the calls of a whole log, cut at its marks."""
    reader = Reader(path)
    parts: list[list[Call]] = [[]]
    try:
        lines = path.read_bytes()[:MOST_BYTES].splitlines(keepends=True)
    except OSError:
        return parts
    for line in lines:
        if line == STEP:
            parts.append([])
        else:
            parts[-1] += reader.take(line)
    return parts


_UNREADABLE = Call("unknown", "", (), (), None, "", 0, "", None, 0, ())


def _parsed(line: bytes) -> Call:
    try:
        kind, group, ranks, shape, elements, dtype, size, detail, peer, tag, places, splits = json.loads(line)
        return Call(
            str(kind),
            str(group),
            tuple(int(rank) for rank in ranks),
            tuple(int(length) for length in shape),
            _number(elements),
            str(dtype),
            int(size),
            str(detail),
            _number(peer),
            int(tag),
            tuple(Place(str(file), int(number), str(function)) for file, number, function in places),
            tuple(tuple(int(rows) for rows in split) for split in splits),
        )
    except (ValueError, TypeError):
        return _UNREADABLE


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
