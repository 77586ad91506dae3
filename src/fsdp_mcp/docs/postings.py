"""The postings of a BM25 index in flat arrays: quick to load, and scoring is addition."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Postings:
    """For each term the documents that hold it, ascending, and the weight that it adds to each.

    Args:
        terms: all terms, sorted.
        starts: where the documents of each term begin; one more entry than terms.
        documents: numbers of documents, term by term.
        weights: the BM25 weight of the term in that document, beside `documents`.
        idf: how rare each term is.
    """

    terms: tuple[str, ...]
    starts: array[int]
    documents: array[int]
    weights: array[float]
    idf: array[float]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Number of each term."""
        return {term: number for number, term in enumerate(self.terms)}

    @cached_property
    def rarest(self) -> float:
        """The idf that a term has when a single document holds it: that of a term nobody has seen, too."""
        return max(self.idf, default=1.0)

    def span(self, term: str) -> tuple[int, int]:
        """Return where the postings of `term` begin and end; an empty span when no document has it."""
        number = self.numbers.get(term)
        return (0, 0) if number is None else (self.starts[number], self.starts[number + 1])

    def rarity(self, term: str) -> float:
        """Return the idf of `term`; a term that no document has is as rare as the rarest."""
        number = self.numbers.get(term)
        return self.rarest if number is None else self.idf[number]

    def scores(self, terms: Mapping[str, float], *, size: int) -> list[float]:
        """Return the BM25 score of each of `size` documents; `terms` gives each term its multiplicity."""
        found = [0.0] * size
        for term, times in terms.items():
            start, end = self.span(term)
            documents, weights = self.documents[start:end], self.weights[start:end]
            if times == 1:
                for number, weight in zip(documents, weights, strict=True):
                    found[number] += weight
            else:
                for number, weight in zip(documents, weights, strict=True):
                    found[number] += weight * times
        return found

    def holding(self, term: str, among: Iterable[int]) -> set[int]:
        """Return the documents of `among` that hold `term`."""
        start, end = self.span(term)
        held = set()
        for number in among:
            position = bisect_left(self.documents, number, start, end)
            if position < end and self.documents[position] == number:
                held.add(number)
        return held
