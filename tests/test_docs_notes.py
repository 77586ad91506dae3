"""Notes of api_notes: each belongs to an entry, names a source, and its words find it without being shown."""

from __future__ import annotations

from collections import Counter

import pytest

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.docs.notes import ApiNote, SearchWords, with_notes
from fsdp_mcp.docs.search import search_docs
from fsdp_mcp.docs.search_index import SearchIndex
from fsdp_mcp.docs.weigh import document_terms
from fsdp_mcp.index import open_index
from fsdp_mcp.models import IndexEntry

NOTES = load_facts("api_notes", ApiNote)


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    return open_index().search


def test_every_note_belongs_to_one_entry_and_has_an_official_source(index: SearchIndex) -> None:
    titles = Counter(row.title for row in index.rows)
    assert [note.name for note in NOTES if titles[note.name] != 1] == []
    assert [note.name for note in NOTES if not note.source.startswith("https://")] == []
    assert len({note.name for note in NOTES}) == len(NOTES)


def test_a_note_stands_after_the_signature_and_its_words_are_found_but_not_shown() -> None:
    note = next(row for row in NOTES if row.name == "torch.distributed.barrier")
    text = "```python\nbarrier(group=None)\n```\n\nSynchronize."
    entry = IndexEntry(uri="u", title=note.name, kind="api", text=text, page="", url="")
    (told,) = with_notes([entry])
    assert told.text == f"```python\nbarrier(group=None)\n```\n\n{note.note}\n\nSynchronize."
    assert "等待" in document_terms(told)
    assert "等待" not in told.text


def test_every_row_of_search_words_belongs_to_one_entry(index: SearchIndex) -> None:
    titles = Counter(row.title for row in index.rows)
    names = [row.name for row in load_facts("search_words", SearchWords)]
    unknown = [name for name in names if titles[name] != 1 and f"fsdp://guides/{name}" not in index.by_uri]
    assert (unknown, len(set(names))) == ([], len(names))


def test_a_guide_section_is_found_by_its_search_words() -> None:
    uri = "fsdp://guides/debugging-hangs#where-does-each-rank-stand"
    entry = IndexEntry(uri=uri, title="t", kind="guide", text="Text.", page="debugging-hangs", url="")
    assert "堆栈" in document_terms(entry)


def test_an_entry_without_a_note_stays_as_it_is() -> None:
    entry = IndexEntry(uri="u", title="nobody.knows", kind="api", text="Text.", page="", url="")
    assert list(with_notes([entry])) == [entry]


def test_a_note_is_shown_with_its_entry(index: SearchIndex) -> None:
    note = next(row for row in NOTES if row.name == "torch.distributed.barrier")
    assert any(hit.symbol == note.name and note.note in hit.text for hit in search_docs("barrier", index=index).hits)
