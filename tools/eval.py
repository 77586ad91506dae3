"""Measures retrieval beside baselines: `python -m tools.eval QUESTIONS.jsonl` (hits, ranks, tokens, milliseconds).

A line of the file is an object with id, lang, style, query, symbols, pages, env_vars, answer_terms. A hit is right when
it is the entry of one of `symbols` or `env_vars`, or a section of one of `pages`, or its text names one of `symbols`,
and its text holds one of `answer_terms`.

Plain BM25 over the same sections, with excerpts cut the same way, is always measured too (tools/eval_baselines.py).
With `--peer PYTHON`, the interpreter of an environment that has agents-docs, that documentation server is given the
same text as Markdown files and asked the same questions; `make eval` sets that environment up below build/.
`--latency` measures larger indexes.
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
from typing import TypeVar

from fsdp_mcp.docs.search import SearchHit, search_docs
from fsdp_mcp.docs.search_index import SearchIndex
from fsdp_mcp.docs.weigh import document_terms, weigh
from fsdp_mcp.index import build_index
from fsdp_mcp.index_store import read_search
from fsdp_mcp.models import IndexEntry

_RESAMPLES = 2_000
DEPTH = 10


_Result = TypeVar("_Result")


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
        milliseconds: time of a default reply, by the clock.
    """

    case: Case
    rank: int
    tokens: int
    milliseconds: float


@dataclass(frozen=True)
class Found:
    """What one contender answers to one question.

    Args:
        hits: ten at most, the best first; the first five as a default reply shows them.
        tokens: tokens of a default reply.
        milliseconds: time of a default reply, by the clock.
    """

    hits: tuple[SearchHit, ...]
    tokens: int
    milliseconds: float


Search = Callable[[str], Found]


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


def evaluate(cases: Sequence[Case], index: SearchIndex, *, search: Search | None = None) -> list[Outcome]:
    """Return the rank of the first right hit of every question; `search` is search_docs unless another is given."""
    return [_judge(case, (search or our_search(index))(case.query), index) for case in cases]


def our_search(index: SearchIndex) -> Search:
    """Return search_docs over `index`: the hits of a default reply, then those of one with twice the room."""

    def search(query: str) -> Found:
        started = time.perf_counter()
        reply = search_docs(query, index=index)
        elapsed = (time.perf_counter() - started) * 1_000
        deep = search_docs(query, limit=DEPTH, max_tokens=3_000, index=index)
        return Found((*reply.hits, *deep.hits[len(reply.hits) :]), count_tokens(reply.render()), elapsed)

    return search


def _judge(case: Case, found: Found, index: SearchIndex) -> Outcome:
    ranks = [rank for rank, hit in enumerate(found.hits, start=1) if is_right(hit, case, entry=_entry(index, hit))]
    return Outcome(case, ranks[0] if ranks else 0, found.tokens, found.milliseconds)


def _entry(index: SearchIndex, hit: SearchHit) -> IndexEntry:
    entry = index.section(hit.uri)
    assert entry is not None
    return entry


def count_tokens(text: str) -> int:
    """Return how many tokens of o200k_base `text` has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # bpe_openai 0.1 reads its tables by a deprecated call.
        from bpe_openai import get_encoding

        return len(get_encoding("o200k_base").encode(text))


def report(outcomes: Sequence[Outcome]) -> str:
    """Return a table of hit@1, hit@5, MRR@10, tokens and median time: overall, per language, per style."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        for name in ("all", f"lang {outcome.case.lang}", f"style {outcome.case.style}"):
            groups[name].append(outcome)
    lines = [f"{'group':<20}{'n':>4}{'hit@1':>8}{'hit@5':>8}{'MRR@10':>8}{'tokens':>8}{'max':>6}{'ms':>8}"]
    lines += [_row(name, groups[name]) for name in sorted(groups)]
    ranks = [outcome.rank for outcome in outcomes]
    for name, measure in MEASURES.items():
        low, high = bootstrap(ranks, measure)
        lines.append(f"{name} {measure(ranks):.3f}, 95 % interval {low:.3f} to {high:.3f}")
    return "\n".join(lines)


