"""Answers for one API name, from the torch that is installed and from the history of all releases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fsdp_mcp.api.answer import ApiAnswer, Detail
from fsdp_mcp.api.catalogue import Catalogue, expanded, folded, publicity
from fsdp_mcp.api.changes import Story, is_bound, remark, tell
from fsdp_mcp.api.env_vars import EnvVar, closest_env_vars, env_var_answer, find_env_var, misspelt_env_var
from fsdp_mcp.api.history import History, Record, load_history
from fsdp_mcp.api.pages import locate
from fsdp_mcp.api.parameters import about_parameter, no_such_parameter
from fsdp_mcp.api.torchrun import option_path
from fsdp_mcp.api.unlisted import unlisted_answer
from fsdp_mcp.errors import UnknownName
from fsdp_mcp.models import ApiParameter, ApiSymbol

_MOST_OTHERS = 4
_SHORTEST_PATH = 3
_MEMBERS = ("method", "property", "attribute")


def lookup_api(
    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=300,
            description="Name or end of one: fully_shard, DTensor.full_tensor, NCCL_DEBUG, --nnodes",
        ),
    ],
    *,
    torch_version: Annotated[
        str | None, Field(max_length=30, description="Another release, X.Y; null is the installed torch")
    ] = None,
    detail: Annotated[
        Detail, Field(description="summary: what a call needs; signature: no prose; full: the whole docstring")
    ] = "summary",
    catalogue: Catalogue,
) -> ApiAnswer:
    """Look up one distributed API, environment variable or torchrun option: signature or values, status, history.

    Use it before writing code with torch.distributed, FSDP, DTensor, device mesh, distributed checkpoint, DDP or
    activation checkpointing: names and defaults change between releases. Old and partial names work; it says where
    they went. To find an API by what it does, use search_docs.
    """
    release = _release(load_history(), catalogue, torch_version)
    wanted = _bare(name)
    answer = (
        _variable(find_env_var(wanted), wanted, release, detail)
        or _find(wanted, release, catalogue, detail)
        or unlisted_answer(wanted, version=release.version, detail=detail)
        or _below(wanted, release, catalogue, detail)
        or _find_alike(wanted, release, catalogue, detail)
        or _variable(misspelt_env_var(wanted), wanted, release, detail)
        or _elsewhere(wanted, release, catalogue, detail)
    )
    if answer is None:
        raise UnknownName(_unknown(name, catalogue, release))
    return answer


def _bare(name: str) -> str:
    """Return the name in what was asked: without quotes, scheme and call, of a setting without its `$` and value.

    A call with one keyword, `fully_shard(model, mesh=mesh)`, asks for that parameter.
    """
    wanted = name.strip().strip("`").removeprefix("fsdp://api/").strip(".")
    call = re.fullmatch(r"([\w.]+)\((.*)\)?", wanted)
    if call is not None:
        keywords = re.findall(r"(?:^|[(,\s])(\w+)\s*=(?!=)", call[2])
        wanted = f"{call[1]}.{keywords[0]}" if len(keywords) == 1 else call[1]
    if wanted.startswith(("$", "-", "fsdp://")) or wanted.partition("=")[0].isupper():
        wanted = option_path(wanted.strip("${}").partition("=")[0])
    return wanted.replace("#param-", ".")


def _variable(row: EnvVar | None, wanted: str, release: _Release, detail: Detail) -> ApiAnswer | None:
    """Return the answer for an environment variable, None for None."""
    if row is None:
        return None
    return env_var_answer(row, asked=wanted, version=release.version, installed=release.installed, detail=detail)


def _find(wanted: str, release: _Release, catalogue: Catalogue, detail: Detail) -> ApiAnswer | None:
    """Return the answer for a name from the installed torch, else from the history; None when neither has it."""
    found = catalogue.find(wanted) if release.is_installed else ()
    if found:
        return _with_parameter(_described(found, wanted, release, catalogue, detail), release)
    path = _recorded(release.history, wanted, release.at)
    return _with_parameter(_from_history(path, release, detail), release) if path is not None else None


def _with_parameter(answer: ApiAnswer, release: _Release) -> ApiAnswer:
    """Return the answer for a property with a note when its class takes a parameter of that name, too."""
    owner = answer.qualified_name.rpartition(".")[0]
    if answer.kind != "property" or not release.history.exists(f"{owner}#param-{answer.name}", release.at):
        return answer
    changes = tell(release.history, owner, release.at).changes
    note = about_parameter(release.history, owner, answer.name, release.at, changes=changes)
    return answer if note is None else answer.model_copy(update={"warnings": (note, *answer.warnings)})


def _find_alike(wanted: str, release: _Release, catalogue: Catalogue, detail: Detail) -> ApiAnswer | None:
    """Return the answer for a name that differs in capitals and underscores only."""
    found = catalogue.find_alike(wanted) if release.is_installed else ()
    if found:
        return _described(found, wanted, release, catalogue, detail)
    path = _preferred(release.history, _spelled_like(release.history, wanted), release.at)
    return _from_history(path, release, detail) if path is not None else None


def _described(
    found: Sequence[ApiSymbol], wanted: str, release: _Release, catalogue: Catalogue, detail: Detail
) -> ApiAnswer:
    members = catalogue.members(found[0].qualified_name)
    return _from_catalogue(found, wanted, release, detail).model_copy(update={"members": members})


def _below(wanted: str, release: _Release, catalogue: Catalogue, detail: Detail) -> ApiAnswer | None:
    """Return the answer for a parameter of a known function or class, or for a member spelt otherwise.

    Raises:
        UnknownName: the function or class is known, and no release gives it such a parameter or member.
    """
    owner, _, last = wanted.rpartition(".")
    answer = _find(owner, release, catalogue, detail) if owner else None
    if answer is None or answer.kind in ("module", "env_var", "option"):
        return None
    path, history = answer.qualified_name, release.history
    note = about_parameter(history, path, last, release.at, changes=answer.changes)
    if note is None and last in {item.name.lstrip("*") for item in answer.parameters}:
        note = f"`{last}` is a parameter of {path}."  # The history does not know this torch.
    if note is not None:
        return answer.model_copy(update={"warnings": (note, *answer.warnings)})
    alike = _find_alike(f"{path}.{last}", release, catalogue, detail)
    if alike is None:
        elsewhere = [found.qualified_name for found in catalogue.find(last)[:_MOST_OTHERS]]
        raise UnknownName(no_such_parameter(history, path, last, answer, elsewhere))
    return alike


def _elsewhere(wanted: str, release: _Release, catalogue: Catalogue, detail: Detail) -> ApiAnswer | None:
    """Return the answer for an API asked for under a module that is not known, when only one API has its name."""
    parts = wanted.split(".")
    found = [symbol for symbol in catalogue.find(parts[-1]) if symbol.qualified_name.split(".")[:2] == parts[:2]]
    if len(parts) <= _SHORTEST_PATH or len(found) != 1:
        return None
    answer = _find(found[0].qualified_name, release, catalogue, detail)
    note = f"{wanted} is not among the paths known here; this is the only API of that name."
    return None if answer is None else answer.model_copy(update={"warnings": (note, *answer.warnings)})


@dataclass(frozen=True)
class _Release:
    """The torch that is asked about.

    Args:
        history: of all releases.
        at: its index there; the nearest for a torch that the history does not know.
        version: how to name it.
        is_installed: whether the catalogue speaks of it.
        installed: the installed torch, if any.
    """

    history: History
    at: int
    version: str
    is_installed: bool
    installed: str | None


def _release(history: History, catalogue: Catalogue, torch_version: str | None) -> _Release:
    installed = catalogue.torch_version
    if torch_version is None or (installed and _short(torch_version) == _short(installed)):
        at = history.nearest(installed)
        return _Release(history, at, installed or history.releases[at], installed is not None, installed)
    at = history.index(torch_version)
    return _Release(history, at, history.releases[at], False, installed)


def _short(version: str) -> str:
    return ".".join(version.strip().lstrip("v").partition("+")[0].split(".")[:2])


def _recorded(history: History, name: str, at: int) -> str | None:
    """Return the path that `name` means best in the release `at`, or in any: exact, then an end."""
    for spelling in (name, expanded(name)):
        last = history.last(spelling)
        if last is not None:
            target = history.resolve(spelling, last) or spelling
            return target if target.startswith("torchrun ") else spelling
    return _preferred(history, history.ending_in(expanded(name)) or history.ending_in(name), at)


def _preferred(history: History, found: Sequence[str], at: int) -> str | None:
    paths = {history.resolve(path, at) or path for path in found}
    return min(paths, key=lambda path: _preference(history, path, at), default=None)


def _spelled_like(history: History, name: str) -> list[str]:
    last = folded(name.rpartition(".")[2])
    return [
        path
        for path in history.paths
        if folded(path.rpartition(".")[2]) == last and folded(path).endswith(folded(name))
    ]


def _preference(history: History, path: str, at: int) -> tuple[bool, bool, bool, int, tuple[bool, int, int, str]]:
    """Prefer public paths, then those the release has, no modules, those that lived longest, the shortest."""
    public, record = publicity(path), history.record(path)
    is_module = record is not None and record.kind == "module"
    return public[0], not history.exists(path, at), is_module, -(history.last(path) or 0), public


def _unknown(name: str, catalogue: Catalogue, release: _Release) -> str:
    nearest = closest_env_vars(name) or _same_last_name(name, catalogue) or catalogue.closest(name)
    nearest = nearest or release.history.closest(name)
    head = f"No API named {name!r} in torch {release.version}"
    if not nearest:
        return f"{head} or any other release. Search for what it does with search_docs."
    return f"{head}. Closest: {', '.join(nearest)}. Call lookup_api with one of them."


def _same_last_name(name: str, catalogue: Catalogue) -> list[str]:
    last = name.rpartition(".")[2]
    return [found.qualified_name for found in catalogue.find(last)[:_MOST_OTHERS]] if last != name else []


def _from_catalogue(found: Sequence[ApiSymbol], wanted: str, release: _Release, detail: Detail) -> ApiAnswer:
    """Return the answer for the installed torch: its own signature and docstring, with the history beside them."""
    symbol, others = found[0], found[1:]
    path = symbol.qualified_name
    story = tell(release.history, path, release.at)
    if not release.history.exists(path, release.at):  # A torch newer than our table, or one that was changed.
        story = Story(status="deprecated" if symbol.deprecated else "available", deprecated=symbol.deprecated)
    return ApiAnswer(
        name=symbol.name,
        qualified_name=path,
        kind=symbol.kind,
        status=story.status,
        signature=symbol.signature,
        parameters=_with_since(release.history, path, symbol.parameters, since=story.since),
        returns=symbol.returns,
        summary=symbol.summary,
        text=symbol.text,
        since=story.since,
        since_exact=story.since_exact,
        until=None,
        changes=story.changes,
        other_paths=symbol.other_paths,
        replaced_by=story.replaced_by,
        page=symbol.page or None,
        url=symbol.url or None,
        source=symbol.source,
        torch_version=release.version,
        warnings=(*_notes(symbol, wanted, story, others), *_alias_note(symbol, wanted, release)),
        detail=detail,
    )


def _notes(symbol: ApiSymbol, wanted: str, story: Story, others: Sequence[ApiSymbol]) -> list[str]:
    known = remark(symbol.qualified_name)
    notes = [known] if known else []
    if story.deprecated:
        notes.append(f"Deprecated: {' '.join(story.deprecated.split())}")
    if symbol.build_dependent:
        notes.append("Depends on the build: some builds or systems of torch lack it.")
    owner, named = symbol.qualified_name.rpartition(".")[0], expanded(wanted).split(".")[-2:-1]
    if symbol.kind in _MEMBERS and named and named[0] != owner.rpartition(".")[2] and named[0][:1].isupper():
        notes.append(f"Defined by {owner}.")
    if symbol.home.startswith("torch._C.") and not symbol.text and symbol.kind not in _MEMBERS:
        notes.append("A C++ type, read from its stub: defaults written as ... are not known.")
    if others:
        names = [other.qualified_name for other in others[:_MOST_OTHERS]]
        more = len(others) - len(names)
        notes.append(f"Other APIs of that name: {', '.join(names)}{f' and {more} more' if more else ''}.")
    return notes


def _alias_note(symbol: ApiSymbol, wanted: str, release: _Release) -> list[str]:
    """Say since when the asked path leads to the object, when it is another than the one it is told under."""
    path = expanded(wanted)
    first = release.history.first(path) if path in symbol.other_paths and symbol.kind != "option" else None
    return [] if first is None else [f"{path} is another path to it, there since {release.history.releases[first]}."]


def _with_since(
    history: History, path: str, parameters: Sequence[ApiParameter], *, since: str | None
) -> tuple[ApiParameter, ...]:
    """Return the parameters with the release of each; those there from the beginning are as old as the API."""
    beginning = history.first(path)
    dated = []
    for item in parameters:
        first = history.first(f"{path}#param-{item.name.lstrip('*')}")
        release = None if first is None else since if first == beginning else history.releases[first]
        dated.append(item.model_copy(update={"since": release}))
    return tuple(dated)


def _from_history(path: str, release: _Release, detail: Detail) -> ApiAnswer:
    """Return the answer for a name or a release that the installed torch cannot speak of: signature and history."""
    history = release.history
    story = tell(history, path, release.at)
    shown, at = _shown(path, story, release)
    name = history.resolve(shown, at) or shown
    record = history.record(name)
    exists = history.exists(path, release.at)
    target = name if exists else path
    others = _others(history, target, at)
    page, url = locate([target, *others]) if history.last(target) == history.newest else ("", "")
    return ApiAnswer(
        name=target.rpartition(".")[2],
        qualified_name=target,
        kind=record.kind if record is not None else "module",
        status=story.status,
        signature=(record.signature(at) or None) if record is not None else None,
        parameters=_with_since(history, name, history.parameters(name, at), since=_since(history, name, story)),
        returns=_returned(record, at),
        summary=None,
        text=None,
        since=story.since,
        since_exact=story.since_exact,
        until=story.until,
        changes=story.changes,
        other_paths=tuple(others),
        replaced_by=story.replaced_by,
        page=page or None,
        url=url or None,
        source=None,
        torch_version=release.version,
        warnings=tuple(_history_notes(path, name, at, story, release)),
        detail=detail,
    )


def _since(history: History, shown: str, story: Story) -> str | None:
    """Return since when the shown object exists: the story's, unless a counterpart is shown."""
    return story.since if story.replaced_by != shown else history.releases[history.first(shown) or 0]


