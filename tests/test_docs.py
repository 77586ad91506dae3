"""search_docs and read_doc over a small index."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from fsdp_mcp.docs.excerpt import excerpt
from fsdp_mcp.docs.question import Family, Synonym
from fsdp_mcp.docs.read import read_doc
from fsdp_mcp.docs.search import search_docs
from fsdp_mcp.docs.search_index import Row, SearchIndex
from fsdp_mcp.docs.tokenise import terms_of
from fsdp_mcp.docs.weigh import K1, B, document_terms, weigh
from fsdp_mcp.errors import BadArgument, UnknownName
from fsdp_mcp.models import IndexEntry
from fsdp_mcp.sections import guide_entries, parse_guide
from fsdp_mcp.tokens import estimate_tokens

FSDP = "torch.distributed.fsdp"
C10D = "torch.distributed.distributed_c10d"
GUIDE = """---
title: FSDP2
summary: Shards each parameter with fully_shard.
torch: ">=2.6"
---
# FSDP2

## Gradient accumulation
Skip the reduce-scatter on all but the last micro-batch with `set_requires_gradient_sync(False)`.

Sources: [fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html)

## Offload
Parameters live on the host between uses.

| policy | where the step runs |
|---|---|
| `CPUOffloadPolicy` | on the CPU |
| none | on the accelerator |
"""


def api(name: str, text: str, *, parameter: str = "", names: tuple[str, ...] = ()) -> IndexEntry:
    fragment = f"#param-{parameter}" if parameter else ""
    return IndexEntry(
        uri=f"fsdp://api/{name}{fragment}",
        title=f"{name}({parameter})" if parameter else name,
        kind="api",
        text=text,
        page="distributed",
        url="https://docs.pytorch.org/docs/stable/distributed.html",
        symbol=name,
        names=names,
        torch_version="2.13.0",
    )


ENTRIES = (
    *guide_entries(parse_guide(GUIDE, stem="fsdp2")),
    api(f"{FSDP}.fully_shard", "Apply fully sharded data parallelism to a module."),
    api(f"{FSDP}.fully_shard", "Reshard after forward, or to a group of that size.", parameter="reshard_after_forward"),
    api(f"{FSDP}.fully_shard", "Mesh of one dimension, or two to replicate the shards.", parameter="mesh"),
    api(f"{FSDP}.FullyShardedDataParallel", "Wrap a module to shard its parameters, data parallel."),
    api(f"{FSDP}.FullyShardedDataParallel.no_sync", "Accumulate gradients without communication."),
    api("torch.distributed.all_reduce", "Reduce the tensor on all ranks.", names=(f"{C10D}.all_reduce",)),
    api("torch.distributed.all_gather", "Gather tensors from the whole group in a list."),
    api("torch.distributed.barrier", "Synchronize all processes of the group."),
    api("torch.distributed.destroy_process_group", "Destroy a group and end its threads."),
    api(
        "torch.distributed.device_mesh.init_device_mesh",
        "Make a mesh with named dimensions.",
        names=("torch.distributed.init_device_mesh",),
    ),
)

FAMILIES = (
    Family(name="FSDP2", symbols=("torch.distributed.fsdp.fully_shard",), hints=("fsdp2",), preferred=True, source="x"),
    Family(
        name="FSDP1",
        symbols=("torch.distributed.fsdp.FullyShardedDataParallel",),
        hints=("fsdp1", "fullyshardeddataparallel"),
        preferred=False,
        source="x",
    ),
)
GLOSSARY = (
    Synonym(say=("多步更新",), mean=("gradient accumulation",)),
    Synonym(say=("zero 3",), mean=("fully_shard",)),
)


def index_of(entries: tuple[IndexEntry, ...]) -> SearchIndex:
    rows = [Row(*(getattr(entry, field) for field in Row._fields)) for entry in entries]
    postings = weigh([document_terms(entry) for entry in entries])
    return SearchIndex(rows, postings, GLOSSARY, FAMILIES, "2.13.0")


@lru_cache(maxsize=1)
def small_index() -> SearchIndex:
    return index_of(ENTRIES)


def uris(query: str, **options: object) -> list[str]:
    reply = search_docs(query, index=small_index(), **options)  # type: ignore[arg-type]
    return [hit.uri.removeprefix("fsdp://") for hit in reply.hits]


def test_a_section_of_a_fetched_page_comes_after_the_guide_that_answers_as_well() -> None:
    page = api("", "Otters want a pond with cold water.")
    guide = replace(page, kind="guide", uri="fsdp://guides/zoo#otters", text="Otters want a pond with water.")
    official = replace(page, kind="official", uri="fsdp://official/zoo#otters")
    hits = search_docs("pond for otters", index=index_of((*ENTRIES, official, guide))).hits
    assert [hit.kind for hit in hits[:2]] == ["guide", "official"]


# --- scores -----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), min_size=1, max_size=12),
    st.lists(st.sampled_from("abcdefghz")),
)
def test_scores_are_those_of_bm25_okapi(documents: list[list[str]], query: list[str]) -> None:
    if not any(documents):
        return
    postings = weigh(documents)
    terms = {term: float(query.count(term)) for term in query}
    expected = BM25Okapi(documents, k1=K1, b=B).get_scores(query)
    assert postings.scores(terms, size=len(documents)) == pytest.approx(list(expected), rel=1e-5, abs=1e-5)


def test_scores_of_the_entries_are_those_of_bm25_okapi() -> None:
    documents = [document_terms(entry) for entry in ENTRIES]
    query = terms_of("skip reduce scatter gradient")
    expected = BM25Okapi(documents, k1=K1, b=B).get_scores(query)
    assert small_index().scores(dict.fromkeys(query, 1.0)) == pytest.approx(list(expected), rel=1e-5)


def test_a_page_on_a_failure_comes_first_only_for_a_question_that_tells_of_one() -> None:
    page = IndexEntry(
        uri="fsdp://failures/buffers-changed",
        title="Buffers were changed",
        kind="failure",
        text="Broadcast of batch norm buffers.",
        page="buffers-changed",
        url="",
    )
    entry = replace(page, uri="fsdp://user/notes/buffers", title="Buffers of the model", kind="user")
    index = index_of((*ENTRIES, page, entry))

    def first(query: str) -> str:
        return search_docs(query, index=index).hits[0].kind

    assert (first("broadcast of buffers"), first("broadcast of changed buffers failed")) == ("user", "failure")


# --- ranking ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("fully_shard", "api/torch.distributed.fsdp.fully_shard"),
        ("torch.distributed.fsdp.fully_shard()", "api/torch.distributed.fsdp.fully_shard"),
        ("`torch.distributed.distributed_c10d.all_reduce`", "api/torch.distributed.all_reduce"),
        ("FullyShardedDataParallel.no_sync", "api/torch.distributed.fsdp.FullyShardedDataParallel.no_sync"),
        ("reshard_after_forward", "api/torch.distributed.fsdp.fully_shard#param-reshard_after_forward"),
        ("fsdp2", "guides/fsdp2"),
        ("destroy_group", "api/torch.distributed.destroy_process_group"),
        ("fuly_shard", "api/torch.distributed.fsdp.fully_shard"),
        ("which device does the step run on with CPUOffloadPolicy", "guides/fsdp2#offload"),
        ("多步更新", "guides/fsdp2#gradient-accumulation"),
        ("apply to a module", "api/torch.distributed.fsdp.fully_shard"),
        ("fsdp1 shard a module", "api/torch.distributed.fsdp.FullyShardedDataParallel"),
    ],
)
def test_the_first_hit_answers(query: str, first: str) -> None:
    assert uris(query)[0] == first


def test_a_symbol_shows_twice_at_most() -> None:
    assert sum("fully_shard" in uri for uri in uris("fully_shard mesh reshard forward module")) <= 2


def test_entries_with_the_same_name_and_text_show_once() -> None:
    twin = replace(
        ENTRIES[-1], uri="fsdp://api/torch.distributed.init_device_mesh", symbol="torch.distributed.init_device_mesh"
    )
    reply = search_docs("init_device_mesh named dimensions", index=index_of((*ENTRIES, twin)))
    assert sum("init_device_mesh" in hit.uri for hit in reply.hits) == 1


def test_kind_leaves_only_entries_of_that_kind() -> None:
    assert {hit.kind for hit in search_docs("shard gradient", kind="guide", index=small_index()).hits} == {"guide"}


def test_a_question_that_nothing_matches_gets_a_suggestion_and_no_hit() -> None:
    reply = search_docs("quantum chromodynamics", index=small_index())
    assert (reply.hits, reply.negative, reply.suggestion is None) == ((), True, False)


def test_a_question_that_hardly_matches_says_so() -> None:
    reply = search_docs("bake sourdough bread with a wrapped tensor oven", index=small_index())
    assert reply.suggestion is not None
    assert reply.suggestion.startswith("Little matches")


def test_what_the_index_lacks_is_told_with_every_reply() -> None:
    reply = search_docs("barrier", index=replace(small_index(), missing="There is no torch."))
    assert "There is no torch." in reply.render()


@pytest.mark.parametrize("query", ["", "   ", "?!", "how do I", "怎么"])
def test_a_query_without_a_word_is_refused(query: str) -> None:
    with pytest.raises(BadArgument, match="no word to search for"):
        search_docs(query, index=small_index())


@settings(deadline=None)
@given(st.text(min_size=1, max_size=80))
def test_any_query_gets_a_reply_or_a_clear_refusal(query: str) -> None:
    if terms_of(query):
        assert len(search_docs(query, index=small_index()).hits) <= 5
    else:
        with pytest.raises(BadArgument, match="query: got"):
            search_docs(query, index=small_index())


def test_an_enormous_query_is_answered_from_its_beginning_and_its_end() -> None:
    found = uris("all_gather " + "x1y " * 500_000 + " destroy_process_group")
    assert {"api/torch.distributed.all_gather", "api/torch.distributed.destroy_process_group"} <= set(found)


# --- rendering --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_tokens", [100, 200, 500, 1500])
def test_the_reply_fits_its_budget(max_tokens: int) -> None:
    long = api("torch.distributed.long", "A sentence about a group of ranks. " * 400)
    reply = search_docs("group of ranks", limit=20, max_tokens=max_tokens, index=index_of((*ENTRIES, long)))
    assert estimate_tokens(reply.render()) <= max_tokens


@pytest.mark.parametrize("query", ["fully_shard", "reshard_after_forward", "skip the reduce-scatter"])
def test_the_smallest_reply_still_names_the_first_hit(query: str) -> None:
    (hit,) = search_docs(query, max_tokens=100, index=small_index()).hits
    assert f"fsdp://{uris(query)[0]}" == hit.uri


def test_what_was_left_out_is_counted_and_the_call_that_shows_it_named() -> None:
    reply = search_docs("group", limit=1, index=small_index())
    assert reply.omitted > 0
    assert f"{reply.omitted} more: search_docs with limit={1 + reply.omitted}" in reply.render()


def test_an_excerpt_keeps_the_table_row_that_answers_whole() -> None:
    rows = "\n".join(
        f"| `option_{number}` | does thing {number} in a way that takes some words |" for number in range(60)
    )
    text = f"## Options\nAll options.\n\n| option | meaning |\n|---|---|\n{rows}"
    assert "| `option_41` | does thing 41 in a way that takes some words |" in excerpt(
        text, terms={"option_41": 5.0}, max_tokens=60
    )


@pytest.mark.parametrize("max_tokens", range(20, 60, 5))
def test_an_excerpt_cuts_no_code_in_backticks(max_tokens: int) -> None:
    text = "Call `first(a). Second(b)` or " + "`dist.broadcast(tensor, src=0, group=None)` and needle then " * 40
    assert excerpt(text, terms={"needle": 5.0}, max_tokens=max_tokens).count("`") % 2 == 0


def test_the_first_hits_hold_few_sections_of_one_guide() -> None:
    sections = "\n\n".join(f"## Ring {number}\nA ring of ranks, side {number}." for number in range(9))
    many = guide_entries(parse_guide(GUIDE.replace("## Offload", f"{sections}\n\n## Offload"), stem="fsdp2"))
    others = [api(f"torch.distributed.ring_{number}", f"Pass round a ring {number}.") for number in range(4)]
    hits = search_docs("ring of ranks", index=index_of((*many, *others))).hits
    assert sum(hit.kind == "guide" for hit in hits) == 2


def test_an_excerpt_of_one_endless_line_is_cut_around_the_match() -> None:
    cut = excerpt("word " * 3000 + "needle here " + "word " * 3000, terms={"needle": 5.0}, max_tokens=50)
    assert ("needle here" in cut, estimate_tokens(cut) <= 50) == (True, True)


@given(st.text(max_size=600), st.integers(8, 80))
def test_an_excerpt_of_any_text_fits(text: str, max_tokens: int) -> None:
    assert estimate_tokens(excerpt(text, terms={"a": 1.0}, max_tokens=max_tokens)) <= max_tokens


# --- read_doc ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("fsdp2", "fsdp://guides/fsdp2"),
        ("fsdp://guides/fsdp2", "fsdp://guides/fsdp2"),
        ("fsdp2#offload", "fsdp://guides/fsdp2#offload"),
        ("fully_shard", "fsdp://api/torch.distributed.fsdp.fully_shard"),
        ("fsdp://api/fully_shard#param-mesh", "fsdp://api/torch.distributed.fsdp.fully_shard#param-mesh"),
        ("torch.distributed.init_device_mesh", "fsdp://api/torch.distributed.device_mesh.init_device_mesh"),
    ],
)
def test_a_document_is_found_by_uri_stem_or_name(name: str, uri: str) -> None:
    assert read_doc(name, index=small_index()).uri == uri


def test_a_guide_is_read_whole_in_the_order_of_its_sections() -> None:
    text = read_doc("fsdp2", index=small_index()).text
    assert text.index("# FSDP2") < text.index("## Gradient accumulation") < text.index("| none | on the accelerator |")


def test_an_api_is_read_with_its_parameters() -> None:
    text = read_doc("fully_shard", index=small_index()).text
    assert ("Apply fully sharded" in text, "Reshard after forward" in text, "Mesh of one" in text) == (True, True, True)


def test_a_long_document_read_piece_by_piece_is_complete() -> None:
    long = api("torch.distributed.long", "\n\n".join(f"Paragraph {number} of many." for number in range(400)))
    index = index_of((*ENTRIES, long))
    pieces, offset = [], 0
    while offset is not None:
        part = read_doc("torch.distributed.long", max_tokens=200, offset=offset, index=index)
        assert estimate_tokens(part.render()) <= 200
        pieces.append(part.text)
        offset = part.next_offset
    assert "".join(pieces) == f"## {long.title}\n\n{long.text}"


@pytest.mark.parametrize(
    ("wrong", "closest"),
    [
        ("fsdp3", "fsdp://guides/fsdp2"),
        ("fsdp2#ofload", "fsdp://guides/fsdp2#offload"),
        ("fully_sharded", "fsdp://api/torch.distributed.fsdp.fully_shard"),
        ("fully_shard#param-nesh", "#param-mesh"),
    ],
)
def test_an_unknown_document_is_refused_with_the_closest(wrong: str, closest: str) -> None:
    with pytest.raises(UnknownName, match=closest):
        read_doc(wrong, index=small_index())


def test_an_offset_past_the_end_is_refused() -> None:
    with pytest.raises(BadArgument, match="Start at 0"):
        read_doc("barrier", offset=10_000, index=small_index())


# --- the server -------------------------------------------------------------------------------------------------


def test_importing_the_tools_loads_nothing_heavy() -> None:
    code = (
        "import sys, fsdp_mcp.docs.search, fsdp_mcp.docs.read, fsdp_mcp.index;"
        "print([name for name in ('numpy','rank_bm25','markdown_it','griffe','torch','libcst') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert done.stdout.strip() == "[]"


def test_guides_are_listed_with_title_and_summary() -> None:
    assert small_index().guides() == [("fsdp2", "FSDP2", "Shards each parameter with fully_shard.")]
