"""Measures retrieval: `python -m tools.eval QUESTIONS.jsonl` (hits, ranks, tokens), `--latency` (milliseconds).

A line of the file is an object with id, lang, style, query, symbols, pages, env_vars, answer_terms. A hit is right when
it is the entry of one of `symbols` or `env_vars`, or a section of one of `pages`, or its text names one of `symbols`,
and its text holds one of `answer_terms`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdp_mcp.docs.search import SearchHit, SearchResult, search_docs
from fsdp_mcp.docs.search_index import SearchIndex
from fsdp_mcp.docs.weigh import document_terms, weigh
from fsdp_mcp.index import build_index
from fsdp_mcp.index_store import read_search
from fsdp_mcp.models import IndexEntry

_RESAMPLES = 2_000
_DEPTH = 10


@dataclass(frozen=True)
class Case:
    """A question and what is right for it."""

    id: str
    lang: str
    style: str
    query: str
    symbols: tuple[str, ...]
    pages: tuple[str, ...]
    env_vars: tuple[str, ...]
    answer_terms: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How one question went.

    Args:
        rank: place of the first right hit among ten, from 1; 0 when there is none.
        tokens: tokens of a default reply.
    """

    case: Case
    rank: int
    tokens: int


def read_cases(path: Path) -> list[Case]:
    """Return the questions in a JSON Lines file; further fields are ignored."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    texts = ("id", "lang", "style", "query")
    lists = ("symbols", "pages", "env_vars", "answer_terms")
    return [Case(*(row[key] for key in texts), *(tuple(row[key]) for key in lists)) for row in rows]


def _folded(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold()


def is_right(hit: SearchHit, case: Case, *, entry: IndexEntry) -> bool:
    """Return whether `hit` answers `case`."""
    text = _folded(f"{hit.title}\n{hit.text}")
    if not any(_folded(term) in text for term in case.answer_terms):
        return False
    own = {entry.symbol, *entry.names}
    page_of_url = re.sub(r".*/docs/[^/]+/|\.html.*", "", entry.url)
    return (
        any(symbol in own for symbol in case.symbols)
        or any(entry.uri == f"fsdp://env/{name}" for name in case.env_vars)
        or bool({entry.page, page_of_url} & set(case.pages))
        or any(_folded(symbol.rpartition(".")[2]) in text for symbol in case.symbols)
        or any(_folded(name) in text for name in case.env_vars)
    )


def evaluate(cases: Sequence[Case], index: SearchIndex) -> list[Outcome]:
    """Return the rank of the first right hit of every question."""
    return [_evaluate_one(case, index) for case in cases]


def _evaluate_one(case: Case, index: SearchIndex) -> Outcome:
    reply = search_docs(case.query, index=index)
    # The first five as a default reply shows them, then five more with as much room.
    deep = search_docs(case.query, limit=_DEPTH, max_tokens=3_000, index=index)
    hits = [*reply.hits, *deep.hits[len(reply.hits) :]]
    ranks = [rank for rank, hit in enumerate(hits, start=1) if is_right(hit, case, entry=_entry(index, hit))]
    return Outcome(case, ranks[0] if ranks else 0, _count_tokens(reply))


def _entry(index: SearchIndex, hit: SearchHit) -> IndexEntry:
    entry = index.section(hit.uri)
    assert entry is not None
    return entry


def _count_tokens(reply: SearchResult) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # bpe_openai 0.1 reads its tables by a deprecated call.
        from bpe_openai import get_encoding

        return len(get_encoding("o200k_base").encode(reply.render()))


def report(outcomes: Sequence[Outcome]) -> str:
    """Return a table of hit@1, hit@5, MRR@10 and tokens: overall, per language, per style."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        for name in ("all", f"lang {outcome.case.lang}", f"style {outcome.case.style}"):
            groups[name].append(outcome)
    lines = [f"{'group':<20}{'n':>4}{'hit@1':>8}{'hit@5':>8}{'MRR@10':>8}{'tokens':>8}{'max':>6}"]
    lines += [_row(name, groups[name]) for name in sorted(groups)]
    ranks = [outcome.rank for outcome in outcomes]
    for name, measure in (("hit@5", hit_at_5), ("MRR@10", mean_reciprocal_rank)):
        low, high = bootstrap(ranks, measure)
        lines.append(f"{name} {measure(ranks):.3f}, 95 % interval {low:.3f} to {high:.3f}")
    return "\n".join(lines)


