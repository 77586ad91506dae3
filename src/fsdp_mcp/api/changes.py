"""Tells the story of one API: since when, until when, what each release changed, where it went."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from pydantic import Field

from fsdp_mcp.api.history import History, Record, positional
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import ApiParameter, Value

Status = Literal["available", "deprecated", "removed", "moved", "not_yet"]
_MEMBERS = ("method", "property")
_ALIKE = 0.4


class Change(Value):
    """What one release changed."""

    version: str = Field(description="Release, X.Y")
    change: str


class Correction(Value):
    """One row of `facts/api_corrections.yaml`: what comparing files cannot show."""

    name: str
    since: str | None = None
    replaced_by: str | None = None
    version: str | None = None
    note: str | None = None
    deprecated: str | None = None
    source: str


class Story(Value):
    """The history of one path, as seen from one release."""

    status: Status
    since: str | None = None
    since_exact: bool = True
    until: str | None = None
    changes: tuple[Change, ...] = ()
    replaced_by: str | None = None
    deprecated: str | None = Field(default=None, description="Text of the deprecation in force")


@lru_cache(maxsize=1)
def _corrections() -> dict[str, list[Correction]]:
    found: dict[str, list[Correction]] = {}
    for row in load_facts("api_corrections", Correction):
        found.setdefault(row.name, []).append(row)
    return found


def replacement(name: str) -> str | None:
    """Return what official text names in place of `name`."""
    return next((row.replaced_by for row in _corrections().get(name, ()) if row.replaced_by), None)


def remark(name: str) -> str | None:
    """Return what is to be known of `name` in whatever release."""
    return next((row.note for row in _corrections().get(name, ()) if row.note and not row.version), None)


def tell(history: History, path: str, at: int) -> Story:
    """Return the story of a path that some release has, with its status in the release of index `at`."""
    name = history.resolve(path, at)
    record = history.record(name) if name is not None else None
    first, last = history.first(path), history.last(path)
    since, exact = _since(history, path, first)
    deprecated = _deprecated(history, record, at)
    status = _status(history, path, at, deprecated=deprecated)
    return Story(
        status=status,
        since=since,
        since_exact=exact,
        until=history.releases[last] if last is not None and last < history.newest else None,
        changes=tuple(_changes(history, _named(history, path, last))),
        replaced_by=_replacement(history, path, at, status, record),
        deprecated=deprecated,
    )


def _named(history: History, path: str, last: int | None) -> str:
    """Return the qualified name that the path led to in the last release that has it."""
    return path if last is None else history.resolve(path, last) or path


def _deprecated(history: History, record: Record | None, at: int) -> str | None:
    """Return the deprecation that the code marks, else what official pages declare where the successor exists."""
    if record is None:
        return None
    declared = (
        row.deprecated
        for row in _corrections().get(record.name, ())
        if row.deprecated and row.replaced_by and history.exists(row.replaced_by, at)
    )
    return record.deprecated(at) or next(declared, None)


def _status(history: History, path: str, at: int, *, deprecated: str | None) -> Status:
    if history.exists(path, at):
        return "deprecated" if deprecated else "available"
    if is_bound(history, path, at):
        return "available"
    if not any(history.exists(path, earlier) for earlier in range(at)):
        return "not_yet"
    return "moved" if successor(history, path, at) else "removed"


def is_bound(history: History, path: str, at: int) -> bool:
    """Whether the compiled library of a release has a C++ member that its stub does not name yet."""
    first = history.first(path)
    name = history.resolve(path, first) if first is not None and at < first else None
    record = history.record(name) if name is not None else None
    return record is not None and record.binary is not None and history.index(record.binary) <= at


def _since(history: History, path: str, first: int | None) -> tuple[str | None, bool]:
    """Return the first release and whether it is exact.

    A stub of C++ types lags behind the binding, so it only says `at the latest since`; the compiled library of an
    earlier release tells when it holds the name already.
    """
    for row in _corrections().get(path, ()):
        if row.since:
            return row.since, True
    if first is None:
        return None, False
    name = history.resolve(path, first)
    record = history.record(name) if name is not None else None
    if record is None or not record.from_stub or first == 0:
        return history.releases[first], True
    if record.binary is None:
        return history.releases[first], False
    return history.releases[min(first, history.index(record.binary))], True


def _replacement(history: History, path: str, at: int, status: Status, record: Record | None) -> str | None:
    """Return what to use instead: from the corrections, from where the object went, or from the deprecation's text."""
    if status == "not_yet":
        return counterpart(history, path, at) or superseded(history, path, at)
    named = replacement(path)
    if status == "available":
        return None
    if named:
        return named
    if status == "moved":
        return successor(history, path, at)
    return _named_in(history, record.deprecated(at) or "", record.name, at) if record is not None else None


