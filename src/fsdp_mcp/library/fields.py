"""Renders the field lists of Sphinx: parameters, results and errors as lists, settings of a page not at all."""

from __future__ import annotations

import re

_FIELD = re.compile(r"^:(\w+)(?:[ \t]+([^:\n`]+))?:(?:[ \t]+|$)", re.MULTILINE)
_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_ERRORS = frozenset({"raises", "raise", "except", "exception"})
_OTHERS = {"return": "Returns", "returns": "Returns", "rtype": "Return type"}
_SETTINGS = re.compile(
    r"\A\s*(?:^:(?:github_url|orphan|tocdepth|nocomments|no-?search|hidden):.*(?:\n|\Z)\s*)+", re.MULTILINE
)


def without_settings(text: str) -> str:
    """Return a page without the fields on top that only Sphinx reads."""
    return _SETTINGS.sub("", text)


def render_fields(text: str) -> str:
    """Return running text with `:param int n: ...` and its kin, at the beginning of a line, as list items."""
    return _FIELD.sub(_item, text)


def _item(match: re.Match[str]) -> str:
    name, argument = match[1], (match[2] or "").strip()
    if name in _OTHERS and not argument:
        return f"- {_OTHERS[name]}: "
    if name in _PARAMETERS and argument:
        kind, _, parameter = argument.rpartition(" ")
        return f"- `{parameter}` ({kind}): " if kind else f"- `{parameter}`: "
    if name in _ERRORS and argument:
        return f"- Raises `{argument}`: "
    return f"- Type of `{argument}`: " if name == "type" and argument else match[0]
