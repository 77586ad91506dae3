"""Reads logs line by line: text, files, folders and globs, plain or gzip, of any size."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_GZIP = b"\x1f\x8b"
_BAR = re.compile(r"^[^|%]{0,60}?\d{1,3}%\|[^|]{0,200}\| ?[^\[\]|]{0,40}\[[^\]]{0,80}\]\s*")
"""A progress bar at the start of a line, to its closing bracket."""
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
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
            yield from lines_of_stream(stream, name=str(path))


def lines_of_stream(stream: BufferedReader, *, name: str = "") -> Iterator[RawLine]:
    """Yield the lines of an open stream, such as stdin, while it comes; plain or gzip."""
    packed = stream.peek(2)[:2] == _GZIP
    yield from _lines(gzip.GzipFile(fileobj=stream) if packed else stream, name)


def _lines(stream: BufferedReader | gzip.GzipFile, name: str) -> Iterator[RawLine]:
    number = 0
    try:
        line = stream.readline(_PIECE_BYTES)
        if line.startswith(_UTF16):  # as PowerShell redirects
            yield from _lines_of_utf16(line, stream, name)
            return
        while line:
            number += 1
            yield RawLine(name, number, clean(line.decode("utf-8", errors="replace")))
            line = stream.readline(_PIECE_BYTES)
    except (OSError, EOFError, zlib.error):  # a gzip file that is cut off or damaged
        return


def _lines_of_utf16(start: bytes, stream: BufferedReader | gzip.GzipFile, name: str) -> Iterator[RawLine]:
    """Yield the lines of a text whose first bytes were read already; bytes are decoded piece by piece."""
    decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
    number, rest, piece = 0, "", start
    while piece:
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        for line in [*lines, *([rest] if len(rest) > _PIECE_BYTES else [])]:
            number += 1
            yield RawLine(name, number, clean(line))
        rest = "" if len(rest) > _PIECE_BYTES else rest
        piece = stream.read(_PIECE_BYTES)
    if rest:
        yield RawLine(name, number + 1, clean(rest))


def clean(line: str) -> str:
    """Drop colours, the end of the line, and what a carriage return has overwritten, or a progress bar before a text.

    A bar never overwrites a message: both are written by processes that do not know of each other.
    """
    line = line.rstrip("\r\n").lstrip("\ufeff\0")
    line = _ANSI.sub("", line) if "\x1b" in line else line
    if "\r" in line:
        written = [part for part in line.split("\r") if part.strip()]
        line = next((part for part in reversed(written) if not _BAR.fullmatch(part)), written[-1] if written else "")
    bar = _BAR.match(line) if "%|" in line else None
    return line[bar.end() :] if bar and bar.end() < len(line) else line
