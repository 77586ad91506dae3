"""Turns a reStructuredText page into Markdown: headings, targets and directives here, running text as in docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from fsdp_mcp.api import rst
from fsdp_mcp.library import tables
from fsdp_mcp.library.directives import read_directive, render
from fsdp_mcp.library.fields import render_fields
from fsdp_mcp.library.links import ApiLinks

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}\s*\Z")
_EXPLICIT = re.compile(r"\.\.(?: |\Z)")
_DIRECTIVE = re.compile(r"\.\. +([\w:+.-]+):: *(.*)\Z")
_TARGET = re.compile(r"\.\. +_([^:`]+|`[^`]+`): *(\S.*)?\Z")
_FOOTNOTE = re.compile(r"\.\. +(\[[^\]]+\]) +(.*)\Z")
_SUBSTITUTION = re.compile(r"\.\. +\|([^|]+)\| +[\w-]+:: *(.*)\Z")
_REFERENCE = re.compile(r":(ref|doc|numref|any):`([^`]+)`")
_MOST_NESTED = 10
_LEAST_UNDERLINE = 4


class _Heading(NamedTuple):
    title: str
    style: tuple[str, bool]
    """The adornment's character, and whether it stands above the title, too."""
    lines: int


class _Block(NamedTuple):
    text: str
    end: int


def to_markdown(text: str, *, links: ApiLinks, depth: int = 0) -> str:
    """Return the page or the part of a page `text` as Markdown; a target becomes a line `(label)=`."""
    if depth > _MOST_NESTED:
        return text
    lines = [line.rstrip() for line in text.expandtabs().split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(_blocks(lines, links=links, depth=depth))).strip("\n")


def _blocks(lines: list[str], *, links: ApiLinks, depth: int) -> Iterator[str]:
    styles: list[tuple[str, bool]] = []
    at = 0
    while at < len(lines):
        heading = _heading_at(lines, at)
        if heading is not None:
            if heading.style not in styles:
                styles.append(heading.style)
            level = min(styles.index(heading.style) + 1, 6)
            yield f"{'#' * level} {rst.inline(heading.title)}"
            at += heading.lines
        elif _EXPLICIT.match(lines[at]):
            block = _explicit(lines, at, links=links, depth=depth)
            yield block.text
            at = block.end
        elif tables.starts_table(lines[at]):
            end = tables.end_of_table(lines, at)
            yield _table(lines[at:end])
            at = end
        else:
            end = _end_of_text(lines, at)
            yield _running_text("\n".join(lines[at:end]), links)
            at = end


def _running_text(text: str, links: ApiLinks) -> str:
    text = _REFERENCE.sub(lambda match: links.reference(match[1], match[2]) or match[0], text)
    return rst.to_markdown(render_fields(text))


def _table(lines: list[str]) -> str:
    """Return a table with its cells rendered; one that is none as text."""
    shown = tables.table(lines)
    return rst.inline(shown) if shown else rst.to_markdown("\n".join(lines))


def _heading_at(lines: list[str], at: int) -> _Heading | None:
    """Return the heading that starts at this line, if one does: a line with an adornment below, or above as well."""
    below = lines[at + 1 : at + 3]
    if at > 0 and lines[at - 1].strip() and _heading_at(lines[max(at - 2, 0) : at], 0) is None:
        return None
    if _ADORNMENT.match(lines[at]):
        framed = len(below) == 2 and below[0].strip() and below[1].strip() and below[1][0] == lines[at][0]
        if framed and _ADORNMENT.match(below[1]):
            return _Heading(below[0].strip(), (lines[at][0], True), 3)
        return None
    plain = lines[at].strip() and not lines[at][0].isspace() and not lines[at].startswith((">>>", ".. "))
    if not plain or not below or not _ADORNMENT.match(below[0]):
        return None
    long_enough = len(below[0]) >= min(len(lines[at]), _LEAST_UNDERLINE)
    return _Heading(lines[at].strip(), (below[0][0], False), 2) if long_enough else None


def _end_of_text(lines: list[str], start: int) -> int:
    """Return where running text ends: at explicit markup, or after a blank line at a heading or a table."""
    for at in range(start + 1, len(lines)):
        if _EXPLICIT.match(lines[at]):
            return at
        if not lines[at - 1].strip() and (_heading_at(lines, at) is not None or tables.starts_table(lines[at])):
            return at
    return len(lines)


def _explicit(lines: list[str], at: int, *, links: ApiLinks, depth: int) -> _Block:
    """Render what starts with `..` : a directive, a target, a footnote, a substitution; a comment says nothing."""
    end = _end_of_indented(lines, at + 1)
    below = lines[at + 1 : end]
    line = lines[at]

    def nested(text: str) -> str:
        return to_markdown(text, links=links, depth=depth + 1) if text.strip() else ""

    if directive := _DIRECTIVE.match(line):
        found = read_directive(directive[1], rst.inline(directive[2]) if " " in directive[2] else directive[2], below)
        return _Block(render(found, links=links, nested=nested), end)
    if target := _TARGET.match(line):
        label = target[1].strip("`")
        return _Block(f"[{label}]: {target[2]}" if target[2] else f"({label})=", at + 1)
    if footnote := _FOOTNOTE.match(line):
        return _Block(nested("\n".join([f"{footnote[1]} {footnote[2]}", *below])), end)
    if substitution := _SUBSTITUTION.match(line):
        return _Block(f"`|{substitution[1]}|`: {substitution[2]}", end)
    return _Block("", end)


def _end_of_indented(lines: list[str], start: int) -> int:
    """Return where the indented lines from `start` end; blank lines between them belong to them."""
    end = start
    for at in range(start, len(lines)):
        if not lines[at].strip():
            continue
        if not lines[at][0].isspace():
            break
        end = at + 1
    return end