def counterpart(history: History, path: str, at: int) -> str | None:
    """Return the path that served in the release `at` for one that came later, None when there was nothing."""
    return next((name for name in counterpart_names(history, path)[1:] if history.exists(name, at)), None)


def counterpart_names(history: History, path: str) -> tuple[str, ...]:
    """Return a path and the earlier ones of the same object, the newest first."""
    names = [path]
    while first := history.first(names[-1]):
        older = predecessor(history, names[-1], first)
        if older is None:
            break
        names.append(older)
    return tuple(names)


def superseded(history: History, path: str, at: int) -> str | None:
    """Return the API of the same module whose later deprecation names `path`, where the release `at` has it."""
    first = history.first(path)
    name = history.resolve(path, first) if first is not None else None
    owner = (name or "").rpartition(".")[0]
    for sibling in history.members.get(owner, ()):
        record = history.record(f"{owner}.{sibling}")
        text = record.deprecated(history.newest) if record is not None and record.exists(at) else None
        if record is not None and text and _named_in(history, text, record.name, history.newest) == name:
            return record.name
    return None


def predecessor(history: History, name: str, first: int) -> str | None:
    """Return the name under which the object was known before release `first`, when it moved then.

    The old name was an object of its own and leads to the new name from then on; members move with their class.
    """
    for old in history.ending_in(name.rpartition(".")[2]):
        record = history.record(old)
        moved = old != name and record is not None and record.exists(first - 1) and not record.exists(first)
        if moved and history.resolve(old, first) == name:
            return old
    owner, _, member = name.rpartition(".")
    old_owner = predecessor(history, owner, first) if owner.count(".") > 1 else None
    if old_owner is not None and history.exists(f"{old_owner}.{member}", first - 1):
        return f"{old_owner}.{member}"
    return None


def successor(history: History, path: str, at: int) -> str | None:
    """Return where a removed object went: the one of the same last name and kind with alike parameters or members."""
    last = max((earlier for earlier in range(at) if history.exists(path, earlier)), default=None)
    old = history.record(_named(history, path, last))
    if old is None or last is None:
        return None
    names = {history.resolve(found, at) for found in history.ending_in(path.rpartition(".")[2])} - {None}
    found = [
        name
        for name in sorted(filter(None, names))
        if (record := history.record(name)) is not None
        and record.kind == old.kind
        and _alike(history, old.name, last, name, at)
    ]
    return found[0] if len(found) == 1 else None


def _alike(history: History, old: str, before: int, new: str, after: int) -> bool:
    """Whether two objects share enough parameters and members to be the same under another path."""
    ours, theirs = _features(history, old, before), _features(history, new, after)
    return not (ours | theirs) or len(ours & theirs) / len(ours | theirs) >= _ALIKE


def _features(history: History, name: str, at: int) -> set[str]:
    members = {member for member in history.members.get(name, ()) if history.exists(f"{name}.{member}", at)}
    return members | {item.name for item in history.parameters(name, at)}


def _named_in(history: History, text: str, name: str, at: int) -> str | None:
    """Return the first API that a deprecation text names and that the release has."""
    owner = name.rpartition(".")[0]
    for word in re.findall(r"[A-Za-z_][\w.]*\w", text):
        for path in (word, f"{owner}.{word}", f"{owner.rpartition('.')[0]}.{word}"):
            found = history.resolve(path, at)
            record = history.record(found) if found is not None else None
            if record is not None and record.kind != "module" and record.name != name:
                return record.name
    return None


def _changes(history: History, name: str) -> Iterator[Change]:
    """Yield the changes of an object from the first release that has it, earlier names included."""
    first = next((at for at in range(len(history.releases)) if history.exists(name, at)), None)
    notes = [row for row in _corrections().get(name, ()) if row.version and row.note]
    old = predecessor(history, name, first) if first else None
    if old is None and first:
        yield Change(version=history.releases[first], change=_added(history, name, first))
    if old is not None and first is not None:
        yield from _changes_before(history, old, first)
        yield Change(version=history.releases[first], change=f"moved here from {old}")
        yield from _compared(history, old, name, first)
    for at in range((first or 0) + 1, len(history.releases)):
        yield from _compared(history, name, name, at)
        for row in notes:
            if row.version == history.releases[at]:
                yield Change(version=history.releases[at], change=row.note or "")


def _added(history: History, name: str, first: int) -> str:
    since = _since(history, name, first)[0]
    is_older = since is not None and since != history.releases[first]
    return f"the stub names it from here on; torch has had it since {since}" if is_older else "added"


def _changes_before(history: History, old: str, first: int) -> Iterator[Change]:
    """Yield the changes of an object under its earlier name."""
    limit = set(history.releases[:first])
    for change in _changes(history, old):
        if change.version in limit:
            yield change.model_copy(update={"change": f"added as {old}"}) if change.change == "added" else change