def _row(name: str, outcomes: Sequence[Outcome]) -> str:
    ranks = [outcome.rank for outcome in outcomes]
    tokens = [outcome.tokens for outcome in outcomes]
    time_ms = statistics.median(outcome.milliseconds for outcome in outcomes)
    return (
        f"{name:<20}{len(ranks):>4}{hit_at_1(ranks):>8.3f}{hit_at_5(ranks):>8.3f}{mean_reciprocal_rank(ranks):>8.3f}"
        f"{statistics.median(tokens):>8.0f}{max(tokens):>6}{time_ms:>8.2f}"
    )


def compare(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> str:
    """Return by how much we lead on the same questions, with the 95 % intervals of the differences."""
    pairs = [(mine.rank, other.rank) for mine, other in zip(ours, theirs, strict=True)]
    lines = []
    for name, measure in MEASURES.items():

        def lead(chosen: Sequence[tuple[int, int]], measure: Callable[[Sequence[int]], float] = measure) -> float:
            return measure([mine for mine, _ in chosen]) - measure([other for _, other in chosen])

        low, high = bootstrap(pairs, lead)
        lines.append(f"search_docs leads by {lead(pairs):+.3f} {name}, 95 % interval {low:+.3f} to {high:+.3f}")
    return "\n".join(lines)


def hit_at_1(ranks: Sequence[int]) -> float:
    """Return the share of questions whose first hit is right."""
    return sum(rank == 1 for rank in ranks) / len(ranks)


def hit_at_5(ranks: Sequence[int]) -> float:
    """Return the share of questions with a right hit among the first five."""
    return sum(0 < rank <= 5 for rank in ranks) / len(ranks)


def mean_reciprocal_rank(ranks: Sequence[int]) -> float:
    """Return the mean of 1/rank, 0 where there is no right hit."""
    return sum(1 / rank for rank in ranks if rank) / len(ranks)


MEASURES: dict[str, Callable[[Sequence[int]], float]] = {
    "hit@1": hit_at_1,
    "hit@5": hit_at_5,
    "MRR@10": mean_reciprocal_rank,
}


def bootstrap(results: Sequence[_Result], measure: Callable[[Sequence[_Result]], float]) -> tuple[float, float]:
    """Return the 95 % interval of `measure` over resampled questions."""
    chooser = random.Random(0)
    values = sorted(measure(chooser.choices(results, k=len(results))) for _ in range(_RESAMPLES))
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
    from tools.eval_baselines import peer_search, plain_search  # It builds on this module.

    arguments = _arguments()
    started = time.monotonic()
    index = read_search(build_index())
    assert index is not None
    print(f"{len(index)} entries, torch {index.torch_version}, opened or built in {time.monotonic() - started:.1f} s")
    cases = read_cases(arguments.questions)
    ours = evaluate(cases, index)
    print(f"\nsearch_docs\n{report(ours)}")
    if arguments.misses:
        print(misses(ours))
    contenders = {"plain BM25": plain_search(index)}
    if arguments.peer:
        contenders["agents-docs"] = peer_search(index, [case.query for case in cases], python=arguments.peer.absolute())
    for name, search in contenders.items():
        theirs = evaluate(cases, index, search=search)
        print(f"\n{name}\n{report(theirs)}\n{compare(ours, theirs)}")
    if arguments.latency:
        for sections in (len(index), 5_000, 50_000):
            print(measure_latency(resized(index, sections), [case.query for case in cases]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path, help="JSON Lines file")
    parser.add_argument("--latency", action="store_true", help="measure it at 5,000 and 50,000 sections too")
    parser.add_argument("--misses", action="store_true", help="list the questions without a right hit among five")
    parser.add_argument("--peer", type=Path, help="interpreter of an environment with agents-docs")
    return parser.parse_args()


def misses(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each question without a right hit among the first five."""
    return "\n".join(
        f"{outcome.case.id} [{outcome.case.style}] rank {outcome.rank}: {outcome.case.query}"
        for outcome in outcomes
        if not 0 < outcome.rank <= 5
    )


if __name__ == "__main__":
    main()
