"""Turns a MyST page into plain Markdown: directives, roles and comments are rendered, all else stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from fsdp_mcp.api.rst import links_as_markdown, role_label
from fsdp_mcp.library import rest
from fsdp_mcp.library.directives import read_directive, render
from fsdp_mcp.library.links import ApiLinks

_COLON_FENCE = re.compile(r"(:{3,})[ \t]*(\{?[A-Za-z][^`]*)\Z")
_DIRECTIVE_INFO = re.compile(r"\{([\w:+.-]+)\}[ \t]*(.*)\Z")
_ADMONITION_INFO = re.compile(r"([A-Za-z][\w-]*)[ \t]*(.*)\Z")
_ROLE = re.compile(r"\{([\w:+.-]+)\}`([^`\n]+(?:\n[^`\n]+)*)`")
_LINK = re.compile(r"(?<=\])\(([^()\s:]+)\)")
"""Destination of a link that has no scheme."""

_TEXT_ROLES = frozenset({"ref", "doc", "any", "numref", "term", "download", "abbr", "sub", "sup"})
_UNSEEN = re.compile(r"(?:\+\+\+(?: .*)?|%(?: .*)?)\Z")
"""A line that breaks blocks, or a comment."""

_BARE_API = re.compile(r"^\.\. (auto\w+):: *(\S+)\n(?:[ \t]+:.*\n?)*", re.MULTILINE)
"""A directive of reStructuredText that stands outside its fence, as on some pages of torch."""

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
_MOST_NESTED = 10


def split_front_matter(text: str) -> tuple[dict[str, object], str]:
    """Return the mapping between two `---` lines at the top, and the text below; all is text when it is no mapping."""
    match = _FRONT_MATTER.match(text)
    if match is None:
        return {}, text
    try:
        header = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, text
    return (header, text[match.end() :]) if isinstance(header, dict) else ({}, text)


def to_markdown(text: str, *, links: ApiLinks, depth: int = 0) -> str:
    """Return the page or the part of a page `text` as Markdown; targets `(label)=` stay where they are."""
    if depth > _MOST_NESTED:
        return text
    return "\n".join(_pieces(text, links=links, depth=depth))


def block_parser() -> MarkdownIt:
    """Return a parser of blocks alone, with fences of colons; inline markup costs time and is not looked at."""
    parser = MarkdownIt("commonmark").enable("table").disable("inline")
    parser.block.ruler.before("fence", "colon_fence", _colon_fence, {"alt": ["paragraph", "blockquote", "list"]})
    return parser


def lines_of(text: str) -> list[str]:
    """Split where markdown-it does; a lone `\\r` and NUL, which it treats otherwise, become spaces."""
    return text.replace("\r\n", "\n").replace("\r", " ").replace("\0", " ").split("\n")


def _pieces(text: str, *, links: ApiLinks, depth: int) -> Iterator[str]:
    """Yield running text with its roles rendered, code as it stands, and directives as Markdown."""
    lines = lines_of(text)
    at = 0
    for token in block_parser().parse("\n".join(lines)):
        if token.map is None or token.type not in ("fence", "colon_fence", "code_block", "html_block"):
            continue
        start, end = token.map
        if start > at:
            yield _running_text(lines[at:start], links)
        shown = _directive(token, lines[start:end], links=links, depth=depth)
        at = max(end, at)
        if shown is None:
            yield "\n".join(lines[start:end])
            continue
        if shown.strip():
            yield f"{shown}\n" if start == 0 or not lines[start - 1].strip() else f"\n{shown}\n"
        at = next((number for number in range(at, len(lines)) if lines[number].strip()), len(lines))
    if at < len(lines):
        yield _running_text(lines[at:], links)


def _running_text(lines: list[str], links: ApiLinks) -> str:
    text = "\n".join(line for line in lines if not _UNSEEN.match(line))
    text = _BARE_API.sub(lambda match: f"- {links.link(match[2])}\n", text)
    return _roles(_LINK.sub(lambda match: f"({links.destination(match[1])})", links_as_markdown(text)), links)


def _roles(text: str, links: ApiLinks) -> str:
    return _ROLE.sub(lambda match: links.reference(match[1], match[2]) or _role(match), text)


def _role(match: re.Match[str]) -> str:
    label = " ".join(role_label(match[2]).split())
    if match[1] == "math":
        return f"${label}$"
    return label if match[1].rpartition(":")[2] in _TEXT_ROLES else f"`{label}`"


def _directive(token: Token, lines: list[str], *, links: ApiLinks, depth: int) -> str | None:
    """Render a fenced block that is a directive; None for code, and for what stands in a quotation."""
    info = token.info.strip()
    match = _DIRECTIVE_INFO.match(info)
    if match is None and token.type == "colon_fence":
        match = _ADMONITION_INFO.match(info)
    margin = lines[0][: len(lines[0]) - len(lines[0].lstrip())] if lines else ""
    if match is None or not lines[0].lstrip().startswith(token.markup):
        return None
    name, argument = match[1], match[2].strip()
    content = token.content
    if name == "eval-rst":
        shown = rest.to_markdown(content, links=links, depth=depth + 1)
    else:

        def nested(text: str) -> str:
            return to_markdown(text, links=links, depth=depth + 1) if text.strip() else ""

        argument = _roles(argument, links)
        shown = render(read_directive(name, argument, content.rstrip("\n").split("\n")), links=links, nested=nested)
    return "\n".join(f"{margin}{line}".rstrip() for line in shown.split("\n"))


def _colon_fence(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse `:::{name} argument` up to a line of as many colons, as markdown-it's own rule does for backticks."""
    if state.is_code_block(start):
        return False
    opening = _COLON_FENCE.match(_line(state, start))
    if opening is None:
        return False
    if silent:
        return True
    marks = opening[1]
    line = start + 1
    while line < end and not _ends(state, line, len(marks)):
        if _line(state, line) and state.sCount[line] < state.blkIndent:
            break  # The list item that the fence lies in ends here.
        line += 1
    token = state.push("colon_fence", "code", 0)
    token.info = opening[2].strip()
    token.content = state.getLines(start + 1, line, state.sCount[start], True)
    token.markup = marks
    state.line = line + 1 if line < end and _ends(state, line, len(marks)) else line
    token.map = [start, state.line]
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()


def _ends(state: StateBlock, number: int, marks: int) -> bool:
    text = _line(state, number)
    return len(text) >= marks and not text.strip(":")