def _row(name: str, outcomes: Sequence[Outcome]) -> str:
    ranks = [outcome.rank for outcome in outcomes]
    tokens = [outcome.tokens for outcome in outcomes]
    first = sum(rank == 1 for rank in ranks) / len(ranks)
    return (
        f"{name:<20}{len(ranks):>4}{first:>8.3f}{hit_at_5(ranks):>8.3f}{mean_reciprocal_rank(ranks):>8.3f}"
        f"{statistics.median(tokens):>8.0f}{max(tokens):>6}"
    )


def hit_at_5(ranks: Sequence[int]) -> float:
    """Return the share of questions with a right hit among the first five."""
    return sum(0 < rank <= 5 for rank in ranks) / len(ranks)


def mean_reciprocal_rank(ranks: Sequence[int]) -> float:
    """Return the mean of 1/rank, 0 where there is no right hit."""
    return sum(1 / rank for rank in ranks if rank) / len(ranks)


def bootstrap(ranks: Sequence[int], measure: Callable[[Sequence[int]], float]) -> tuple[float, float]:
    """Return the 95 % interval of `measure` over resampled questions."""
    chooser = random.Random(0)
    values = sorted(measure(chooser.choices(ranks, k=len(ranks))) for _ in range(_RESAMPLES))
    return values[round(0.025 * _RESAMPLES)], values[round(0.975 * _RESAMPLES) - 1]


@dataclass(frozen=True)
class Latency:
    """Milliseconds of a whole search_docs call, by the clock and of processor time, over so many sections."""

    sections: int
    calls: int
    p50_ms: float
    p99_ms: float
    p50_cpu_ms: float
    p99_cpu_ms: float


def measure_latency(index: SearchIndex, queries: Iterable[str], *, rounds: int = 5) -> Latency:
    """Return the median and 99th percentile of search_docs, in process, after one warming round."""
    asked = list(queries)
    for query in asked:
        search_docs(query, index=index)
    wall: list[float] = []
    processor: list[float] = []
    for query in asked * rounds:
        started, used = time.perf_counter(), time.thread_time()
        search_docs(query, index=index)
        processor.append((time.thread_time() - used) * 1_000)
        wall.append((time.perf_counter() - started) * 1_000)
    return Latency(len(index), len(wall), *_p50_p99(wall), *_p50_p99(processor))


def _p50_p99(times: list[float]) -> tuple[float, float]:
    return round(statistics.median(times), 2), round(sorted(times)[int(0.99 * len(times))], 2)


def resized(index: SearchIndex, sections: int) -> SearchIndex:
    """Return an index of exactly `sections` entries: the first of `index`, repeated when it has fewer."""
    entries = [index.entry(number % len(index)) for number in range(sections)]
    copies = [
        entry
        if number < len(index)
        else IndexEntry(
            uri=f"{entry.uri}~{number}",
            title=entry.title,
            kind=entry.kind,
            text=f"{entry.text}\ncopy {number}",
            page=entry.page,
            url=entry.url,
            symbol=entry.symbol and f"{entry.symbol}~{number}",
            names=entry.names,
        )
        for number, entry in enumerate(entries)
    ]
    rows = [type(index.rows[0])(*(getattr(entry, name) for name in index.rows[0]._fields)) for entry in copies]
    postings = weigh([document_terms(entry) for entry in copies])
    return SearchIndex(rows, postings, index.synonyms, index.families, index.torch_version)


def main() -> None:
    """Run the evaluation that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path, help="JSON Lines file")
    parser.add_argument("--latency", action="store_true", help="measure it at 5,000 and 50,000 sections too")
    parser.add_argument("--misses", action="store_true", help="list the questions without a right hit among five")
    arguments = parser.parse_args()
    started = time.monotonic()
    index = read_search(build_index())
    assert index is not None
    print(f"{len(index)} entries, torch {index.torch_version}, opened or built in {time.monotonic() - started:.1f} s")
    cases = read_cases(arguments.questions)
    outcomes = evaluate(cases, index)
    print(report(outcomes))
    if arguments.misses:
        for outcome in outcomes:
            if not 0 < outcome.rank <= 5:
                print(f"{outcome.case.id} [{outcome.case.style}] rank {outcome.rank}: {outcome.case.query}")
    if arguments.latency:
        for sections in (len(index), 5_000, 50_000):
            print(measure_latency(resized(index, sections), [case.query for case in cases]))


if __name__ == "__main__":
    main()
