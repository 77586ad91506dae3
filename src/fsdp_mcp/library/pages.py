"""Splits a page, once it is Markdown, into sections with anchors, and makes index entries of them. Heavy imports."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

from fsdp_mcp.errors import FsdpMcpError
from fsdp_mcp.library import myst, rest
from fsdp_mcp.library.fields import without_settings
from fsdp_mcp.library.links import ApiLinks
from fsdp_mcp.library.references import References, Section, label_key, labels_in
from fsdp_mcp.models import IndexEntry

_LEVELS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4}
_TARGET = re.compile(r"\(([^()\s][^()]*)\)=\s*\Z")
_OFFICIAL = "https://docs.pytorch.org/docs/"
_REST_SUFFIXES = frozenset({".rst", ".rest"})
_LONGEST_ANCHOR = 80
_LONG_SECTION = 6_000  # characters; a longer one is cut at paragraphs, so that a hit is about one thing
_MARKUP = re.compile(r"[`*]|\[([^\]]*)\]\([^)]*\)")
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")
_IN_URI = re.compile(r"[\s#?%<>\"'`\\]")


class BrokenDocument(FsdpMcpError):
    """A page that cannot be read as text."""


class Part(NamedTuple):
    """A section of a page, or one piece of a long section."""

    anchor: str
    """Unique on the page; empty for its beginning."""
    html_id: str
    """Anchor on the page that Sphinx makes, or empty when that cannot be told."""
    headings: tuple[str, ...]
    """From the page's title to the section's own heading."""
    text: str


class _Heading(NamedTuple):
    line: int
    level: int
    text: str


def decode(data: bytes) -> str:
    """Return the text of a page.

    Raises:
        BrokenDocument: the bytes are not UTF-8 text.
    """
    if b"\0" in data:
        raise BrokenDocument("holds NUL bytes, so it is no UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise BrokenDocument(
            f"is not UTF-8 (byte 0x{byte:02x} at {error.start}); convert it, e.g. with iconv"
        ) from None


def read_parts(text: str, *, path: str, links: ApiLinks) -> list[Part]:
    """Return the parts of the page `text`, whose language the ending of `path` tells."""
    name = PurePosixPath(path)
    if name.suffix in _REST_SUFFIXES:
        return split(rest.to_markdown(without_settings(text), links=links), title=name.stem)
    header, body = myst.split_front_matter(text.replace("\r\n", "\n"))
    title = header.get("title")
    body = without_settings(body)
    return split(myst.to_markdown(body, links=links), title=title if isinstance(title, str) and title else name.stem)


def split(markdown: str, *, title: str) -> list[Part]:
    """Return the parts of a Markdown text, one for each heading down to the fourth level; together they hold it all.

    A heading without text of its own goes to the section below it. `title` names a page that has no heading `#`.
    """
    lines = myst.lines_of(markdown)
    headings = list(_headings(lines))
    opening = _Heading(0, 0, "")
    starts = [*dict.fromkeys([0, *(heading.line for heading in headings)]), len(lines)]
    by_line = {heading.line: heading for heading in headings}
    first = next((heading.text for heading in headings if heading.level == 1), title) or title
    names = _Names(first)
    held: list[str] = []
    parts: list[Part] = []
    for start, end in pairwise(starts):
        heading = by_line.get(start, opening)
        names.enter(heading, _targets_before(lines, start))
        own = _without_targets(lines[start:end])
        held.extend(own)
        if end < len(lines) and not _says_something(own, headings=heading is not opening):
            continue
        parts.extend(names.parts("\n".join(held).strip("\n")))
        held.clear()
    return [part for part in parts if part.text.strip()]


class _Names:
    """Knows the headings above the current section and gives anchors that differ.

    Args:
        title: the page's title.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._above: list[_Heading] = []
        self._taken: dict[str, int] = {}
        self._ids: set[str] = set()
        self._targets: list[str] = []
        self._at_start = True

    def enter(self, heading: _Heading, targets: list[str]) -> None:
        """Go to the section of `heading`, which these targets name, too."""
        self._targets = targets
        if heading.level:
            self._above = [*(above for above in self._above if above.level < heading.level), heading]

    def parts(self, text: str) -> Iterator[Part]:
        """Yield the section with this text, in pieces if it is long."""
        names = [above.text for above in self._above if above.text]
        headings = tuple(names if names[:1] == [self._title] else [self._title, *names])
        own = names[-1] if names else ""
        html_id = next((found for found in map(sphinx_id, [*self._targets, own]) if found), "")
        repeated = html_id in self._ids
        self._ids.add(html_id)
        anchor = "" if self._at_start else self._unique(html_id if html_id and self._targets else slug(own))
        self._at_start = False
        for number, piece in enumerate(_pieces(text), start=1):
            part = Part(anchor, "" if repeated else html_id, headings, piece)
            if number > 1:
                part = part._replace(anchor=self._unique(f"{anchor}.{number}"), headings=_numbered(headings, number))
            yield part

    def _unique(self, wanted: str) -> str:
        """Return `wanted`, with a number when the page has it already."""
        anchor = wanted = wanted or "section"
        while anchor in self._taken:
            self._taken[wanted] += 1
            anchor = f"{wanted}-{self._taken[wanted]}"
        self._taken[anchor] = 1
        return anchor


