"""Questions in users' words: their gold holds for torch, and search answers its share of them.

`public_questions.jsonl` holds questions found in public threads and rephrased. `further_questions.jsonl` holds
questions derived from the documented API in users' words (about 20 rows come from threads). Search reached a hit@5 of
0.961 on it before anyone looked at what it missed; since then both files serve development.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from tools.eval import Outcome, evaluate, hit_at_5, mean_reciprocal_rank, read_cases

from fsdp_mcp.api.history import load_history
from fsdp_mcp.api.pages import PageRow
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.index import OpenIndex, open_index

DATA = Path(__file__).parent / "data"
FIELDS = ("id", "lang", "style", "query", "symbols", "pages", "env_vars", "answer_terms", "source")
STYLES = {"nl", "keyword", "symbol", "wrong_symbol", "error", "newbie", "synonym"}
# Official pages that describe no API of the index.
FURTHER_PAGES = {
    "torch_nccl_environment_variables",
    "notes/hip",
    "notes/amp_examples",
    "notes/ddp",
    "rpc/distributed_autograd",
    "data",
    "elastic/train_script",
}
# What the documentation names but the index does not list: registered operators, classes of other packages.
FURTHER_SYMBOLS = {
    "torch.ops.symm_mem.one_shot_all_reduce",
    "torch.ops.symm_mem.multimem_one_shot_all_reduce",
    "torch.ops.symm_mem.multimem_all_reduce_",
    "torch.utils.data.DistributedSampler",
    "torch.utils.data.distributed.DistributedSampler",
}


@dataclass(frozen=True)
class QuestionFile:
    """A file of questions, how many it holds at least, and the share that search has to answer."""

    name: str
    chinese: int
    hit_at_5: float
    mrr: float
    hit_at_5_chinese: float
    schemes: tuple[str, ...] = ("https://",)

    @property
    def path(self) -> Path:
        return DATA / self.name

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


# Raise the bars when search gets better; measured when they were set: 0.984, 0.906, 1.0 and 0.987, 0.926, 1.0.
FILES = (
    QuestionFile(
        "public_questions.jsonl",
        chinese=55,
        hit_at_5=0.965,
        mrr=0.88,
        hit_at_5_chinese=0.97,
        schemes=("https://", "http://"),  # Two threads are on sites without TLS.
    ),
    QuestionFile("further_questions.jsonl", chinese=70, hit_at_5=0.96, mrr=0.89, hit_at_5_chinese=0.97),
)
each_file = pytest.mark.parametrize("questions", FILES, ids=lambda file: file.name.partition("_")[0])


@pytest.fixture(scope="module")
def index() -> OpenIndex:
    return open_index()


@each_file
def test_there_are_enough_questions_and_none_is_there_twice(questions: QuestionFile) -> None:
    rows = questions.rows
    languages = Counter(row["lang"] for row in rows)
    assert languages["en"] + languages["zh"] == len(rows) >= 220
    assert languages["zh"] >= questions.chinese
    assert len({row["id"] for row in rows}) == len(rows)


def test_no_question_is_in_both_files() -> None:
    queries = [row["query"] for file in FILES for row in file.rows]
    assert len(set(queries)) == len(queries)


@each_file
def test_every_question_is_complete(questions: QuestionFile) -> None:
    incomplete = [
        row["id"]
        for row in questions.rows
        if tuple(row) != FIELDS
        or row["style"] not in STYLES
        or not (row["query"] and row["answer_terms"] and all(row["answer_terms"]))
        or not (row["symbols"] or row["env_vars"])
        or not row["source"].startswith(questions.schemes)
    ]
    assert incomplete == []


@each_file
def test_every_chinese_question_is_written_in_chinese(questions: QuestionFile) -> None:
    def is_chinese(text: str) -> bool:
        return any("\u4e00" <= letter <= "\u9fff" for letter in text)

    # An error line stays as the program printed it, whoever asks.
    wrong = [
        row["id"]
        for row in questions.rows
        if is_chinese(row["query"]) != (row["lang"] == "zh") and row["style"] != "error"
    ]
    assert wrong == []


@each_file
def test_every_symbol_is_in_the_installed_torch_or_in_an_earlier_release(
    questions: QuestionFile, index: OpenIndex
) -> None:
    history = load_history()
    unknown = {
        symbol
        for row in questions.rows
        for symbol in row["symbols"]
        if index.catalogue.resolve(symbol) is None and history.last(symbol) is None
    }
    assert unknown - FURTHER_SYMBOLS == set()


@each_file
def test_every_page_is_an_official_one_that_we_know(questions: QuestionFile) -> None:
    known = {row.page for row in load_facts("symbol_pages", PageRow)} | FURTHER_PAGES
    assert {page for row in questions.rows for page in row["pages"]} - known == set()


@each_file
def test_questions_find_their_answer(questions: QuestionFile, index: OpenIndex) -> None:
    outcomes = evaluate(read_cases(questions.path), index.search)
    assert hit_at_5(_ranks(outcomes)) >= questions.hit_at_5
    assert mean_reciprocal_rank(_ranks(outcomes)) >= questions.mrr
    assert hit_at_5(_ranks(outcomes, lang="zh")) >= questions.hit_at_5_chinese


def _ranks(outcomes: list[Outcome], *, lang: str | None = None) -> list[int]:
    return [outcome.rank for outcome in outcomes if lang in (None, outcome.case.lang)]
