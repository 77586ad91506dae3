"""How well questions are answered from the installed torch and the guides: a bar that a change must not fall below."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from tools.eval import Outcome, evaluate, hit_at_5, mean_reciprocal_rank, read_cases

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.docs.question import Family, Synonym
from fsdp_mcp.docs.search import SearchHit, search_docs
from fsdp_mcp.docs.search_index import SearchIndex
from fsdp_mcp.docs.tokenise import is_identifier, terms_of, words_of
from fsdp_mcp.index import open_index

QUESTIONS = Path(__file__).parent / "data" / "questions.jsonl"


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    return open_index().search


@pytest.fixture(scope="module")
def outcomes(index: SearchIndex) -> list[Outcome]:
    return evaluate(read_cases(QUESTIONS), index)


def test_questions_find_their_answer(outcomes: list[Outcome]) -> None:
    ranks = [outcome.rank for outcome in outcomes]
    chinese = [outcome.rank for outcome in outcomes if outcome.case.lang == "zh"]
    assert hit_at_5(ranks) >= 0.97
    assert mean_reciprocal_rank(ranks) >= 0.925
    assert hit_at_5(chinese) >= 0.96


def test_replies_stay_short(outcomes: list[Outcome]) -> None:
    tokens = [outcome.tokens for outcome in outcomes]
    assert statistics.median(tokens) < 800
    assert max(tokens) < 1_500


def test_every_identifier_of_the_glossary_occurs_in_the_documentation(index: SearchIndex) -> None:
    rows = load_facts("glossary", Synonym)
    names = {word for row in rows for words in row.mean for word in words_of(words) if is_identifier(word)}
    unknown = sorted(name for name in names if not any(index.postings.span(term)[1] for term in terms_of(name)[:1]))
    assert unknown == []


def test_every_symbol_of_a_family_is_in_the_installed_torch(index: SearchIndex) -> None:
    names = {name for family in load_facts("families", Family) for name in family.symbols}
    assert sorted(name for name in names if not index.named(name)) == []


@pytest.mark.parametrize(
    "subject", ["cpu offload of parameters", "mixed precision", "prefetch", "ignore some parameters"]
)
@pytest.mark.parametrize(("asked", "generation"), [("", "FSDP2"), ("FSDP2 ", "FSDP2"), ("FSDP1 ", "FSDP1")])
def test_the_generation_that_is_asked_for_comes_first_and_fsdp2_without_a_hint(
    index: SearchIndex, subject: str, asked: str, generation: str
) -> None:
    hits = search_docs(f"{asked}{subject}", index=index).hits
    families = {family.name: family for family in index.families}
    first = next(name for hit in hits for name, family in families.items() if belongs(hit, family))
    assert first == generation


def belongs(hit: SearchHit, family: Family) -> bool:
    return hit.page in family.guides or (hit.symbol or "").startswith(family.symbols)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.distributed._composable.fsdp.FSDP", "torch.distributed.fsdp.FSDPModule"),
        ("torch.distributed.pipeline.sync.Pipe", "torch.distributed.pipelining.pipeline"),
        ("torch.distributed.all_reduce_multigpu", "torch.distributed.all_reduce"),
        ("torch.distributed.algorithm.Join", "torch.distributed.algorithms.Join"),
        ("torch.distributed.fsdp.MixedPrecisonPolicy", "torch.distributed.fsdp.MixedPrecisionPolicy"),
    ],
)
def test_an_old_misplaced_or_misspelt_path_finds_what_serves_now(index: SearchIndex, old: str, new: str) -> None:
    assert search_docs(old, index=index).hits[0].symbol == new


def test_what_the_corpus_cannot_answer_is_said(index: SearchIndex) -> None:
    replies = [
        search_docs(query, index=index)
        for query in ("how do I bake sourdough bread", "kubernetes ingress certificate renewal", "如何种西红柿")
    ]
    assert all(reply.suggestion for reply in replies)
