"""Cuts the part out of a section that answers: sentences, list items, table rows and code lines stay whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from fsdp_mcp.tokens import estimate_tokens, fit

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[(\"'])|(?<=[。！？])")
_FENCED = re.compile(r"^```[^\n`]*\n(.*?)\n?^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
_SOURCES = re.compile(r"\n*^Sources: .*(?:\n.+)*\Z", re.MULTILINE)
_TOLD_AGAIN = 0.2  # what a term is worth that a chosen piece has told already
_NEAR = 60  # characters to the end of a word or of code in backticks
_GAP = " … "
_GAP_LINE = "\n…\n"


class _Unit(NamedTuple):
    """A piece that is shown whole or not at all."""

    text: str
    paragraph: int
    is_code: bool = False


def excerpt(text: str, *, terms: Mapping[str, float], max_tokens: int) -> str:
    """Return the pieces of `text` with the most, and rarest, of `terms`, in their order, within `max_tokens`.

    The heading and the `Sources:` line are left out, as a hit tells them otherwise. What is left out
    between two pieces shows as `…`. The whole text comes back when it fits.
    """
    body = _SOURCES.sub("", _without_heading(text)).strip()
    if estimate_tokens(body) <= max_tokens:
        return body
    units = _units(body)
    held = [frozenset() if _says_little(unit) else _held(unit.text, terms) for unit in units]
    chosen = _choose(units, held, terms, max_tokens=max_tokens)
    if not chosen:
        best = max(range(len(units)), key=lambda number: sum(terms[term] for term in held[number]))
        return _cut(units[best].text, terms=terms, max_tokens=max_tokens)
    return _join(units, sorted(chosen))


def _without_heading(text: str) -> str:
    return text.split("\n", 1)[-1] if text.startswith("#") and "\n" in text else text


def _units(body: str) -> list[_Unit]:
    """Split into sentences, list items, table rows and lines of code; a block of one line of code becomes a piece."""
    found: list[_Unit] = []
    number = 0
    for position, block in enumerate(_FENCED.split(body)):
        lines = block.split("\n")
        if position % 2 and len(lines) == 1:
            found.append(_Unit(f"`{block}`", number))
        elif position % 2:
            found.extend(_Unit(line, number, is_code=True) for line in lines if line.strip())
        else:
            for paragraph in re.split(r"\n\s*\n", block):
                number += 1
                found.extend(_Unit(piece, number) for piece in _paragraph_pieces(paragraph) if piece.strip())
        number += 1
    return found


def _paragraph_pieces(paragraph: str) -> list[str]:
    lines = paragraph.split("\n")
    return lines if paragraph.startswith(("|", "+-", "    ", ">>>")) else _prose_pieces(lines)


def _prose_pieces(lines: list[str]) -> list[str]:
    """Join wrapped lines; a list item stays one piece, the rest is split into sentences."""
    blocks: list[str] = []
    for line in lines:
        if blocks and not _LIST_ITEM.match(line) and not line.startswith(("|", "+", "**")):
            blocks[-1] = f"{blocks[-1]} {line.strip().removeprefix('> ')}"
        else:
            blocks.append(line)
    return [piece for block in blocks for piece in ([block] if _LIST_ITEM.match(block) else _sentences(block))]


def _sentences(block: str) -> list[str]:
    """Split at the ends of sentences, but never inside backticks."""
    found: list[str] = []
    for piece in _SENTENCE_END.split(block):
        if found and found[-1].count("`") % 2:
            found[-1] = f"{found[-1]} {piece}"
        else:
            found.append(piece)
    return found


def _says_little(unit: _Unit) -> bool:
    """Return whether a piece names things without saying anything of them."""
    return unit.is_code and unit.text.lstrip("> ").startswith(("from ", "import ", "#"))


def _held(text: str, terms: Mapping[str, float]) -> frozenset[str]:
    """Return the terms whose letters occur in `text`."""
    folded = text.casefold()
    return frozenset(term for term in terms if term in folded)


def _choose(units: list[_Unit], held: list[frozenset[str]], terms: Mapping[str, float], *, max_tokens: int) -> set[int]:
    """Take piece by piece the one that adds most to the question's terms told so far, while there is room."""
    costs = [estimate_tokens(unit.text) + (5 if unit.is_code else 2) for unit in units]
    worth = dict(terms)
    chosen: set[int] = set()
    room = max_tokens
    open_numbers = [number for number in range(len(units)) if held[number] and costs[number] <= room]
    while open_numbers:
        best = max(open_numbers, key=lambda number: sum(worth[term] for term in held[number]))
        chosen.add(best)
        room -= costs[best]
        worth.update({term: worth[term] * _TOLD_AGAIN for term in held[best]})
        open_numbers = [number for number in open_numbers if number != best and costs[number] <= room]
    for number in range(len(units)):  # The opening of a section says what it is about.
        if number not in chosen and (units[number].is_code or costs[number] > room):
            break
        room -= 0 if number in chosen else costs[number]
        chosen.add(number)
    return chosen


def _join(units: list[_Unit], numbers: list[int]) -> str:
    """Put the chosen pieces together; lines of code that follow each other share a code block."""
    parts = ["… " if numbers[0] > 0 else "", _opened(units[numbers[0]])]
    for before, number in pairwise(numbers):
        parts.append(_between(units[before], units[number], gap=number > before + 1))
        parts.append(units[number].text)
    if units[numbers[-1]].is_code:
        parts.append("\n```")
    if numbers[-1] < len(units) - 1:
        parts.append(_GAP_LINE.rstrip() if units[numbers[-1]].is_code else " …")
    return "".join(parts)


def _opened(unit: _Unit) -> str:
    return f"```\n{unit.text}" if unit.is_code else unit.text


def _between(before: _Unit, after: _Unit, *, gap: bool) -> str:
    if before.is_code or after.is_code:
        if before.is_code and after.is_code and before.paragraph == after.paragraph:
            return "\n...\n" if gap else "\n"
        return ("\n```" if before.is_code else "") + (_GAP_LINE if gap else "\n") + ("```\n" if after.is_code else "")
    same = before.paragraph == after.paragraph
    by_line = "\n" in after.text or after.text.startswith(("|", " ", "-", "*", "`", ">"))
    if gap:
        return _GAP if same and not by_line else _GAP_LINE
    return ("\n" if by_line else " ") if same else "\n\n"


def _cut(text: str, *, terms: Mapping[str, float], max_tokens: int) -> str:
    """Return the surroundings of the rarest term in a piece that is too long as a whole."""
    folded = text.casefold()
    present = [term for term in terms if term in folded]
    rarest = max(present, key=lambda term: terms[term], default="")
    start = _outside_code(text, max(folded.find(rarest) - max_tokens, 0)) if rarest else 0
    tail = text[start:]
    end = fit(tail, max_tokens=max(max_tokens - 4, 1))
    if tail[:end].count("`") % 2 and tail.rfind("`", 0, end) > end // 4:
        end = tail.rfind("`", 0, end)
    return f"{'… ' if start else ''}{tail[:end].strip()}{' …' if end < len(tail) else ''}"


def _outside_code(text: str, start: int) -> int:
    """Return `start`, or where the code in backticks ends, or the word, that it lies in."""
    ends = text.find("`" if text.count("`", 0, start) % 2 else " ", start)
    return ends + 1 if start and -1 < ends < start + _NEAR else start
