"""The questions of tests/data/public_questions.jsonl: their gold holds for torch, and search answers its share."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tools.eval import Outcome, evaluate, hit_at_5, mean_reciprocal_rank, read_cases

from fsdp_mcp.api.history import load_history
from fsdp_mcp.api.pages import PageRow
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.index import OpenIndex, open_index

QUESTIONS = Path(__file__).parent / "data" / "public_questions.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
FIELDS = ("id", "lang", "style", "query", "symbols", "pages", "env_vars", "answer_terms", "source")
STYLES = {"nl", "keyword", "symbol", "wrong_symbol", "error", "newbie", "synonym"}
# Official pages that describe no API of the index.
FURTHER_PAGES = {"torch_nccl_environment_variables", "notes/hip", "notes/amp_examples", "rpc/distributed_autograd"}


@pytest.fixture(scope="module")
def index() -> OpenIndex:
    return open_index()


@pytest.fixture(scope="module")
def outcomes(index: OpenIndex) -> list[Outcome]:
    return evaluate(read_cases(QUESTIONS), index.search)


def test_there_are_enough_questions_and_none_is_there_twice() -> None:
    languages = Counter(row["lang"] for row in ROWS)
    assert languages["en"] + languages["zh"] == len(ROWS) >= 220
    assert languages["zh"] >= 55
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert len({row["query"] for row in ROWS}) == len(ROWS)


def test_every_question_is_complete() -> None:
    incomplete = [
        row["id"]
        for row in ROWS
        if tuple(row) != FIELDS
        or row["style"] not in STYLES
        or not (row["query"] and row["answer_terms"] and all(row["answer_terms"]))
        or not (row["symbols"] or row["env_vars"])
        or not row["source"].startswith(("https://", "http://"))
    ]
    assert incomplete == []


def test_every_chinese_question_is_written_in_chinese() -> None:
    def is_chinese(text: str) -> bool:
        return any("\u4e00" <= letter <= "\u9fff" for letter in text)

    # An error line stays as the program printed it, whoever asks.
    wrong = [row["id"] for row in ROWS if is_chinese(row["query"]) != (row["lang"] == "zh") and row["style"] != "error"]
    assert wrong == []


def test_every_symbol_is_in_the_installed_torch_or_in_an_earlier_release(index: OpenIndex) -> None:
    history = load_history()
    unknown = {
        symbol
        for row in ROWS
        for symbol in row["symbols"]
        if index.catalogue.resolve(symbol) is None and history.last(symbol) is None
    }
    assert unknown == set()


def test_every_page_is_an_official_one_that_we_know() -> None:
    known = {row.page for row in load_facts("symbol_pages", PageRow)} | FURTHER_PAGES
    assert {page for row in ROWS for page in row["pages"]} - known == set()


def test_questions_find_their_answer(outcomes: list[Outcome]) -> None:
    ranks = [outcome.rank for outcome in outcomes]
    chinese = [outcome.rank for outcome in outcomes if outcome.case.lang == "zh"]
    assert hit_at_5(ranks) >= HIT_AT_5
    assert mean_reciprocal_rank(ranks) >= MRR
    assert hit_at_5(chinese) >= HIT_AT_5_CHINESE


# Raise these when search gets better; measured when they were set: 0.968, 0.896, 1.0.
HIT_AT_5 = 0.955
MRR = 0.88
HIT_AT_5_CHINESE = 0.97
