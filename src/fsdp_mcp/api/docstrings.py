"""Parses Google docstrings of torch into a summary, a text and a description for each parameter, all as Markdown."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import dedent, indent
from typing import Any

import griffe

from fsdp_mcp.api.rst import inline, role_label, to_markdown
from fsdp_mcp.models import ApiParameter, ApiSymbol

_TITLES = (
    "Args|Arguments|Params|Parameters|Keyword args|Keyword Args|Keyword arguments|Keyword Arguments"
    "|Attributes|Returns?|Raises|Yields"
)
_HEADER = re.compile(rf"^([ \t]*)({_TITLES}|Examples?|Usage)[ \t]*:{{1,2}}[ \t]*$", re.MULTILINE)
_NO_SUMMARY = re.compile(r"^\w+\([^\n]*\) -> \S.*$|^\w+\([^\n]*\)$|^(Examples?|Usage):$")
_TABLE = re.compile(
    r"^[ \t]*(Args|Arguments|Params|Parameters|Keyword [Aa]rg(ument)?s|Attributes|Raises)[ \t]*:[ \t]*$"
)
_ENTRY_HEAD = re.compile(r"^\s*[`*\\.\w]+( *\(.*)?( *:|$)|^\s*[-*] ")
_ROLE = re.compile(r":(?:[\w+-]+:)*[\w+-]+:`([^`]+)`")
_ENTRY = re.compile(r"^(\s+\*{0,2}\w+) *(\([^\n]*?\))? +:(?= |$)", re.MULTILINE)
_ADMONITIONS = (
    *("note", "notes", "warning", "warnings", "tip", "important", "todo", "caveats", "caution", "hint", "usage"),
    "see also",
)
_STRUCTURE = {
    *re.findall(r"\w+", _TITLES.replace("?", "").casefold()),
    *("return", "example", "examples", "optional", "deprecated", "python"),
}
"""Words that the rendering may add or drop without a loss to the reader."""

logging.getLogger("griffe").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class ParsedDocstring:
    """A docstring taken apart.

    Args:
        summary: first paragraph.
        text: everything but the parameter table.
        descriptions: parameter or attribute name, without stars, to its description.
        types: the same names to the type that the docstring gives.
        returns: type of the returned value, when the docstring gives one.
    """

    summary: str | None = None
    text: str | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    returns: str | None = None


def document(symbol: ApiSymbol, docstring: str | None) -> ApiSymbol:
    """Return the symbol with what its docstring says: parameters come from the signature, descriptions join them."""
    if not docstring or not docstring.strip():
        return symbol
    known = [parameter.name.lstrip("*") for parameter in symbol.parameters]
    parsed = parse_docstring(docstring, known)
    return symbol.model_copy(
        update={
            "summary": parsed.summary,
            "text": parsed.text,
            "returns": symbol.returns or parsed.returns,
            "parameters": tuple(_described(parameter, parsed) for parameter in symbol.parameters),
        }
    )


def _described(parameter: ApiParameter, parsed: ParsedDocstring) -> ApiParameter:
    name = parameter.name.lstrip("*")
    return parameter.model_copy(
        update={
            "description": parsed.descriptions.get(name, parameter.description),
            "type": parameter.type or parsed.types.get(name),
        }
    )


def parse_docstring(docstring: str, known: Iterable[str]) -> ParsedDocstring:
    """Take a docstring apart; entries of its table that are none of the `known` parameters stay in the text.

    When the sections that were found do not hold every word of the docstring, the text is the whole docstring: a
    parser's guess never costs the reader a sentence.
    """
    known = set(known)
    sections = _sections(clean(docstring))
    table: dict[str, tuple[str, str]] = {}
    parts: list[str] = []
    returns: str | None = None
    for section in sections:
        entries, text = _read_section(section, known)
        table.update(entries)
        parts.append(text)
        if section.kind is griffe.DocstringSectionKind.returns:
            returns = _type_of(section.value[0])
    text = "\n\n".join(part for part in parts if part.strip())
    kept = _words(text, *table, *(part for entry in table.values() for part in entry))
    if _words(to_markdown(docstring)) - kept - _STRUCTURE:
        text = to_markdown(docstring)
    return ParsedDocstring(
        summary=_first_paragraph(text),
        text=text or None,
        descriptions={name: described for name, (_, described) in table.items() if described},
        types={name: typed for name, (typed, _) in table.items() if typed},
        returns=returns,
    )


def _sections(docstring: str) -> list[Any]:
    """Return griffe's sections, none when it stumbles: griffelib 2.x raises IndexError on a bare colon in Yields."""
    try:
        return griffe.parse_google(
            griffe.Docstring(docstring),
            warnings=False,
            trim_doctest_flags=False,
            returns_named_value=False,
            returns_multiple_items=False,
        )
    except (IndexError, KeyError, ValueError, AttributeError):
        return []


