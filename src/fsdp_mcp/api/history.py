"""The history of every public symbol and parameter over the releases of torch."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from fsdp_mcp.api.signatures import parameters_of
from fsdp_mcp.corpus import corpus_dir
from fsdp_mcp.errors import BadArgument, UnknownName, closest
from fsdp_mcp.models import ApiParameter
from fsdp_mcp.releases import release_numbers

HISTORY_FILE = "api_history.jsonl"
_PARAMETER = "#param-"
_FUNCTION = ast.FunctionDef


class Record:
    """The history of one object under one qualified name, as a line of the table holds it.

    Each list of pairs says from which release on something holds, until the next pair.
    """

    def __init__(self, content: dict[str, Any], releases: tuple[str, ...]) -> None:
        self.name: str = content["name"]
        self.kind: str = content["kind"]
        self.build_dependent: bool = content.get("build_dependent", False)
        self.binary: str | None = content.get("binary")
        """First release whose compiled library holds the name, for a C++ member whose name is its own."""
        self.from_stub: bool = content.get("stub", False)
        self._releases = releases
        self._signatures = content["signatures"]
        self._deprecated = content.get("deprecated", [])
        self._bases = content.get("bases", [])
        self._unlisted = content.get("unlisted", [])

    def signature(self, at: int) -> str | None:
        """Return the signature in a release, an empty text when the object has none, None when it does not exist."""
        found = self._at(self._signatures, at)
        return None if found is None else found[1]

    def deprecated(self, at: int) -> str | None:
        """Return the text of the deprecation in force."""
        found = self._at(self._deprecated, at)
        return None if found is None else found[1]

    def bases(self, at: int) -> list[str]:
        """Return the qualified names of the bases."""
        found = self._at(self._bases, at)
        return [] if found is None else found[1]

    def unlisted(self, at: int) -> bool:
        """Whether the name is importable though the module's `__all__` leaves it out."""
        found = self._at(self._unlisted, at)
        return bool(found and found[1])

    def exists(self, at: int) -> bool:
        """Whether the release has it."""
        return self.signature(at) is not None

    def parameters(self, at: int) -> tuple[ApiParameter, ...]:
        """Return the parameters in a release, those taken out of `**kwargs` last."""
        found = self._at(self._signatures, at)
        if found is None or not found[1] or self.kind == "option":
            return ()
        options = [_option(text) for text in (found[2] if len(found) > 2 else [])]
        return (*parse_signature(found[1]), *options)

    def _at(self, pairs: list[list[Any]], at: int) -> list[Any] | None:
        found = None
        for pair in pairs:
            if self._releases.index(pair[0]) > at:
                break
            found = pair
        return found


@lru_cache(maxsize=512)
def parse_signature(signature: str) -> tuple[ApiParameter, ...]:
    """Return the parameters of a signature text; of several overloads those of the widest."""
    found: tuple[ApiParameter, ...] = ()
    for line in signature.split("\n"):
        try:
            node = ast.parse(f"def {line}: ...").body[0]
        except SyntaxError:
            continue
        assert isinstance(node, ast.FunctionDef)
        found = max(found, parameters_of(node, is_method=False), key=len)
    return found


@lru_cache(maxsize=512)
def positional(signature: str) -> tuple[str, ...]:
    """Return the names of the parameters that can be given by position."""
    try:
        node = ast.parse(f"def {signature}: ...").body[0]
    except SyntaxError:
        return ()
    return tuple(item.arg for item in (*node.args.posonlyargs, *node.args.args)) if isinstance(node, _FUNCTION) else ()


def _option(text: str) -> ApiParameter:
    """Return an option out of `**kwargs`; it can be left out, even where the code names no default."""
    name, _, default = text.partition("=")
    return ApiParameter(name=name, default=default or "...")


