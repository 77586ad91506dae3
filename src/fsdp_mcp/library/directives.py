"""Renders the directives of Sphinx, which MyST and reStructuredText pages share, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import dedent, indent

from fsdp_mcp.library import tables
from fsdp_mcp.library.links import ApiLinks

_OPTION = re.compile(r"^\s*:([\w-]+):(?:\s+(.*))?$")
_YAML_OPTION = re.compile(r"^([\w-]+):(?:\s+(.*))?$")
_YAML_EDGE = "---"
_CODE = frozenset(
    {"code", "code-block", "code-cell", "sourcecode", "testcode", "testoutput", "parsed-literal", "literalinclude"}
)
_MODULES = frozenset({"currentmodule", "module", "automodule"})
_SETTINGS = frozenset({"role", "default-role", "contents", "highlight", "index", "meta", "tabularcolumns", "testsetup"})
_CONTAINERS = frozenset(
    {"container", "div", "grid", "grid-item", "grid-item-card", "card", "tab-set", "tab-item", "table"}
    | {"rst-class", "only", "details", "dropdown", "glossary", "centered", "hlist", "line-block"}
)
_OBJECTS = frozenset({"function", "class", "method", "attribute", "data", "exception", "staticmethod", "classmethod"})
_SINCE = {"deprecated": "Deprecated since", "versionadded": "New in", "versionchanged": "Changed in"}
_MEMBERS = "members"

Nested = Callable[[str], str]
"""Renders running text in the language of the page."""


@dataclass(frozen=True)
class Directive:
    """One directive: `name`, what stands beside it, its options, and the text below."""

    name: str
    argument: str
    body: str
    options: dict[str, str] = field(default_factory=dict)


def read_directive(name: str, argument: str, lines: list[str]) -> Directive:
    """Return the directive whose lines below the first are `lines`.

    Options are the `:key: value` lines on top, or those `key: value` between two `---`, as MyST has them, too.
    """
    rest = dedent("\n".join(lines)).split("\n")
    between = _between_edges(rest)
    pattern, start, end = (_YAML_OPTION, 1, len(between) + 2) if between else (_OPTION, 0, 0)
    options: dict[str, str] = {}
    while start < len(rest) and (match := pattern.match(rest[start])):
        options[match[1]] = (match[2] or "").strip()
        start += 1
    body = "\n".join(rest[max(start, end) :]).strip("\n")
    return Directive(name.lower().rpartition(":")[2], argument.strip(), body, options)


def _between_edges(lines: list[str]) -> list[str]:
    """Return the options between two `---` on top; none when there are no edges or something else is between them."""
    edges = [at for at, line in enumerate(lines) if line.strip() == _YAML_EDGE][:2]
    if len(edges) < 2 or edges[0] != 0:
        return []
    found = lines[1 : edges[1]]
    return found if all(map(_YAML_OPTION.match, found)) else []


def render(directive: Directive, *, links: ApiLinks, nested: Nested) -> str:
    """Return the Markdown of `directive`."""
    draw = _DRAWN.get(directive.name, _api if directive.name.startswith("auto") else _note)
    return draw(directive, links, nested)


def _module(directive: Directive, links: ApiLinks, nested: Nested) -> str:
    links.enter(directive.argument)
    shown = f"Module {links.link(directive.argument)}" if directive.name == "automodule" else ""
    return _paragraphs(shown, _module_members(directive, links), nested(directive.body))


def _module_members(directive: Directive, links: ApiLinks) -> str:
    """Return a list of what the page documents of a module: the members that it names, or all that the index has."""
    if directive.name != "automodule" or _MEMBERS not in directive.options:
        return ""
    left_out = set(_names(directive.options.get("exclude-members", "")))
    names = _names(directive.options[_MEMBERS]) or links.members(directive.argument)
    return "\n".join(f"- {links.link(name)}" for name in names if name.rpartition(".")[2] not in left_out)


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def _setting(directive: Directive, _: ApiLinks, nested: Nested) -> str:
    return nested(directive.body)


def _api(directive: Directive, links: ApiLinks, nested: Nested) -> str:
    """Return a list item for what is documented here, with the members that the page names one by one."""
    shown = f"- {links.link(directive.argument)}"
    members = _names(directive.options.get(_MEMBERS, ""))
    if members:
        shown += f": {', '.join(f'`{member}`' for member in members)}"
    with links.inside(directive.argument):
        return _paragraphs(shown, nested(directive.body))


def _api_list(directive: Directive, links: ApiLinks, _: Nested) -> str:
    return "\n".join(f"- {links.link(name)}" for name in directive.body.split())


def _object(directive: Directive, links: ApiLinks, nested: Nested) -> str:
    with links.inside(directive.argument):
        return _paragraphs(f"`{directive.argument}`" if directive.argument else "", nested(directive.body))


def _items(directive: Directive, links: ApiLinks, _: Nested) -> str:
    lines = [line.strip() for line in directive.body.split("\n") if line.strip()]
    return "\n".join(f"- {links.reference('doc', line) or line}" for line in lines)


def _code(directive: Directive, _: ApiLinks, __: Nested) -> str:
    """Return a fenced block; one that holds a fence itself gets a longer one."""
    if not directive.body.strip():
        return f"`{directive.argument}`" if directive.name == "literalinclude" else ""
    language = directive.argument.split(maxsplit=1)[0] if directive.argument else "python"
    marks = "```"
    while marks in directive.body:
        marks += "`"
    return f"{marks}{language}\n{directive.body}\n{marks}"


def _math(directive: Directive, _: ApiLinks, __: Nested) -> str:
    lines = ["$$", directive.argument, directive.body, "$$"]
    return "\n".join(line for line in lines if line.strip())


def _image(directive: Directive, _: ApiLinks, nested: Nested) -> str:
    shown = f"![{directive.options.get('alt', '')}]({directive.argument})"
    return _paragraphs(shown, nested(directive.body))


def _container(directive: Directive, _: ApiLinks, nested: Nested) -> str:
    return _paragraphs(f"**{directive.argument}**" if directive.argument else "", nested(directive.body))


def _list_table(directive: Directive, links: ApiLinks, nested: Nested) -> str:
    rows = directive.options.get("header-rows", "")
    shown = tables.list_table(nested(directive.body), header_rows=int(rows) if rows.isdigit() else 0)
    return _titled(directive, shown, links, nested)


def _csv_table(directive: Directive, links: ApiLinks, nested: Nested) -> str:
    shown = tables.csv_table(directive.body, header=directive.options.get("header", ""))
    return _titled(directive, nested(shown) if shown else None, links, nested)


def _titled(directive: Directive, shown: str | None, links: ApiLinks, nested: Nested) -> str:
    """Return a table below its title; what is no table is shown as it stands."""
    if shown is None:
        return _container(directive, links, nested)
    return _paragraphs(f"**{directive.argument}**" if directive.argument else "", shown)


def _note(directive: Directive, _: ApiLinks, nested: Nested) -> str:
    """Return a quotation with the directive's name as its first word: what a reader knows as a note or a warning."""
    title = _SINCE.get(directive.name, directive.name.replace("-", " ").capitalize())
    argument = directive.argument
    if directive.name in _SINCE:
        version, __, argument = argument.partition(" ")
        title = f"{title} {version}"
    if directive.name == "admonition":
        title, argument = argument or title, ""
    content = nested("\n".join(filter(None, [argument, directive.body])))
    return indent(f"**{title.strip()}:** {content}".rstrip(), "> ", lambda line: True)


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part.strip())


_DRAWN: dict[str, Callable[[Directive, ApiLinks, Nested], str]] = {
    **dict.fromkeys(_MODULES, _module),
    **dict.fromkeys(_SETTINGS, _setting),
    **dict.fromkeys(_OBJECTS, _object),
    **dict.fromkeys(_CODE, _code),
    **dict.fromkeys(_CONTAINERS, _container),
    "list-table": _list_table,
    "csv-table": _csv_table,
    "image": _image,
    "figure": _image,
    "autosummary": _api_list,
    "toctree": _items,
    "math": _math,
}
