"""Computes BM25 weights with rank_bm25, when an index is built; queries only add them up."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from rank_bm25 import BM25Okapi

from fsdp_mcp.docs.notes import further_words
from fsdp_mcp.docs.postings import Postings
from fsdp_mcp.docs.tokenise import terms_of
from fsdp_mcp.models import PAGE_KINDS, IndexEntry

K1 = 1.3
B = 0.5
_TITLE_TIMES = 4
_NAME_TIMES = 2
_WORDS_TIMES = 2


def document_terms(entry: IndexEntry) -> list[str]:
    """Return the terms that `entry` is found by; those of its title and names count several times.

    Repetition is how fields get weight, so that the scores stay those of plain BM25.
    """
    head = entry.title.rpartition(" › ")[2] if entry.kind in PAGE_KINDS else entry.symbol or entry.title
    leaf = ".".join(head.split(".")[-2:]) if " " not in head else head
    names = [name for name in entry.names if name != head]
    return [
        *terms_of(entry.title),
        *terms_of(leaf) * _TITLE_TIMES,
        *terms_of(" ".join({name.rpartition(".")[2] for name in names})) * _NAME_TIMES,
        *terms_of(" ".join(names)),
        *terms_of(entry.text),
        *terms_of(further_words(entry)) * _WORDS_TIMES,
    ]


def weigh(documents: Sequence[list[str]], *, k1: float = K1, b: float = B) -> Postings:
    """Return, for each term, the documents that hold it and what it adds to their score.

    The weights are those of `BM25Okapi(documents, k1=k1, b=b)`; an index of no document has no terms.
    """
    if not any(documents):
        return Postings(terms=(), starts=array("I", [0]), documents=array("I"), weights=array("f"), idf=array("f"))
    model = BM25Okapi(documents, k1=k1, b=b)
    found: dict[str, list[tuple[int, float]]] = {}
    for number, frequencies in enumerate(model.doc_freqs):
        length = k1 * (1 - b + b * model.doc_len[number] / model.avgdl)
        for term, count in frequencies.items():
            weight = model.idf[term] * count * (k1 + 1) / (count + length)
            found.setdefault(term, []).append((number, weight))
    return _pack(found, idf=model.idf)


def _pack(found: dict[str, list[tuple[int, float]]], *, idf: dict[str, float]) -> Postings:
    terms = sorted(found)
    starts, documents, weights = array("I", [0]), array("I"), array("f")
    for term in terms:
        documents.extend(number for number, _ in found[term])
        weights.extend(weight for _, weight in found[term])
        starts.append(len(documents))
    return Postings(
        terms=tuple(terms),
        starts=starts,
        documents=documents,
        weights=weights,
        idf=array("f", [idf[term] for term in terms]),
    )
