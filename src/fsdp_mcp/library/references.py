"""Finds the section that a reference between official pages means: by its label, or by the name of its page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from posixpath import dirname, join, normpath
from typing import NamedTuple

_LABEL = re.compile(r"(?:\(([^()\s][^()]*)\)=|\.\. +_([^:`]+|`[^`]+`):)\s*\Z")
_TITLE = re.compile(r"#{1,6} +(.+?)\s*#*\Z")
_RULE = re.compile(r"([^\w\s])\1{2,}\s*\Z")
_TITLED = re.compile(r"\s*(.+?)\s*<([^<>]+)>\s*", re.DOTALL)
_PAGE_SUFFIX = re.compile(r"\.(?:md|rst)\Z")
_LABEL_ROLES = frozenset({"ref", "numref", "any"})


class Label(NamedTuple):
    """A name that a page gives to one of its sections."""

    name: str
    title: str
    """Heading of the section, in the markup of its page."""


class Section(NamedTuple):
    """Where a reference leads."""

    uri: str
    title: str


class References:
    """Turns references into Markdown links; what it does not know is left to the caller.

    Args:
        labels: the section of each label, by its name as `label_key` writes it, and of each anchor, as `page#anchor`.
        pages: the beginning of each page, by the page's name.
    """

    def __init__(self, labels: Mapping[str, Section], pages: Mapping[str, Section]) -> None:
        self._labels = labels
        self._pages = pages

    def role(self, role: str, content: str, *, page: str) -> str | None:
        """Return the link that a role such as `ref` or `doc` with this content makes on `page`; None for no such."""
        titled = _TITLED.fullmatch(content)
        shown, target = (titled[1], titled[2]) if titled else ("", content)
        if role in _LABEL_ROLES:
            return _linked(shown, self._labels.get(label_key(target)))
        return _linked(shown, self._pages.get(_page_named(target, page=page))) if role == "doc" else None

    def destination(self, target: str, *, page: str) -> str | None:
        """Return the URI that the destination of a Markdown link on `page` means; None for one that leads elsewhere."""
        found = self._labels.get(label_key(target.removeprefix("#"))) or self._labels.get(label_key(f"{page}{target}"))
        if found is None and _PAGE_SUFFIX.search(target.partition("#")[0]):
            found = self._pages.get(_page_named(target.partition("#")[0], page=page))
        return found.uri if found else None


def label_key(name: str) -> str:
    """Return what labels are compared by: case and the width of spaces say nothing."""
    return " ".join(name.lower().split())


def labels_in(text: str) -> Iterable[Label]:
    """Yield the labels of the source of a page that stand above a heading."""
    waiting: list[str] = []
    lines = [line.rstrip() for line in text.split("\n")]
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            waiting.append((label[1] or label[2]).strip("`"))
        elif line and not _RULE.match(line):
            below = lines[number + 1] if number + 1 < len(lines) else ""
            heading = _TITLE.match(line)
            title = heading[1] if heading else line if _RULE.match(below) else ""
            yield from (Label(name, title) for name in waiting if title)
            waiting.clear()


def _page_named(target: str, *, page: str) -> str:
    path = _PAGE_SUFFIX.sub("", target.strip())
    return path.lstrip("/") if path.startswith("/") else normpath(join(dirname(page), path))


def _linked(shown: str, found: Section | None) -> str | None:
    return f"[{' '.join(shown.split()) or found.title}]({found.uri})" if found else None
