"""Builds the index of one torch: guides, API entries, BM25 weights. Heavy imports: for the child process only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.api.changes import tell
from fsdp_mcp.api.cpp_types import with_members_described, with_types_described
from fsdp_mcp.api.entries import index_entries
from fsdp_mcp.api.env_vars import env_var_entries
from fsdp_mcp.api.extract import extract_api
from fsdp_mcp.api.history import load_history
from fsdp_mcp.api.probe import Probe, with_docstrings
from fsdp_mcp.corpus import corpus_dir, load_facts
from fsdp_mcp.diagnose.entries import failure_entries
from fsdp_mcp.diagnose.page import failure_pages
from fsdp_mcp.docs.notes import with_notes
from fsdp_mcp.docs.question import Family, Synonym
from fsdp_mcp.docs.weigh import document_terms, weigh
from fsdp_mcp.index_store import CATALOGUE, read_search, replaced_folder, write_meta, write_search
from fsdp_mcp.library.reading import library_entries
from fsdp_mcp.models import LIBRARY_KINDS, ApiSymbol, IndexEntry
from fsdp_mcp.sections import BrokenPage, guide_entries, read_guide
from fsdp_mcp.target import Target

_log = logging.getLogger(__name__)

Report = Callable[[float, float | None, str], None]


def build(folder: Path, target: Target, *, report: Report, earlier: Sequence[Path] = ()) -> int:
    """Write the index of `target` into `folder` and return how many entries it has.

    A guide that cannot be read is logged and left out; so is the API of a torch that cannot be read, and a document
    of the library. All but the library is taken from the first whole index among `earlier`, if there is one.
    """
    started = time.monotonic()
    known = next((base for path in earlier if (base := _read_base(path)) is not None), None) or _make_base(
        target, report
    )
    library = list(library_entries(target.torch_version, api=known.entries))
    entries = [*known.entries, *library]
    report(2, 3, f"Weighing {len(entries)} entries")
    with replaced_folder(folder) as fresh:
        known.catalogue.save(fresh / CATALOGUE)
        postings = weigh([document_terms(entry) for entry in entries])
        lengths = write_search(fresh, entries, postings)
        write_meta(
            fresh,
            lengths=lengths,
            entries=len(entries),
            torch_version=target.torch_version,
            missing=known.missing,
            glossary=load_facts("glossary", Synonym),
            families=load_facts("families", Family),
            seconds=round(time.monotonic() - started, 2),
        )
    report(3, 3, f"Indexed {len(entries)} entries")
    return len(entries)


class _Base(NamedTuple):
    """All that an index holds beside the library."""

    entries: list[IndexEntry]
    catalogue: Catalogue
    missing: str


def _make_base(target: Target, report: Report) -> _Base:
    """Read the guides and the API of the target's torch."""
    report(0, 3, "Reading the guides")
    entries = [*read_guides(corpus_dir() / "guides"), *failure_entries(failure_pages())]
    report(1, 3, f"Reading the API of torch {target.torch_version or '(none)'}")
    symbols, missing = read_api(target)
    entries += with_old_names(index_entries(symbols, torch_version=target.torch_version or ""), target.torch_version)
    entries += env_var_entries(torch_version=target.torch_version or "")
    catalogue = Catalogue.of(with_members_described(symbols), torch_version=target.torch_version)
    return _Base(list(with_notes(entries)), catalogue, missing)


def _read_base(folder: Path) -> _Base | None:
    """Take the same from an index that differs by nothing but its library, or None when it is not whole."""
    search = read_search(folder)
    catalogue = Catalogue.load(folder / CATALOGUE)
    if search is None or catalogue is None:
        return None
    entries = [search.entry(number) for number, row in enumerate(search.rows) if row.kind not in LIBRARY_KINDS]
    return _Base(entries, catalogue, search.missing)


def read_guides(folder: Path) -> list[IndexEntry]:
    """Return the entries of all guides in `folder`; a broken one is logged and left out."""
    entries: list[IndexEntry] = []
    for path in sorted(folder.glob("*.md")):
        try:
            entries.extend(guide_entries(read_guide(path)))
        except BrokenPage as error:
            _log.warning("guide left out: %s", error)
    return entries


def read_api(target: Target) -> tuple[tuple[ApiSymbol, ...], str]:
    """Return the symbols of the target's torch and, when there are none, why."""
    if target.torch_dir is None:
        return (), f"There is no torch in {target.python}, so there are guides but no API entries."
    probe = Probe(target.python)  # It imports torch meanwhile: seconds, as long as reading the files takes.
    symbols = with_types_described(with_docstrings(extract_api(target.torch_dir), probe.docstrings()))
    if not symbols:
        return (), f"The torch {target.torch_version} in {target.python} has no torch.distributed: guides only."
    return symbols, ""


def with_old_names(entries: Iterable[IndexEntry], torch_version: str | None) -> Iterator[IndexEntry]:
    """Yield the entries, those of an API that took the place of another one findable by the old path, and saying so."""
    old = old_names(torch_version) if torch_version else {}
    for entry in entries:
        names = old.get(entry.symbol, []) if "#" not in entry.uri else []
        if names:
            told = ", ".join(f"`{name}`" for name in names)
            note = f"Takes the place of {told}, which torch {torch_version} lacks."
            yield replace(entry, text=f"{entry.text}\n\n{note}", names=(*entry.names, *names))
        else:
            yield entry


def old_names(torch_version: str) -> dict[str, list[str]]:
    """Return, by qualified name, the paths that are gone from this torch and that it took the place of."""
    history = load_history()
    at = history.nearest(torch_version)
    found: dict[str, list[str]] = {}
    for path in history.paths:
        owner = history.record(path.rpartition(".")[0])
        if history.exists(path, at) or (owner is not None and owner.kind == "class"):
            continue
        last = history.last(path)
        instead = tell(history, path, at).replaced_by if last is not None and last < at else None
        if instead is not None:
            found.setdefault(instead, []).append(path)
    return found
