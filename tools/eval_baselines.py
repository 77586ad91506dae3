"""What search_docs is measured against: plain BM25, and a documentation server from a registry, over the same text."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rank_bm25 import BM25Okapi

from fsdp_mcp.docs.question import read_question
from fsdp_mcp.docs.search import SearchHit, SearchResult, _fit
from fsdp_mcp.docs.search_index import Hit, SearchIndex
from tools.eval import DEPTH, Found, Search, count_tokens

_PEER_SCRIPT = Path(__file__).parent / "eval_peer.py"
_DEFAULT_HITS = 5


def plain_search(index: SearchIndex) -> Search:
    """Return BM25 as rank_bm25 has it over title and text, words in lower case; excerpts are cut as for search_docs."""
    entries = [index.entry(number) for number in range(len(index))]
    bm25 = BM25Okapi([_words(f"{entry.title}\n{entry.text}") for entry in entries])

    def search(query: str) -> Found:
        started = time.perf_counter()
        hits = _ranked(bm25, query)
        shown = _cut(hits[:_DEFAULT_HITS], query=query, index=index, max_tokens=1_500)
        elapsed = (time.perf_counter() - started) * 1_000
        deep = _cut(hits, query=query, index=index, max_tokens=3_000)
        reply = SearchResult(torch_version=index.torch_version, hits=shown, omitted=0, suggestion=None)
        return Found((*shown, *deep[len(shown) :]), count_tokens(reply.render()), elapsed)

    return search


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _ranked(bm25: BM25Okapi, query: str) -> list[Hit]:
    scores = bm25.get_scores(_words(query))
    best = sorted(range(len(scores)), key=lambda number: (-scores[number], number))[:DEPTH]
    return [Hit(number, float(scores[number])) for number in best if scores[number] > 0]


def _cut(hits: list[Hit], *, query: str, index: SearchIndex, max_tokens: int) -> tuple[SearchHit, ...]:
    question = read_question(query, glossary=index.glossary)
    return _fit(hits, question=question, index=index, max_tokens=max_tokens)


def peer_search(index: SearchIndex, queries: Sequence[str], *, python: Path) -> Search:
    """Return the answers of agents-docs, which `python` has, to `queries`; every section is a Markdown file of its own.

    Its BM25 needs no model. A hit's text is the snippet that it shows; the default reply is that of its MCP tool.

    Raises:
        subprocess.CalledProcessError: that interpreter lacks agents-docs.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "docs")
        root.mkdir()
        for number in range(len(index)):
            entry = index.entry(number)
            text = re.sub(r"\A#+ .*\n+", "", entry.text)
            Path(root, f"{number}.md").write_text(f"# {entry.title}\n{text}\n", encoding="utf-8")
        asked = json.dumps({"root": str(root), "queries": list(queries), "depth": DEPTH})
        done = subprocess.run(
            [python, _PEER_SCRIPT], input=asked, capture_output=True, check=True, encoding="utf-8", cwd=folder
        )
    answers = dict(zip(queries, (_found(answer, index) for answer in json.loads(done.stdout)), strict=True))
    return answers.__getitem__


def _found(answer: dict[str, object], index: SearchIndex) -> Found:
    """Return one answer of tools/eval_peer.py as hits on our sections."""
    hits = answer["hits"]
    assert isinstance(hits, list)
    found = tuple(_peer_hit(int(file.removesuffix(".md")), str(text), index) for file, text in hits)
    return Found(found, count_tokens(str(answer["reply"])), float(str(answer["milliseconds"])))


def _peer_hit(number: int, text: str, index: SearchIndex) -> SearchHit:
    entry = index.entry(number)
    return SearchHit(
        uri=entry.uri, title=entry.title, kind=entry.kind, symbol=entry.symbol, page=entry.page, url=entry.url,
        score=0.0, text=text,
    )  # fmt: skip
