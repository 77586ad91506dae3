"""The symbols of one torch: found by any of their names, kept as one compact file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.errors import closest
from fsdp_mcp.models import ApiSymbol, Value

SCHEMA = 1
"""Grows whenever a file written before can no longer be read."""


class ShortName(Value):
    """One row of `facts/api_names.yaml`: what an abbreviation such as DDP or dist stands for."""

    short: str
    means: str
    source: str


class Catalogue:
    """The symbols of one torch; a symbol is parsed when it is asked for.

    Args:
        torch_version: the torch that the symbols were read from, X.Y.Z; None without a torch.
        records: qualified name to the JSON text of the symbol.
        aliases: other public path to qualified name.
    """

    def __init__(self, torch_version: str | None, records: dict[str, str], aliases: dict[str, str]) -> None:
        self.torch_version = torch_version
        self._records = records
        self._aliases = aliases
        self._by_last: dict[str, list[str]] | None = None
        self._members: dict[str, list[str]] | None = None

    @classmethod
    def of(cls, symbols: Iterable[ApiSymbol], *, torch_version: str | None) -> Catalogue:
        """Return the catalogue of `symbols`."""
        symbols = tuple(symbols)
        records = {symbol.qualified_name: symbol.model_dump_json(exclude_defaults=True) for symbol in symbols}
        aliases = {path: symbol.qualified_name for symbol in symbols for path in symbol.other_paths}
        homes = {symbol.home: symbol.qualified_name for symbol in symbols if symbol.home}
        return cls(torch_version, records, {**homes, **aliases})

    def save(self, path: Path) -> None:
        """Write the catalogue to `path` in one step: a reader sees the old file or the new one."""
        content = {
            "schema": SCHEMA,
            "torch_version": self.torch_version,
            "aliases": self._aliases,
            "records": self._records,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        try:
            with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123, an open descriptor
                json.dump(content, file, ensure_ascii=False, separators=(",", ":"))
            os.replace(temporary, path)  # noqa: PTH105, atomic on every system
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: Path) -> Catalogue | None:
        """Return the catalogue in `path`; None when there is none, or one of another schema."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            return None
        return cls(content["torch_version"], content["records"], content["aliases"])

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ApiSymbol]:
        return (self.get(name) for name in self._records)

    def names(self) -> tuple[str, ...]:
        """Return every qualified name, sorted."""
        return tuple(sorted(self._records))

    def get(self, qualified_name: str) -> ApiSymbol:
        """Return the symbol of exactly that qualified name.

        Raises:
            KeyError: there is none.
        """
        return ApiSymbol.model_validate_json(self._records[qualified_name])

    def find(self, name: str) -> tuple[ApiSymbol, ...]:
        """Return the symbols that `name` may mean, the most public first; empty when there is none.

        A name is a qualified name, another public path, or the end of one (`fully_shard`, `DTensor.full_tensor`),
        with the usual abbreviations (`dist.`, `FSDP`). Members that a class inherits are found under the class.
        """
        for spelling in (name, expanded(name)):
            exact = self.resolve(spelling)
            if exact is not None:
                return (self.get(exact),)
        return self._ranked(self._ending_in(name))

    def find_alike(self, name: str) -> tuple[ApiSymbol, ...]:
        """Return the symbols whose name differs from `name` in capitals and underscores only."""
        return self._ranked(self._spelled_like(name))

    def _ranked(self, names: set[str]) -> tuple[ApiSymbol, ...]:
        return tuple(self.get(qualified) for qualified in sorted(names, key=self._rank))

    def _rank(self, qualified_name: str) -> tuple[bool, tuple[bool, int, int, str]]:
        """Put modules last: a bare `checkpoint` is the function, not the module of that name."""
        return '"kind":"module"' in self._records[qualified_name], publicity(qualified_name)

    def members(self, owner: str) -> tuple[str, ...]:
        """Return the names directly below a class or module, sorted."""
        if self._members is None:
            self._members = {}
            for path in self.names():
                above, _, name = path.rpartition(".")
                self._members.setdefault(above, []).append(name)
        return tuple(self._members.get(owner, ()))

    def closest(self, name: str, *, count: int = 3) -> list[str]:
        """Return the qualified names whose end resembles `name`, the nearest first; attributes are not offered."""
        lasts = {
            path.rpartition(".")[2] for path, record in self._records.items() if '"kind":"attribute"' not in record
        }
        nearest = closest(name.rpartition(".")[2], lasts, count=count)
        return [self._most_public(self._ending_in(found)) for found in nearest]

    def _most_public(self, names: set[str]) -> str:
        return min(names, key=self._rank)

    def _spelled_like(self, name: str) -> set[str]:
        """Return the names that differ from `name` in capitals and underscores only."""
        last = name.rpartition(".")[2]
        wanted = folded(name)
        candidates = [known for known in self._paths_by_last() if folded(known) == folded(last)]
        paths = {path for known in candidates for path in self._paths_by_last()[known]}
        return {self._aliases.get(path, path) for path in paths if folded(path).endswith(wanted)}

    def resolve(self, path: str) -> str | None:
        """Return the qualified name of an exact path: canonical, alias, or a member below one, inherited ones too."""
        if path in self._records:
            return path
        if path in self._aliases:
            return self._aliases[path]
        owner, _, member = path.rpartition(".")
        if not owner:
            return None
        base = self.resolve(owner)
        return self._member(base, member) if base is not None else None

    def _member(self, owner: str, member: str) -> str | None:
        """Return the qualified name of a member of a class, looked up through its bases."""
        if f"{owner}.{member}" in self._records:
            return f"{owner}.{member}"
        for base in self.get(owner).bases:
            found = self._member(base, member) if base in self._records else None
            if found is not None:
                return found
        return None

    def _ending_in(self, name: str) -> set[str]:
        """Return the qualified names of the paths that end in `name`, and of members that end in it by inheritance."""
        found = {
            self._aliases.get(path, path)
            for path in self._paths_by_last().get(name.rpartition(".")[2], ())
            if path.endswith(f".{name}") or path == name
        }
        owner, _, member = name.rpartition(".")
        if found or not owner:
            return found
        members = (self._member(base, member) for base in self._ending_in(owner))
        return {qualified for qualified in members if qualified is not None}

    def _paths_by_last(self) -> dict[str, list[str]]:
        if self._by_last is None:
            self._by_last = {}
            for path in (*self._records, *self._aliases):
                self._by_last.setdefault(path.rpartition(".")[2], []).append(path)
        return self._by_last


def publicity(qualified_name: str) -> tuple[bool, int, int, str]:
    """Order names by how public they are: no private part, fewest dots, shortest."""
    return "._" in qualified_name, qualified_name.count("."), len(qualified_name), qualified_name


def folded(name: str) -> str:
    """Return `name` without capitals and underscores, for comparing spellings."""
    return name.casefold().replace("_", "")


def expanded(name: str) -> str:
    """Return `name` with its first part written out: `dist.barrier` is `torch.distributed.barrier`."""
    first, dot, rest = name.partition(".")
    means = {row.short: row.means for row in load_facts("api_names", ShortName)}
    return f"{means.get(first, first)}{dot}{rest}"
