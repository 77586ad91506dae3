"""Tells of one parameter of an API: what holds in a release, which release brought it, which was its last."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fsdp_mcp.api.answer import ApiAnswer
from fsdp_mcp.api.changes import Change, counterpart_names, remark, replacement
from fsdp_mcp.api.history import History


def about_parameter(history: History, path: str, parameter: str, at: int, *, changes: Sequence[Change]) -> str | None:
    """Return what to know of `parameter` of the API `path` in the release `at`; None when no release has it.

    Args:
        history: of all releases.
        path: the API.
        parameter: its name, without stars.
        at: index of the release that is asked about.
        changes: those of the API, of which the ones about the parameter are told.
    """
    names = counterpart_names(history, path)
    present = [
        release
        for release in range(len(history.releases))
        if any(history.exists(f"{name}#param-{parameter}", release) for name in names)
    ]
    if not present:
        return None
    version = history.releases[at]
    if at in present:
        return f"`{parameter}` is a parameter of {path}.{_changes_of(changes, parameter)}"
    if not any(history.exists(name, at) for name in names):
        return f"`{parameter}` is a parameter of {path} in torch {_span(history, present)}."
    later, earlier = [release for release in present if release > at], [release for release in present if release < at]
    if later:
        return f"In torch {version} {path} has no parameter `{parameter}`; it came with {history.releases[later[0]]}."
    return (
        f"In torch {version} {path} no longer has the parameter `{parameter}`; "
        f"torch {history.releases[earlier[-1]]} was the last.{_instead(path, parameter)}"
    )


def _span(history: History, present: Sequence[int]) -> str:
    first, last = history.releases[present[0]], history.releases[present[-1]]
    return first if first == last else f"{first} to {last}"


def _instead(path: str, parameter: str) -> str:
    """Return what official text names in place of a removed parameter, as one more sentence."""
    name = f"{path}#param-{parameter}"
    new, note = replacement(name), remark(name)
    instead = f" Use instead: `{new.rpartition('#param-')[2]}`." if new else ""
    return f"{instead} {note}" if note else instead


def _changes_of(changes: Sequence[Change], parameter: str) -> str:
    """Return what the releases changed about a parameter, as one more sentence, empty for nothing."""
    named = re.compile(rf"`{re.escape(parameter)}[`=]|\b{re.escape(parameter)}=")
    told = [f"{item.version}: {item.change}" for item in changes if named.search(item.change)]
    return f" {'; '.join(told)}." if told else ""


def no_such_parameter(history: History, path: str, name: str, owner: ApiAnswer, elsewhere: Sequence[str]) -> str:
    """Return the text of the error for a name that no release is known to have below an API.

    Args:
        history: of all releases.
        path: the API.
        name: what was asked for below it.
        owner: what is known of the API.
        elsewhere: the APIs of that name.
    """
    releases = f"{history.releases[0]} to {history.releases[-1]}"
    public = [item.name for item in owner.parameters if not item.name.lstrip("*").startswith("_")]
    lists = {"Its parameters": public, "Its members": owner.members, "APIs of that name": elsewhere}
    told = [f"{label}: {', '.join(names)}." for label, names in lists.items() if names]
    head = (
        f"No parameter or public member {name!r} of {path} is recorded for torch {releases}; what it inherits from "
        "elsewhere, and what a C++ binding has beyond its stub, is not recorded."
    )
    return " ".join([head, *told])
