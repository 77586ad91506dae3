"""Builds the index of one torch: guides, API entries, BM25 weights. Heavy imports: for the child process only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from fsdp_mcp.corpus import corpus_dir, load_facts
from fsdp_mcp.docs.question import Family, Synonym
from fsdp_mcp.docs.weigh import document_terms, weigh
from fsdp_mcp.index_store import replaced_folder, write_meta, write_search
from fsdp_mcp.models import IndexEntry
from fsdp_mcp.sections import BrokenPage, guide_entries, read_guide
from fsdp_mcp.target import Target

_log = logging.getLogger(__name__)

Report = Callable[[float, float | None, str], None]


def build(folder: Path, target: Target, *, report: Report) -> int:
    """Write the index of `target` into `folder` and return how many entries it has.

    A guide that cannot be read is logged and left out; so is the API of a torch that cannot be read.
    """
    started = time.monotonic()
    report(0, 4, "Reading the guides")
    entries = read_guides(corpus_dir() / "guides")
    missing = "" if target.torch_dir else "There is no torch, so API entries are missing: guides only."
    with replaced_folder(folder) as fresh:
        report(3, 4, f"Weighing {len(entries)} entries")
        postings = weigh([document_terms(entry) for entry in entries])
        lengths = write_search(fresh, entries, postings)
        write_meta(
            fresh,
            lengths=lengths,
            entries=len(entries),
            torch_version=target.torch_version,
            missing=missing,
            glossary=load_facts("glossary", Synonym),
            families=load_facts("families", Family),
            seconds=round(time.monotonic() - started, 2),
        )
    report(4, 4, f"Indexed {len(entries)} entries")
    return len(entries)


def read_guides(folder: Path) -> list[IndexEntry]:
    """Return the entries of all guides in `folder`; a broken one is logged and left out."""
    entries: list[IndexEntry] = []
    for path in sorted(folder.glob("*.md")):
        try:
            entries.extend(guide_entries(read_guide(path)))
        except BrokenPage as error:
            _log.warning("guide left out: %s", error)
    return entries