def _shown(path: str, story: Story, release: _Release) -> tuple[str, int]:
    """Return which path's signature to show, and of which release: the asked one, a counterpart, or the last."""
    history = release.history
    if history.exists(path, release.at):
        return path, release.at
    if story.status == "not_yet":
        if story.replaced_by is not None:
            return story.replaced_by, release.at
        return path, history.first(path) or 0
    if is_bound(history, path, release.at):
        return path, history.first(path) or 0
    return path, max(at for at in range(release.at) if history.exists(path, at))


def _history_notes(path: str, name: str, at: int, story: Story, release: _Release) -> list[str]:
    known = remark(path)
    notes = [known] if known else []
    if is_bound(release.history, path, release.at):
        notes.append(f"The stub of torch {release.version} does not name it yet: the signature is from a later one.")
    if story.status == "not_yet":
        notes.append(f"Torch {release.version} does not have {path} yet; it came with {story.since}.")
        if story.replaced_by is not None:
            notes.append(f"The signature is that of its counterpart {name} in torch {release.version}.")
    elif story.status in ("removed", "moved"):
        last = release.history.releases[at]
        notes.append(
            f"Torch {release.version} no longer has {path}; torch {last} was the last. The signature is from there."
        )
        if story.since is not None and (release.history.first(path) or 0) > release.at:
            notes.append(f"The name is there again from torch {story.since} on.")
    if story.deprecated:
        notes.append(f"Deprecated: {' '.join(story.deprecated.split())}")
    if not release.is_installed:
        installed = f"torch {release.installed} is installed" if release.installed else "no torch is installed"
        notes.append(f"About torch {release.version}, while {installed}: signature and history only, no docstring.")
    return notes


def _returned(record: Record | None, at: int) -> str | None:
    signature = record.signature(at) if record is not None else None
    if record is None or not signature:
        return None
    separator = ": " if record.kind == "property" else ") -> "
    return signature.split("\n")[-1].rpartition(separator)[2] if separator in signature else None


def _others(history: History, name: str, at: int) -> list[str]:
    """Return the other listed paths of an object in a release."""
    paths = history.ending_in(name.rpartition(".")[2])
    return sorted(path for path in paths if path != name and history.resolve(path, at) == name)
