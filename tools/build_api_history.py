"""Builds docs_corpus/api_history from the wheels of every torch release.

    python -m tools.build_api_history [--keep FOLDER]

Each wheel (56 to 127 MB, about 1.1 GB in all) is downloaded, the few files that matter are taken out, and it is
deleted. The macOS wheels serve: their Python files and stubs equal those of the Linux wheels, and they are small.
Add a row to RELEASES for a new release and run it again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdp_mcp.api.extract import TorchApi, read_torch
from fsdp_mcp.api.history import HISTORY_FILE
from fsdp_mcp.api.signatures import is_through_kwargs
from fsdp_mcp.corpus import corpus_dir
from fsdp_mcp.models import ApiSymbol

RELEASES = {
    "2.0": "2.0.1",
    "2.1": "2.1.2",
    "2.2": "2.2.2",
    "2.3": "2.3.1",
    "2.4": "2.4.1",
    "2.5": "2.5.1",
    "2.6": "2.6.0",
    "2.7": "2.7.1",
    "2.8": "2.8.0",
    "2.9": "2.9.1",
    "2.10": "2.10.0",
    "2.11": "2.11.0",
    "2.12": "2.12.1",
    "2.13": "2.13.0",
    "2.14": "2.14.1",
}
_PLATFORMS = ("macosx_11_0_arm64", "macosx_12_0_arm64", "macosx_14_0_arm64")
_WANTED = re.compile(
    r"torch/(distributed/.*\.pyi?|nn/parallel/.*\.py|nn/utils/(__init__|clip_grad)\.py|utils/checkpoint\.py|amp/.*\.py"
    r"|_C/.*\.pyi|version\.py|lib/libtorch_python\.dylib)$"
)
_BINARY = "lib/libtorch_python.dylib"
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w+\Z")


@dataclass(frozen=True)
class Release:
    """One release as read from its wheel; `strings` are the identifiers in its compiled library."""

    version: str
    api: TorchApi
    strings: frozenset[str]


def main() -> None:
    """Read every release and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="folder to keep the unpacked files in, and to take them from")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        releases = [read_release(version, patch, folder) for version, patch in RELEASES.items()]
    path = corpus_dir() / "api_history" / HISTORY_FILE
    path.write_text("\n".join(table(releases)) + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size:,} bytes, {sum(1 for _ in path.open(encoding='utf-8')):,} lines")


def read_release(version: str, patch: str, folder: Path) -> Release:
    """Return what one release offers, downloading its wheel unless the folder has the files."""
    torch_dir = folder / patch / "torch"
    if not torch_dir.is_dir():
        _fetch(patch, folder / patch)
    api = read_torch(torch_dir)
    print(f"{version}: {len(api.symbols)} symbols, skipped {list(api.skipped)}")
    return Release(version, api, _strings(torch_dir / _BINARY))


def _fetch(patch: str, folder: Path) -> None:
    """Download a wheel, take out the files that matter, delete it."""
    with tempfile.TemporaryDirectory() as scratch:
        platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms]
        subprocess.run(
            [*command, "--python-version", "3.11", "-d", scratch, f"torch=={patch}"], check=True, timeout=900
        )
        (wheel,) = Path(scratch).glob("torch-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if _WANTED.match(name)])


def _strings(library: Path) -> frozenset[str]:
    """Return the identifiers that stand between null bytes in a library: names of bindings are among them."""
    if not library.is_file():
        return frozenset()
    return frozenset(item.decode() for item in library.read_bytes().split(b"\0") if _IDENTIFIER.match(item))


def table(releases: list[Release]) -> Iterator[str]:
    """Yield the lines of the table: the releases, then every record and alias by name."""
    yield _json({"releases": {release.version: RELEASES[release.version] for release in releases}})
    rows: dict[str, dict[str, Any]] = {}
    for row in (*records(releases), *aliases(releases)):
        rows[row["name"]] = {**rows.get(row["name"], {}), **row}  # A name that moved is an object first, then an alias.
    for name in sorted(rows):
        yield _json(rows[name])


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def records(releases: list[Release]) -> Iterator[dict[str, Any]]:
    """Yield the record of each qualified name that any release has."""
    by_release = [{raw.symbol.qualified_name: raw.symbol for raw in release.api.symbols} for release in releases]
    owners = Counter(symbol.name for symbol in by_release[-1].values() if _is_compiled(symbol))
    for name in sorted({name for symbols in by_release for name in symbols}):
        history = [symbols.get(name) for symbols in by_release]
        newest = next(symbol for symbol in reversed(history) if symbol is not None)
        row = {
            "name": name,
            "kind": newest.kind,
            "build_dependent": newest.build_dependent,
            "stub": _is_compiled(newest),
            "binary": _first_in_binary(newest, releases) if owners[newest.name] == 1 else None,
            "signatures": _changes(releases, [_signature(symbol) for symbol in history]),
            "deprecated": _changes(releases, [[symbol.deprecated if symbol else None] for symbol in history]),
            "bases": _changes(releases, [[list(symbol.bases) if symbol else []] for symbol in history]),
            "unlisted": _changes(releases, [[name in release.api.unlisted] for release in releases]),
        }
        yield {key: value for key, value in row.items() if value}


def _signature(symbol: ApiSymbol | None) -> list[Any]:
    """Return what a record keeps of a signature: its text and the options behind `**kwargs`, [None] for absent.

    Values of constants and attributes are not API; that they exist is.
    """
    if symbol is None:
        return [None]
    if symbol.kind in ("constant", "attribute", "type", "module"):
        return [""]
    options = [
        f"{item.name}={item.default}" if item.default is not None else item.name
        for item in symbol.parameters
        if is_through_kwargs(item, symbol.parameters)
    ]
    return [symbol.signature or "", options] if options else [symbol.signature or ""]


def _changes(releases: list[Release], values: list[list[Any]]) -> list[list[Any]]:
    """Return the values that differ from the one before, each with its release; a leading empty one is left out."""
    found: list[list[Any]] = []
    before: list[Any] = [None]
    for release, value in zip(releases, values, strict=True):
        if value != before and not (not found and not value[0] and value[0] != ""):
            found.append([release.version, *value])
        before = value
    return found


def _is_compiled(symbol: ApiSymbol) -> bool:
    return symbol.home.startswith("torch._C.")


def _first_in_binary(symbol: ApiSymbol, releases: Iterable[Release]) -> str | None:
    """Return the first release whose library holds the name, when the name is distinctive enough to tell."""
    if not _is_compiled(symbol) or "_" not in symbol.name.strip("_"):
        return None
    return next((release.version for release in releases if symbol.name in release.strings), None)


def aliases(releases: list[Release]) -> Iterator[dict[str, Any]]:
    """Yield for each further path what it leads to in which release; null when it leads nowhere."""
    by_release = [dict(_paths(release.api)) for release in releases]
    for path in sorted({path for paths in by_release for path in paths}):
        leads_to = _changes(releases, [list(paths.get(path, (None,))) for paths in by_release])
        yield {"name": path, "leads_to": leads_to}


def _paths(api: TorchApi) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the further paths of a release with their object; the word importable marks those that nothing lists."""
    for path, name in api.imports.items():
        yield path, (name, "importable")
    for raw in api.symbols:
        for path in raw.symbol.other_paths:
            yield path, (raw.symbol.qualified_name,)


if __name__ == "__main__":
    main()
