"""Reads a Markdown guide: front matter, and one section for each `##` and `###` heading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pydantic import Field, ValidationError

from fsdp_mcp.errors import FsdpMcpError
from fsdp_mcp.models import IndexEntry, Source, Value

_LEVELS = ("h2", "h3")
_FENCE = "---"
_SOURCES = re.compile(r"^Sources: (?=\[)", re.MULTILINE)
_LINK = re.compile(r"\[((?:[^\[\]\\]|\\.)+)\]\((https?://[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)")
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


class BrokenPage(FsdpMcpError):
    """A guide whose front matter or encoding cannot be read."""


class OfficialPage(Value):
    """A page of the official documentation."""

    name: str
    url: str


class FrontMatter(Value):
    """What a guide says of itself between its two `---` lines."""

    title: str = Field(min_length=1)
    summary: str = Field(min_length=1)
    torch: str = Field(description="Releases that the guide holds for, e.g. `>=2.6`")
    pages: tuple[OfficialPage, ...] = ()
    symbols: tuple[str, ...] = ()


class Section(Value):
    """One heading with the text below it, up to the next heading that starts a section."""

    slug: str = Field(description="Anchor as GitHub makes it; empty for the text before the first heading")
    heading: str = Field(description="Heading as plain text; the page's title for the first section")
    level: int = Field(description="1 for the text before the first heading, else 2 or 3")
    parent: str = Field(description="Heading of the `##` section that a `###` section lies in, or empty")
    start: int = Field(description="First character of the section in the body, from 0")
    text: str = Field(description="Markdown, heading included, exactly as in the body")
    sources: tuple[Source, ...] = Field(description="The section's `Sources:`, else those of its `##` section")


class Guide(Value):
    """One guide, split."""

    stem: str
    front: FrontMatter
    body: str
    sections: tuple[Section, ...]


class _Heading(NamedTuple):
    line: int
    level: int
    text: str


def read_guide(path: Path) -> Guide:
    """Return the guide in the file `path`.

    Raises:
        BrokenPage: the file is not UTF-8 text with complete front matter.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenPage(f"{path.name} cannot be read: {error}. A guide is UTF-8 text.") from error
    return parse_guide(text, stem=path.stem)


def parse_guide(text: str, *, stem: str) -> Guide:
    """Return the guide that `text` holds.

    Raises:
        BrokenPage: the front matter is missing, is not YAML, or lacks a field.
    """
    header, body = _split_front_matter(text, stem=stem)
    try:
        front = FrontMatter.model_validate(yaml.safe_load(header))
    except (yaml.YAMLError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise BrokenPage(f"{stem}: the front matter ({first}) needs title, summary and torch.") from error
    return Guide(stem=stem, front=front, body=body, sections=split_sections(body, title=front.title))


def _split_front_matter(text: str, *, stem: str) -> tuple[str, str]:
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise BrokenPage(f"{stem}: a guide starts with a `---` line and front matter.")
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == _FENCE:
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :])
    raise BrokenPage(f"{stem}: the front matter is not closed by a second `---` line.")


def split_sections(body: str, *, title: str) -> tuple[Section, ...]:
    """Return the sections of a Markdown text in order; joined, their texts are the whole of it.

    Headings inside code blocks, lists and quotes start no section, and neither do `#`, `####` and deeper.
    """
    offsets = _line_offsets(body)
    headings = [heading for heading in _headings(body) if heading.line < len(offsets)]
    starts = [0, *(offsets[heading.line] for heading in headings)]
    texts = [body[start:end] for start, end in zip(starts, [*starts[1:], len(body)], strict=True)]
    slugs = _Slugs()
    sections = [_section(_Heading(0, 1, title), texts[0], start=0, slug="", parent=None)]
    parent: Section | None = None
    for heading, text, start in zip(headings, texts[1:], starts[1:], strict=True):
        inside = parent if heading.level == 3 else None
        section = _section(heading, text, start=start, slug=slugs.next(heading.text), parent=inside)
        sections.append(section)
        parent = section if heading.level == 2 else parent
    return _with_inherited_sources(sections)