class History:
    """All records, found by any path that an object ever had.

    Args:
        lines: the table, a JSON object a line: first the releases, then records and aliases, by name.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        lines = iter(lines)
        self.checked: dict[str, str] = json.loads(next(lines))["releases"]
        """Release to the patch release that was read for it."""
        self.releases: tuple[str, ...] = tuple(self.checked)
        self._lines = dict(_keyed(lines))
        self._records: dict[str, Record | None] = {}
        self._aliases: dict[str, list[list[Any]]] = {}

    @property
    def newest(self) -> int:
        """Index of the newest release."""
        return len(self.releases) - 1

    def index(self, version: str) -> int:
        """Return the index of a release given as X.Y or X.Y.Z.

        Raises:
            BadArgument: the table does not have that release.
        """
        short = ".".join(version.strip().lstrip("v").partition("+")[0].split(".")[:2])
        if short not in self.checked:
            raise BadArgument(
                f"torch_version: got {version!r}, expected a release from {self.releases[0]} to {self.releases[-1]}."
            )
        return self.releases.index(short)

    def nearest(self, version: str | None) -> int:
        """Return the index of the release of `version`, of the newest one for None or a later version."""
        if version is None:
            return self.newest
        wanted = release_numbers(version)
        return max((at for at, release in enumerate(self.releases) if release_numbers(release) <= wanted), default=0)

    def record(self, name: str) -> Record | None:
        """Return the record of exactly that qualified name."""
        if name not in self._records:
            content = json.loads(self._lines[name]) if name in self._lines else {}
            self._records[name] = Record(content, self.releases) if "signatures" in content else None
        return self._records[name]

    def resolve(self, path: str, at: int) -> str | None:
        """Return the qualified name that a path leads to in a release, through aliases and base classes."""
        record = self.record(path)
        if record is not None and record.exists(at):
            return path
        target = self._alias(path, at)
        if target is not None:
            return target
        owner, _, member = path.rpartition(".")
        base = self.resolve(owner, at) if owner else None
        return self._member(base, member, at) if base is not None else None

    def _alias(self, path: str, at: int) -> str | None:
        found = None
        for pair in self._alias_pairs(path):
            if self.releases.index(pair[0]) <= at:
                found = pair[1]
        return found

    def _alias_pairs(self, path: str) -> list[list[Any]]:
        if path not in self._lines:
            return []
        if path not in self._aliases:
            self._aliases[path] = json.loads(self._lines[path]).get("leads_to", [])
        return self._aliases[path]

    def _member(self, owner: str, member: str, at: int) -> str | None:
        record = self.record(f"{owner}.{member}")
        if record is not None and record.exists(at):
            return record.name
        owner_record = self.record(owner)
        for base in owner_record.bases(at) if owner_record is not None else []:
            found = self._member(base, member, at)
            if found is not None:
                return found
        return None

    def exists(self, path: str, at: int) -> bool:
        """Whether a release has a path, or a parameter given as `path#param-name`."""
        path, _, parameter = path.partition(_PARAMETER)
        name = self.resolve(path, at)
        if name is None or not parameter:
            return name is not None
        return any(item.name.lstrip("*") == parameter for item in self.parameters(name, at))

    def parameters(self, path: str, at: int) -> tuple[ApiParameter, ...]:
        """Return the parameters of a path in a release; none when it does not exist or takes none."""
        name = self.resolve(path, at)
        record = self.record(name) if name is not None else None
        return record.parameters(at) if record is not None else ()

    def first(self, path: str) -> int | None:
        """Return the release from which on a path exists up to the last that has it, without a gap; None for never."""
        present = [at for at in range(len(self.releases)) if self.exists(path, at)]
        if not present:
            return None
        first = present[-1]
        while first - 1 in present:
            first -= 1
        return first

    def last(self, path: str) -> int | None:
        """Return the newest release that has a path, None for never."""
        return max((at for at in range(len(self.releases)) if self.exists(path, at)), default=None)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every path that any release has, members without the inherited ones."""
        return tuple(self._lines)

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """The members that any release has, by the qualified name of their class or module."""
        found: dict[str, list[str]] = {}
        for path in self._lines:
            owner, _, member = path.rpartition(".")
            found.setdefault(owner, []).append(member)
        return found

    def ending_in(self, name: str) -> list[str]:
        """Return the paths that end in `name`."""
        return [path for path in self._by_last.get(name.rpartition(".")[2], ()) if f".{path}".endswith(f".{name}")]

    def closest(self, name: str) -> list[str]:
        """Return the paths whose end resembles `name`, for each end the one that lived longest."""
        nearest = closest(name.rpartition(".")[2], self._by_last)
        return [max(self._by_last[last], key=lambda path: (self.last(path) or 0, -len(path))) for last in nearest]

    @cached_property
    def _by_last(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self._lines:
            found.setdefault(path.rpartition(".")[2], []).append(path)
        return found


def _keyed(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each line by its name, which the table writes first: `{"name":"torch..."`; no line is parsed for that."""
    for line in lines:
        if line.strip():
            yield line.split('"', 4)[3], line


@lru_cache(maxsize=1)
def load_history() -> History:
    """Return the history that comes with this package."""
    path = corpus_dir() / "api_history" / HISTORY_FILE
    return read_history(path)


def read_history(path: Path) -> History:
    """Return the history in a file."""
    return History(path.read_text(encoding="utf-8").splitlines())


def oldest_torch(names: Iterable[str]) -> str:
    """Return the oldest release, X.Y, from which on torch has every one of `names`.

    A name is an API path (`torch.distributed.fsdp.fully_shard`) or a parameter of one
    (`torch.distributed.fsdp.fully_shard#param-dp_mesh_dims`). No names need the oldest release there is.

    Raises:
        UnknownName: no release that we know of has one of the names.
    """
    history = load_history()
    oldest = 0
    for name in names:
        first = history.first(name)
        if first is None:
            raise UnknownName(_unknown(name, history))
        oldest = max(oldest, first)
    return history.releases[oldest]


def _unknown(name: str, history: History) -> str:
    nearest = history.closest(name.partition(_PARAMETER)[0])
    hint = f" Closest: {', '.join(nearest)}." if nearest else ""
    return f"No torch from {history.releases[0]} to {history.releases[-1]} has {name!r}.{hint}"
