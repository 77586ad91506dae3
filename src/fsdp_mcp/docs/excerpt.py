"""Cuts the part out of a section that answers: sentences, list items, table rows and code lines stay whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from fsdp_mcp.tokens import estimate_tokens, fit

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[(\"'])|(?<=[。！？])")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
_SOURCES = re.compile(r"\n*^Sources: .*(?:\n.+)*\Z", re.MULTILINE)
_GAP = " … "
_GAP_LINE = "\n…\n"


class _Unit(NamedTuple):
    """A piece that is shown whole or not at all."""

    text: str
    paragraph: int


def excerpt(text: str, *, terms: Mapping[str, float], max_tokens: int) -> str:
    """Return the pieces of `text` with the most, and rarest, of `terms`, in their order, within `max_tokens`.

    The heading and the `Sources:` line are left out, as a hit tells them otherwise. What is left out
    between two pieces shows as `…`. The whole text comes back when it fits.
    """
    body = _SOURCES.sub("", _without_heading(text)).strip()
    if estimate_tokens(body) <= max_tokens:
        return body
    units = _units(body)
    values = [_value(unit.text, terms) for unit in units]
    chosen = _choose(units, values, max_tokens=max_tokens)
    if not chosen:
        best = max(range(len(units)), key=values.__getitem__)
        return _cut(units[best].text, terms=terms, max_tokens=max_tokens)
    return _join(units, sorted(chosen))


def _without_heading(text: str) -> str:
    return text.split("\n", 1)[-1] if text.startswith("#") and "\n" in text else text


def _units(body: str) -> list[_Unit]:
    """Split into sentences, list items, table rows and lines of code."""
    found: list[_Unit] = []
    for number, paragraph in enumerate(re.split(r"\n\s*\n", body)):
        lines = paragraph.split("\n")
        prose = not paragraph.startswith(("|", "```", "    ", ">>>")) and not any("```" in line for line in lines)
        pieces = _prose_pieces(lines) if prose else lines
        found.extend(_Unit(piece, number) for piece in pieces if piece.strip())
    return found


def _prose_pieces(lines: list[str]) -> list[str]:
    """Join wrapped lines; a list item stays one piece, the rest is split into sentences."""
    blocks: list[str] = []
    for line in lines:
        if blocks and not _LIST_ITEM.match(line) and not line.startswith(("|", "**")):
            blocks[-1] = f"{blocks[-1]} {line.strip()}"
        else:
            blocks.append(line)
    return [piece for block in blocks for piece in ([block] if _LIST_ITEM.match(block) else _SENTENCE_END.split(block))]


def _value(text: str, terms: Mapping[str, float]) -> float:
    """Return how much of the question is in `text`: the rarity of each term whose letters occur in it."""
    folded = text.casefold()
    return sum(rarity for term, rarity in terms.items() if term in folded)


def _choose(units: list[_Unit], values: list[float], *, max_tokens: int) -> set[int]:
    """Take the best units while there is room, each with its neighbours' value as a tie-break; then fill up."""
    costs = [estimate_tokens(unit.text) + 2 for unit in units]
    near = [value + 0.2 * max(values[max(i - 1, 0) : i + 2], default=0.0) for i, value in enumerate(values)]
    order = sorted(range(len(units)), key=lambda i: (-near[i], i))
    chosen: set[int] = set()
    room = max_tokens
    for number in order:
        if values[number] > 0 and costs[number] <= room:
            chosen.add(number)
            room -= costs[number]
    for number in range(len(units)):  # The opening of a section says what it is about.
        if number not in chosen and costs[number] <= room:
            chosen.add(number)
            room -= costs[number]
        elif number not in chosen:
            break
    return chosen


def _join(units: list[_Unit], numbers: list[int]) -> str:
    parts = [units[numbers[0]].text if numbers[0] == 0 else f"… {units[numbers[0]].text.lstrip()}"]
    for before, number in pairwise(numbers):
        same = units[before].paragraph == units[number].paragraph
        by_line = "\n" in units[number].text or units[number].text.startswith(("|", " ", "-", "*", "`", ">"))
        if number == before + 1:
            parts.append(("\n" if by_line else " ") if same else "\n\n")
        else:
            parts.append(_GAP if same and not by_line else _GAP_LINE)
        parts.append(units[number].text)
    if numbers[-1] < len(units) - 1:
        parts.append(" …")
    return "".join(parts)


def _cut(text: str, *, terms: Mapping[str, float], max_tokens: int) -> str:
    """Return the surroundings of the rarest term in a piece that is too long as a whole."""
    folded = text.casefold()
    present = [term for term in terms if term in folded]
    rarest = max(present, key=lambda term: terms[term], default="")
    start = max(folded.find(rarest) - max_tokens, 0) if rarest else 0
    tail = text[start:]
    end = fit(tail, max_tokens=max(max_tokens - 4, 1))
    return f"{'… ' if start else ''}{tail[:end].strip()}{' …' if end < len(tail) else ''}"
