"""The search index in memory: entries, postings, names; ranks a question and finds an entry by its URI or name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest
from typing import NamedTuple

from fsdp_mcp.docs.postings import Postings
from fsdp_mcp.docs.question import Family, Question, Synonym
from fsdp_mcp.docs.spelling import Spelling
from fsdp_mcp.docs.tokenise import stem, terms_of
from fsdp_mcp.models import IndexEntry, Kind


class Row(NamedTuple):
    """The fields of an IndexEntry in their order, as JSON keeps them: a tuple is made ten times faster."""

    uri: str
    title: str
    kind: Kind
    text: str
    page: str
    url: str
    symbol: str
    names: Sequence[str]
    torch_version: str


_CANDIDATES = 120
_PER_SYMBOL = 2
_EXACT = 3.0
_MENTIONED = 1.35
_OTHER_GENERATION = 0.72
_NOT_ON_ITS_PAGE = 0.9
_PRIVATE = 0.7
_COVERAGE_SHARE = 0.7


class Hit(NamedTuple):
    """An entry that was found, and how well it matches."""

    entry: IndexEntry
    score: float


class Ranking(NamedTuple):
    """What a question found: hits, best first, and the share of the question that the best of them covers."""

    hits: list[Hit]
    coverage: float


class GuideTitle(NamedTuple):
    """A guide for lists and completions."""

    stem: str
    title: str
    summary: str


@dataclass(frozen=True)
class SearchIndex:
    """All searchable sections of one torch and of the guides.

    Args:
        rows: the entries, guides page by page in their order.
        postings: their BM25 weights, by number of the row.
        glossary: words that widen a question.
        families: generations of one thing (FSDP1, FSDP2) and the words that ask for each.
        torch_version: version that the API entries are from; None when there is no torch.
        missing: what the index lacks and why, for the reader; empty when complete.
    """

    rows: Sequence[Row]
    postings: Postings
    glossary: Sequence[Synonym] = ()
    families: Sequence[Family] = ()
    torch_version: str | None = None
    missing: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def entry(self, number: int) -> IndexEntry:
        """Return the entry of that number, from 0."""
        row = self.rows[number]
        return IndexEntry(*row[:7], tuple(row.names), row.torch_version)

    def scores(self, terms: dict[str, float]) -> list[float]:
        """Return the BM25 score of every entry for `terms`, each with its multiplicity."""
        return self.postings.scores(terms, size=len(self.rows))

    # --- by URI and by name -------------------------------------------------------------------------------------

    @cached_property
    def by_uri(self) -> dict[str, int]:
        """Number of each entry by URI."""
        return {row.uri: number for number, row in enumerate(self.rows)}

    @cached_property
    def by_name(self) -> dict[str, list[int]]:
        """Numbers of the entries by folded name: full paths, aliases and last components; parameters come last."""
        found: dict[str, list[int]] = {}
        later: list[tuple[str, int]] = []
        for number, row in enumerate(self.rows):
            for name in _names_of(row):
                if "#" in row.uri:
                    later.append((name, number))
                else:
                    found.setdefault(name, []).append(number)
        for name, number in later:
            found.setdefault(name, []).append(number)
        return found

    @cached_property
    def spelling(self) -> Spelling:
        """Finds the name that a misspelt identifier is closest to."""
        return Spelling(name for name in self.by_name if " " not in name)

    def named(self, name: str) -> list[int]:
        """Return the entries that `name` means: a full path, an alias, a last component or `Class.member`."""
        folded = name.strip("`'\" ").removesuffix("()").casefold()
        if folded in self.by_name:
            return self.by_name[folded]
        leaf = folded.rpartition(".")[2]
        return [
            number
            for number in (self.by_name.get(leaf, ()) if leaf != folded else ())
            if any(full.endswith(f".{folded}") for full in _names_of(self.rows[number]))
        ]

    def section(self, uri: str) -> IndexEntry | None:
        """Return the entry with exactly this URI, or None."""
        number = self.by_uri.get(uri)
        return None if number is None else self.entry(number)

    def page(self, uri: str) -> list[IndexEntry]:
        """Return the entry of `uri` and those below it (`uri#...`), in their order."""
        prefix = f"{uri}#"
        found = [number for number, row in enumerate(self.rows) if row.uri == uri or row.uri.startswith(prefix)]
        return [self.entry(number) for number in found]

    def guides(self) -> list[GuideTitle]:
        """Return stem, title and summary of every guide."""
        first = [row for row in self.rows if row.kind == "guide" and "#" not in row.uri]
        return [GuideTitle(row.page, row.title, _summary(row.text)) for row in first]

    # --- ranking ------------------------------------------------------------------------------------------------

    def rank(self, question: Question, *, kind: Kind | None = None) -> Ranking:
        """Return up to a hundred entries for `question`, best first, at most two of each symbol."""
        terms = self._rarest_terms(self._with_corrections(question))
        scores = self.scores(terms)
        best = nlargest(_CANDIDATES, range(len(scores)), key=scores.__getitem__)
        exact = self.named(question.text.strip())[:_CANDIDATES]
        pool = dict.fromkeys([*exact, *(number for number in best if scores[number] > 0)])
        if kind is not None:
            pool = {number: None for number in pool if self.rows[number].kind == kind}
        coverage = self._coverage(terms, pool)
        factors = self._factors(question, pool, set(exact))
        scored = {
            number: (scores[number] or 1.0)
            * factors[number]
            * (1 - _COVERAGE_SHARE + _COVERAGE_SHARE * coverage[number])
            for number in pool
        }
        order = sorted(pool, key=lambda number: (-scored[number], number))
        hits = [Hit(self.entry(number), scored[number]) for number in self._distinct(order)]
        top = order[0] if order else None
        return Ranking(hits, 0.0 if top is None else 1.0 if top in exact else coverage[top])

    def _with_corrections(self, question: Question) -> dict[str, float]:
        """Add the terms of the closest name for each identifier that no entry has."""
        terms = dict(question.terms)
        for word in question.identifiers:
            leaf = word.rpartition(".")[2].strip("_").casefold()
            if len(leaf) < 5 or leaf in self.by_name or self.postings.span(stem(leaf))[1]:
                continue
            for near in self.spelling.closest(leaf):
                for term in terms_of(near):
                    terms.setdefault(term, 0.8)
        return terms

    def _rarest_terms(self, terms: dict[str, float], *, limit: int = 64) -> dict[str, float]:
        if len(terms) <= limit:
            return terms
        kept = sorted(terms, key=lambda term: -self.postings.rarity(term) * bool(self.postings.span(term)[1]))[:limit]
        return {term: terms[term] for term in kept}

    def _coverage(self, terms: dict[str, float], pool: Iterable[int]) -> dict[int, float]:
        """Return for each candidate the share of the question's weight, by rarity, whose terms it holds."""
        found = dict.fromkeys(pool, 0.0)
        total = 0.0
        for term, times in terms.items():
            gain = times * max(self.postings.rarity(term), 0.0)
            total += gain
            for number in self.postings.holding(term, found):
                found[number] += gain
        return {number: value / total if total else 0.0 for number, value in found.items()}

    def _factors(self, question: Question, pool: Iterable[int], exact: set[int]) -> dict[int, float]:
        """Return what each candidate's score is multiplied with for names that the question mentions."""
        found = dict.fromkeys(pool, 1.0)
        mentioned = {number for word in question.identifiers for number in self.named(word)}
        other = self._unasked_families(question)
        for number in found:
            if number in exact:
                found[number] *= _EXACT
            elif number in mentioned:
                found[number] *= _MENTIONED
            if any(self._belongs(number, family) for family in other):
                found[number] *= _OTHER_GENERATION
            found[number] *= _standing(self.rows[number])
        return found

    def _unasked_families(self, question: Question) -> list[Family]:
        """Return the generations that the question does not ask for: without a hint all but the preferred ones."""
        folded = question.text.casefold()
        asked = [family for family in self.families if any(hint.casefold() in folded for hint in family.hints)]
        if asked:
            return [family for family in self.families if family not in asked]
        return [family for family in self.families if not family.preferred]

    def _belongs(self, number: int, family: Family) -> bool:
        row = self.rows[number]
        below = tuple(f"{name}." for name in family.symbols)
        return row.page in family.guides or row.symbol in family.symbols or row.symbol.startswith(below)

    def _distinct(self, order: Iterable[int]) -> list[int]:
        """Drop entries with the text of a better one, and more than two of one symbol."""
        seen: set[tuple[str, str]] = set()
        count: dict[str, int] = {}
        kept = []
        for number in order:
            row = self.rows[number]
            text = (row.title.rpartition(".")[2], row.text)
            if text in seen or (row.symbol and count.get(row.symbol, 0) >= _PER_SYMBOL):
                continue
            seen.add(text)
            count[row.symbol] = count.get(row.symbol, 0) + 1
            kept.append(number)
        return kept


def _standing(row: Row) -> float:
    """Return how much an entry counts by what it is: names that their official page documents come first."""
    if row.kind != "api":
        return 1.0
    documented = 1.0 if "#" in row.url else _NOT_ON_ITS_PAGE
    return documented * (_PRIVATE if "._" in row.symbol else 1.0)


def _names_of(row: Row) -> set[str]:
    """Return the folded names that mean a row: paths and their last components."""
    if row.kind == "guide":
        return {name.casefold() for name in row.names}
    parameter = row.uri.partition("#param-")[2]
    folded = {name.casefold() for name in ([parameter] if parameter else [row.symbol or row.title, *row.names])}
    return folded | {name.rpartition(".")[2] for name in folded}


def _summary(text: str) -> str:
    """Return the paragraph below the title of a guide's first section."""
    paragraphs = [part for part in text.split("\n\n") if not part.startswith("# ")]
    return paragraphs[0] if paragraphs else ""