def _numbered(headings: tuple[str, ...], number: int) -> tuple[str, ...]:
    return (*headings[:-1], f"{headings[-1]} ({number})")


def _headings(lines: list[str]) -> Iterator[_Heading]:
    for token, inline in pairwise(myst.block_parser().parse("\n".join(lines))):
        if token.type == "heading_open" and token.tag in _LEVELS and token.level == 0 and token.map:
            yield _Heading(token.map[0], _LEVELS[token.tag], _plain(inline.content))


def _plain(heading: str) -> str:
    """Return a heading without its markup."""
    return " ".join(_MARKUP.sub(lambda match: match[1] or "", heading).split())


def _targets_before(lines: list[str], start: int) -> list[str]:
    """Return the labels `(label)=` that stand right above a line."""
    found: list[str] = []
    for number in range(start - 1, -1, -1):
        line = lines[number]
        match = _TARGET.match(line)
        if match:
            found.insert(0, match[1])
        elif line.strip():
            break
    return found


def _without_targets(lines: list[str]) -> list[str]:
    return [line for line in lines if not _TARGET.match(line)]


def _says_something(lines: list[str], *, headings: bool) -> bool:
    """Return whether there is more than blank lines and headings."""
    told = [line for line in lines if line.strip() and not line.startswith("#")]
    return bool(told) and not (headings and len(told) == 2 and not told[1].strip("=- "))


def _pieces(text: str) -> list[str]:
    """Cut a long text between paragraphs outside code; joined by nothing the pieces are the text."""
    pieces: list[str] = []
    current = ""
    fenced = False
    for block in re.split(r"(?<=\n)(?=\n)", text):
        room = len(current) + len(block) <= _LONG_SECTION
        if current and not room and (not fenced or len(current) > 2 * _LONG_SECTION):
            pieces.append(current)
            current = ""
        current += block
        fenced ^= len(re.findall(r"^\s*(?:```|~~~)", block, re.MULTILINE)) % 2 == 1
    return [piece[at : at + 4 * _LONG_SECTION] for piece in [*pieces, current] for at in _cuts(piece)]


def _cuts(piece: str) -> range:
    return range(0, max(len(piece), 1), 4 * _LONG_SECTION)


def slug(heading: str) -> str:
    """Return an anchor as GitHub makes it, letters of every script included."""
    return _NOT_IN_SLUG.sub("", heading.strip().lower()).replace(" ", "-")[:_LONGEST_ANCHOR]


def sphinx_id(name: str) -> str:
    """Return the anchor that Sphinx makes of a heading or a label; empty when that has no ASCII letter."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"^[-0-9]+|-+$", "", re.sub(r"[^a-z0-9]+", "-", plain))


# --- entries ------------------------------------------------------------------------------------------------------


def official_entries(parts: Iterable[Part], *, page: str, torch_version: str) -> list[IndexEntry]:
    """Return the entries of the official page `page` of that release."""
    address = f"{_OFFICIAL}{'.'.join(torch_version.split('.')[:2])}/{page}.html"
    return [
        IndexEntry(
            uri=_uri(official_uri(page), part),
            title=" › ".join(part.headings),
            kind="official",
            text=part.text,
            page=page,
            url=f"{address}#{part.html_id}" if part.html_id and part.anchor else address,
            torch_version=torch_version,
        )
        for part in parts
    ]


def references_of(pages: Mapping[str, tuple[str, list[Part]]]) -> References:
    """Return what the labels and names of official pages refer to, from the source and the parts of each page."""
    labels: dict[str, Section] = {}
    for page, (text, parts) in pages.items():
        for part in parts:
            labels[f"{page}#{part.anchor}"] = Section(_uri(official_uri(page), part), part.headings[-1])
        for label in labels_in(text):
            title = _plain(label.title.replace("``", "`"))
            holding = next((part for part in parts if title in part.headings), None)
            if holding is not None:
                labels.setdefault(label_key(label.name), Section(_uri(official_uri(page), holding), title))
    beginnings = {
        page: Section(official_uri(page), parts[0].headings[0]) for page, (_, parts) in pages.items() if parts
    }
    return References(labels, beginnings)


def official_uri(page: str) -> str:
    """Return the URI of the beginning of an official page."""
    return f"fsdp://official/{page}"


def user_entries(parts: Iterable[Part], *, collection: str, path: str) -> list[IndexEntry]:
    """Return the entries of the user's page at `path` in `collection`."""
    return [
        IndexEntry(
            uri=_uri(f"fsdp://user/{collection}/{_in_uri(path)}", part),
            title=" › ".join([collection, *part.headings]),
            kind="user",
            text=part.text,
            page=f"{collection}/{path}",
            url="",
        )
        for part in parts
    ]


def _uri(page: str, part: Part) -> str:
    return f"{page}#{part.anchor}" if part.anchor else page


def _in_uri(path: str) -> str:
    """Return a path with what would end or split a URI encoded; letters of every script stay readable."""
    encoded: Callable[[re.Match[str]], str] = lambda match: quote(match[0], safe="")  # noqa: E731
    return _IN_URI.sub(encoded, path)
