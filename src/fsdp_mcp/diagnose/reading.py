"""Reads logs line by line: text, files, folders and globs, plain or gzip, of any size."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_GZIP = b"\x1f\x8b"
_PIECE_BYTES = 1 << 16
"""A line without an end is cut into pieces of this size, so that a file of one line needs no memory for it."""


class RawLine(NamedTuple):
    """One line as it stands in a log."""

    file: str
    """Empty for text that was given directly."""
    number: int
    """From 1."""
    text: str
    """Without colours, the end of the line, and what a progress bar has overwritten."""


def lines_of_text(text: str) -> Iterator[RawLine]:
    """Yield the lines of a text."""
    for number, line in enumerate(text.split("\n"), start=1):
        yield RawLine("", number, clean(line))


def lines_of_files(paths: Iterable[Path]) -> Iterator[RawLine]:
    """Yield the lines of files, one file after the other; a file that cannot be read to its end is read so far."""
    for path in paths:
        with path.open("rb") as stream:
            packed = stream.peek(2)[:2] == _GZIP
            yield from _lines(gzip.GzipFile(fileobj=stream) if packed else stream, str(path))


def _lines(stream: BinaryIO | gzip.GzipFile, name: str) -> Iterator[RawLine]:
    number = 0
    try:
        while line := stream.readline(_PIECE_BYTES):
            number += 1
            yield RawLine(name, number, clean(line.decode("utf-8", errors="replace")))
    except (OSError, EOFError):  # a gzip file that is cut off
        return


def clean(line: str) -> str:
    """Drop colours, the end of the line, and what a carriage return has overwritten."""
    line = line.rstrip("\r\n")
    if "\r" in line:
        line = line[line.rindex("\r") + 1 :]
    return _ANSI.sub("", line) if "\x1b" in line else line
