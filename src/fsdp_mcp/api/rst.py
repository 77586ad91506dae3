"""Renders the reStructuredText of torch's docstrings as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

_ROLE = re.compile(r":(?:[\w+-]+:)*[\w+-]+:`([^`]+)`")
_LINK = re.compile(r"`([^`<>]+?)\s*<((?:https?|ftp)://[^`<>\s]+)>`__?")
_LITERAL = re.compile(r"``(.+?)``", re.DOTALL)
_DIRECTIVE = re.compile(r"^(\s*)\.\. +([\w:-]+):: *(.*)$")
_DOCTEST = re.compile(r"^\s*(>>>|\.\.\.)( |$)")
_XDOCTEST = re.compile(r"^\s*(?:>>>|\.\.\.)\s*#\s*x?doctest:.*$|\s*#\s*xdoctest:.*$", re.IGNORECASE)
_FENCE = re.compile(r"^\s*(```|~~~)")
_OPTION = re.compile(r"^\s*:[\w-]+:")
_CODE = frozenset({"code", "code-block", "sourcecode", "testcode", "testoutput", "parsed-literal", "highlight"})
_SINCE = {"deprecated": "Deprecated since", "versionadded": "New in", "versionchanged": "Changed in"}


def to_markdown(text: str) -> str:
    """Return `text` as Markdown: roles, literals, links, directives, literal blocks and doctests are rendered."""
    lines = dedent(text.expandtabs()).strip("\n").splitlines()
    blocks = list(_blocks(lines))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(blocks)).strip("\n")


def inline(text: str) -> str:
    """Return a piece of running text with its roles, double backticks and links as Markdown."""
    text = links_as_markdown(text)
    text = _ROLE.sub(lambda match: f"`{role_label(match[1])}`", text)
    return _LITERAL.sub(lambda match: _code_span(match[1]), text)


def links_as_markdown(text: str) -> str:
    """Return running text with its links of reStructuredText as Markdown links."""
    return _LINK.sub(lambda match: f"[{' '.join(match[1].split())}]({match[2]})", text)


def role_label(content: str) -> str:
    """Return what a role shows: its title, the last part after `~`, else its target."""
    titled = re.fullmatch(r"\s*(.+?)\s*<[^<>]*>\s*", content, re.DOTALL)
    if titled:
        return titled[1]
    return content[1:].rpartition(".")[2] or content if content.startswith("~") else content.lstrip("!")


def _code_span(content: str) -> str:
    return f"`{content}`" if "`" not in content else f"`` {content} ``"


def _blocks(lines: list[str]) -> Iterator[str]:
    """Yield the Markdown of the lines, block by block."""
    at = 0
    while at < len(lines):
        directive = _DIRECTIVE.match(lines[at])
        if directive:
            end = _end_of_block(lines, at + 1, len(directive[1]))
            yield _directive(directive[2], directive[3], lines[at + 1 : end], directive[1])
        elif _DOCTEST.match(lines[at]):
            end = _end_of_doctest(lines, at)
            yield _doctest(lines[at:end])
        elif _FENCE.match(lines[at]):
            end = _end_of_fence(lines, at)
            yield "\n".join(lines[at:end])
        elif lines[at].rstrip().endswith("::"):
            end = _end_of_block(lines, at + 1, _indent(lines[at]))
            yield from _literal_block(lines[at], lines[at + 1 : end])
        else:
            end = _end_of_prose(lines, at)
            yield inline("\n".join(lines[at:end]))
        at = end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _end_of_block(lines: list[str], start: int, indent: int) -> int:
    """Return where the lines indented deeper than `indent` end; blank lines inside belong to them."""
    end = start
    for at in range(start, len(lines)):
        if not lines[at].strip():
            continue
        if _indent(lines[at]) <= indent:
            break
        end = at + 1
    return end


def _end_of_doctest(lines: list[str], start: int) -> int:
    """Return where a doctest ends: at a blank line that no further prompt follows at once."""
    at = start
    while at < len(lines):
        if lines[at].strip() or (at + 1 < len(lines) and _DOCTEST.match(lines[at + 1])):
            at += 1
        else:
            break
    return at


def _end_of_fence(lines: list[str], start: int) -> int:
    closing = next((at for at in range(start + 1, len(lines)) if _FENCE.match(lines[at])), len(lines) - 1)
    return closing + 1


def _end_of_prose(lines: list[str], start: int) -> int:
    for at in range(start + 1, len(lines)):
        line = lines[at]
        if line.rstrip().endswith("::") or any(pattern.match(line) for pattern in (_DIRECTIVE, _DOCTEST, _FENCE)):
            return at
    return len(lines)


def _directive(name: str, argument: str, body: list[str], indent: str) -> str:
    name = name.lower().rpartition(":")[2]
    if name in _CODE:
        language = argument.split(maxsplit=1)[0] if argument.split() else "python"
        return _fence(_without_options(body), language)
    if name == "math":
        return "\n".join(
            ["", "$$", *[line.strip() for line in [argument, *_without_options(body)] if line.strip()], "$$", ""]
        )
    title = _SINCE.get(name, name.replace("-", " ").capitalize())
    if name in _SINCE:
        version, _, rest = argument.partition(" ")
        title, argument = f"{title} {version}", rest
    content = "\n".join([argument, dedent("\n".join(body))]).strip("\n")
    shown = f"**{title.strip()}:** {to_markdown(content)}".rstrip()
    return "\n".join(["", *(f"{indent}> {line}".rstrip() for line in shown.splitlines()), ""])


def _without_options(body: list[str]) -> list[str]:
    """Return the body of a directive without its leading `:option: value` lines."""
    start = 0
    while start < len(body) and _OPTION.match(body[start]):
        start += 1
    return body[start:]


def _fence(body: list[str], language: str) -> str:
    """Return a fenced block; text that holds a fence itself gets a longer one."""
    code = _ROLE.sub(lambda match: role_label(match[1]), dedent("\n".join(strip_xdoctest(body))).strip("\n"))
    marks = "````" if "```" in code else "```"
    return f"\n{marks}{language}\n{code}\n{marks}\n" if code.strip() else ""


def strip_xdoctest(lines: list[str]) -> list[str]:
    """Return the lines without directives to the doctest runner."""
    kept = []
    for line in lines:
        stripped = _XDOCTEST.sub("", line)
        if stripped.strip() or not line.strip():
            kept.append(stripped)
    return kept


def _doctest(lines: list[str]) -> str:
    return _fence(lines, "python")


def _literal_block(opening: str, body: list[str]) -> Iterator[str]:
    """Yield the paragraph that ends in `::` and its literal block; without a block the colons stay."""
    text = opening.rstrip()
    if not any(line.strip() for line in body):
        yield inline(text)
        yield from body
        return
    if text.strip() != "::":
        yield inline(text[:-1])
    language = "python" if _looks_like_python(body) else ""
    yield _fence(body, language)


def _looks_like_python(body: list[str]) -> bool:
    text = "\n".join(body)
    return bool(re.search(r">>>|^\s*(import|from|def|class|with|for|if) |\w\(.*\)|\w = ", text, re.MULTILINE))