def clean(docstring: str) -> str:
    """Repair what keeps a Google parser from seeing torch's tables.

    Double colons after a title, a title without a blank line before it or with one after it, roles inside a type,
    and a space before the colon of an entry.
    """
    lines: list[str] = []
    for line in docstring.expandtabs().splitlines():
        header = _HEADER.match(line)
        if header and lines and lines[-1].strip():
            lines.append("")
        if not line.strip() and lines and _HEADER.match(lines[-1]):
            continue
        lines.append(f"{header[1]}{header[2]}:" if header else _roles_in_head(line))
    text = "\n".join(_indent_continuations(lines))
    return _ENTRY.sub(lambda match: f"{match[1]}{' ' + match[2] if match[2] else ''}:", text)


def _indent_continuations(lines: list[str]) -> Iterator[str]:
    """Yield the lines, those deeper that continue an entry of a table and are written as if they began one."""
    margin: int | None = None
    for before, line in pairwise(["", *lines]):
        indented = len(line) - len(line.lstrip())
        if _TABLE.match(before):
            margin = indented
        elif margin is not None and line.strip() and indented < margin:
            margin = None
        continues = bool(before.strip()) and not _TABLE.match(before) and not _ENTRY_HEAD.match(line)
        yield f"    {line}" if line.strip() and indented == margin and continues else line


def _roles_in_head(line: str) -> str:
    """Replace roles in the head of a table entry, up to its colon: `name (:class:`~a.B`, optional): ...`."""
    head = re.match(r"^\s+\*{0,2}\w+ ?\((?:[^()]|\([^()]*\))*\) ?:", line)
    if head is None:
        return line
    return _ROLE.sub(lambda match: role_label(match[1]), head[0]) + line[head.end() :]


def _read_section(section: Any, known: set[str]) -> tuple[dict[str, tuple[str, str]], str]:
    """Return the table entries of a section for known parameters, and the Markdown of everything else in it."""
    kinds = griffe.DocstringSectionKind
    match section.kind:
        case kinds.text:
            return {}, to_markdown(section.value)
        case kinds.parameters | kinds.other_parameters | kinds.attributes:
            return _read_table(section, known)
        case kinds.returns | kinds.yields | kinds.receives | kinds.raises | kinds.warns:
            return {}, _listed(section)
        case kinds.examples:
            return {}, _titled("Example", "\n\n".join(to_markdown(text) for _, text in section.value))
        case kinds.admonition:
            return {}, _admonition(section)
        case _:
            return {}, _listed(section)


def _read_table(section: Any, known: set[str]) -> tuple[dict[str, tuple[str, str]], str]:
    entries: dict[str, tuple[str, str]] = {}
    others: list[str] = []
    for item in section.value:
        name = item.name.strip().lstrip("*\\")
        typed, described = _type_of(item) or "", to_markdown(_straightened(item.description or ""))
        if name in known and name not in entries:
            entries[name] = (typed, described)
        else:
            others.append(_bullet(item.name.strip(), typed, described))
    title = "Attributes" if section.kind is griffe.DocstringSectionKind.attributes else "Also documented"
    return entries, _titled(title, "\n".join(others)) if others else ""


def _straightened(description: str) -> str:
    """Return a description whose later lines lose their common margin: torch aligns them below the first word."""
    first, newline, rest = description.partition("\n")
    return f"{first}{newline}{dedent(rest)}"


def _type_of(item: Any) -> str | None:
    """Return the type that an entry gives, without the words about being optional."""
    annotation = str(item.annotation) if item.annotation is not None else ""
    annotation = re.sub(r",?\s*\b(optional|deprecated)\b\.?", "", inline(annotation).replace("`", "")).strip(" ,")
    return annotation or None


def _bullet(name: str, typed: str, described: str) -> str:
    head = f"- `{name}`" + (f" ({typed})" if typed else "")
    return f"{head}: {indent(described, '  ').strip()}" if described else head


def _listed(section: Any) -> str:
    """Return the Markdown of a section of items: returns, raises and their like."""
    title = section.title or str(section.kind.value).capitalize()
    items = section.value if isinstance(section.value, list) else [section.value]
    shown = []
    for item in items:
        name = getattr(item, "name", "") or ""
        typed = _type_of(item) if hasattr(item, "annotation") else None
        head = " ".join(part for part in (name, typed) if part)
        body = to_markdown(item.description or "")
        shown.append(f"{head}: {body}" if head and body else head or body)
    return _titled(
        title, shown[0] if len(shown) == 1 else "\n".join(f"- {indent(item, '  ').strip()}" for item in shown)
    )


def _admonition(section: Any) -> str:
    """Return a note as such; a prose line that merely ends in a colon becomes prose again."""
    kind, contents = str(section.value.kind).replace("-", " "), section.value.contents
    title = section.title or kind
    if title.casefold() != kind.casefold():  # `WARN: text`, with or without more below.
        return to_markdown(f"{kind.capitalize()}: {title}\n{contents}".rstrip())
    if kind.casefold() in _ADMONITIONS:
        return _titled(title, to_markdown(contents))
    return to_markdown(f"{title}:\n\n{indent(contents, '    ')}")


def _titled(title: str, body: str) -> str:
    separator = "\n\n" if body.startswith(("```", "- ", ">")) else " "
    return f"**{title}:**{separator}{body}"


def _first_paragraph(text: str) -> str | None:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if not paragraph.startswith((">", "```", "**")) and not _NO_SUMMARY.match(paragraph):
            return " ".join(paragraph.split()) or None
    return None


def _words(*texts: str) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text.casefold())}