def _section(heading: _Heading, text: str, *, start: int, slug: str, parent: Section | None) -> Section:
    return Section(
        slug=slug,
        heading=heading.text,
        level=heading.level,
        parent=parent.heading if parent else "",
        start=start,
        text=text,
        sources=_sources(text),
    )


def _with_inherited_sources(sections: list[Section]) -> tuple[Section, ...]:
    """Give a section without sources those of its `##` section, which stand at the end of its last `###` section."""
    found: list[Section] = []
    for number, section in enumerate(sections):
        group = _group(sections, number)
        sources = section.sources or next((other.sources for other in reversed(group) if other.sources), ())
        found.append(section.model_copy(update={"sources": sources}))
    return tuple(found)


def _group(sections: list[Section], number: int) -> list[Section]:
    """Return the `##` section that `sections[number]` belongs to, with its `###` sections."""
    first = number
    while first > 0 and sections[first].level == 3:
        first -= 1
    last = first + 1
    while last < len(sections) and sections[last].level == 3:
        last += 1
    return sections[first:last]


def _line_offsets(body: str) -> list[int]:
    """Return where each line starts; markdown-it ends lines at `\\n` and at `\\r\\n`, so both split alike."""
    offsets = [0]
    for line in body.split("\n")[:-1]:
        offsets.append(offsets[-1] + len(line) + 1)
    return offsets


def _headings(body: str) -> Iterator[_Heading]:
    # A lone `\r` ends a line for markdown-it; as a space it does not, and the offsets stay the same.
    tokens = _parser().parse(re.sub(r"\r", " ", body).replace("\0", " "))
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.tag in _LEVELS and token.level == 0 and token.map:
            yield _Heading(token.map[0], int(token.tag[1]), _plain(inline))


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def _plain(inline: Token) -> str:
    """Return the text of a heading without its markup."""
    return "".join(child.content for child in inline.children or () if child.type != "html_inline").strip()


class _Slugs:
    """Makes slugs as GitHub does: `-1`, `-2`, ... after a repeated one."""

    def __init__(self) -> None:
        self._taken: set[str] = {""}

    def next(self, heading: str) -> str:
        """Return the slug of the next heading; it differs from all before."""
        plain = _NOT_IN_SLUG.sub("", heading.strip().lower()).replace(" ", "-")
        slug, number = plain, 0
        while slug in self._taken:
            number += 1
            slug = f"{plain}-{number}"
        self._taken.add(slug)
        return slug


def _sources(text: str) -> tuple[Source, ...]:
    """Return the links of the last `Sources: [title](url), ...` paragraph of a section."""
    starts = [match.end() for match in _SOURCES.finditer(text)]
    if not starts:
        return ()
    paragraph = re.split(r"\n\s*\n", text[starts[-1] :], maxsplit=1)[0]
    return tuple(Source(title=title, url=url) for title, url in _LINK.findall(paragraph))


def guide_entries(guide: Guide) -> list[IndexEntry]:
    """Return one index entry for each section of `guide`, in the order of the page."""
    return [_entry(guide, section) for section in guide.sections]


def _entry(guide: Guide, section: Section) -> IndexEntry:
    first = section.level == 1
    text = _opening(guide, section) if first else section.text.strip()
    path = [guide.front.title, section.parent, "" if first else section.heading]
    official = [page.url for page in guide.front.pages]
    return IndexEntry(
        uri=f"fsdp://guides/{guide.stem}" + ("" if first else f"#{section.slug}"),
        title=" › ".join(filter(None, path)),
        kind="guide",
        text=text,
        page=guide.stem,
        url=next(iter([source.url for source in section.sources] + official), ""),
        names=(guide.stem,) if first else (),
        torch_version=guide.front.torch,
    )


def _opening(guide: Guide, section: Section) -> str:
    """Return title, summary and the text before the first heading."""
    below_title = re.sub(r"\A\s*# [^\n]*", "", section.text).strip()
    return f"# {guide.front.title}\n\n{guide.front.summary}\n\n{below_title}".strip()