def _compared(history: History, old: str, new: str, at: int) -> Iterator[Change]:
    """Yield what differs between an object in the release before `at` and in `at`."""
    version = history.releases[at]
    before, after = history.resolve(old, at - 1), history.resolve(new, at)
    if before is None or after is None:
        if before is not None:
            yield Change(version=version, change="removed")
        elif after is not None:
            yield Change(version=version, change="there again")
        return
    texts = [
        *_option_changes(history.record(before), history.record(after), at),
        *_parameter_changes(history.parameters(before, at - 1), history.parameters(after, at)),
        *_order_changes(history.record(before), history.record(after), at),
        *_mark_changes(history.record(before), history.record(after), at),
        *_member_changes(history, before, after, at),
    ]
    yield from (Change(version=version, change=text) for text in texts)


def _option_changes(before: Record | None, after: Record | None, at: int) -> Iterator[str]:
    """Yield how a command-line option takes its value, when that changed."""
    if before is None or after is None or after.kind != "option":
        return
    old, new = before.signature(at - 1), after.signature(at)
    if old != new:
        yield f"`{old}` -> `{new}`"


def _public(parameters: tuple[ApiParameter, ...]) -> dict[str, ApiParameter]:
    return {item.name: item for item in parameters if not item.name.lstrip("*").startswith("_")}


def _parameter_changes(before: tuple[ApiParameter, ...], after: tuple[ApiParameter, ...]) -> Iterator[str]:
    """Yield parameters that came, went, changed their default or their order; annotations do not count."""
    old, new = _public(before), _public(after)
    for name in (name for name in new if name not in old):
        yield f"parameter `{_with_default(new[name])}` added"
    for name in (name for name in old if name not in new):
        yield f"parameter `{name}` removed"
    kept = [name for name in old if name in new]
    for name in kept:
        if old[name].default != new[name].default and "..." not in (old[name].default, new[name].default):
            yield f"default of `{name}` changed: {_default(old[name])} -> {_default(new[name])}"


def _order_changes(before: Record | None, after: Record | None, at: int) -> Iterator[str]:
    """Yield a change of order among the parameters that are given by position in both releases."""
    if before is None or after is None:
        return
    old, new = positional(before.signature(at - 1) or ""), positional(after.signature(at) or "")
    kept, order = [name for name in old if name in new], [name for name in new if name in old]
    if kept != order:
        yield f"parameters reordered: ({', '.join(kept)}) -> ({', '.join(order)})"
    keyword_only = [name for name in old if name not in new and f"{name}" in _names(after, at)]
    if keyword_only:
        yield f"keyword-only now: {', '.join(keyword_only)}"


def _names(record: Record, at: int) -> set[str]:
    return {item.name for item in record.parameters(at)}


def _with_default(parameter: ApiParameter) -> str:
    return parameter.name if parameter.default is None else f"{parameter.name}={parameter.default}"


def _default(parameter: ApiParameter) -> str:
    return "required" if parameter.default is None else parameter.default


def _mark_changes(before: Record | None, after: Record | None, at: int) -> Iterator[str]:
    """Yield deprecations that came or went, and names that left or joined an `__all__`."""
    if before is None or after is None:
        return
    old, new = before.deprecated(at - 1), after.deprecated(at)
    if new and not old:
        yield f"deprecated: {' '.join(new.split())}"
    elif old and not new:
        yield "no longer marked as deprecated"
    if after.unlisted(at) and not before.unlisted(at - 1):
        yield "left `__all__`; still importable"
    elif before.unlisted(at - 1) and not after.unlisted(at):
        yield "listed in `__all__` again"


def _member_changes(history: History, before: str, after: str, at: int) -> Iterator[str]:
    """Yield the methods and properties that a class gained or lost; what moved to a base class is not lost.

    A member that a stub shows late was gained when its binding came.
    """
    old, new = _members_at(history, before, at - 1), _members_at(history, after, at)
    gained = [name for name in sorted(new - old) if not history.exists(f"{before}.{name}", at - 1)]
    lost = [name for name in sorted(old - new) if not history.exists(f"{after}.{name}", at)]
    known = [name for name in gained if _since(history, f"{after}.{name}", at) == (history.releases[at], True)]
    if known:
        yield f"gained {', '.join(known)}"
    if lost:
        yield f"lost {', '.join(lost)}"


def _members_at(history: History, name: str, at: int) -> set[str]:
    """Return the methods and properties that a class defines itself in a release."""
    records = ((member, history.record(f"{name}.{member}")) for member in history.members.get(name, ()))
    return {member for member, record in records if record and record.kind in _MEMBERS and record.exists(at)}
