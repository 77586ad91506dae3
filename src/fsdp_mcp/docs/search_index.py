"""The search index in memory: entries, postings, names; ranks a question and finds an entry by its URI or name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nlargest
from itertools import compress
from typing import NamedTuple

from fsdp_mcp.docs.postings import Postings
from fsdp_mcp.docs.question import MAX_TERMS, Family, Glossary, Question, Synonym
from fsdp_mcp.docs.spelling import Spelling
from fsdp_mcp.docs.tokenise import stem, terms_of
from fsdp_mcp.models import PAGE_KINDS, IndexEntry, Kind


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


_CANDIDATES = 40
_LEAST_SHARE = 0.3  # of the best score, that an entry is looked at closely
_PER_SYMBOL = 2
_FIRST = 5  # of the hits, that show several sides: few sections of guides, and fewer of one guide
_GUIDES_AMONG_FIRST = 3
_PER_GUIDE_AMONG_FIRST = 2
_EXACT = 3.0
_MENTIONED = 1.35
_OLDER_GENERATION = 0.72  # when the question does not say which
_OTHER_GENERATION = 0.55  # when it asks for one
_NOT_ON_ITS_PAGE = 0.7
_PRIVATE = 0.7
_GUIDE = 0.85  # a guide section: long, so that it holds many words; the API that it speaks of answers more closely
_OFFICIAL = 0.85  # a section of a fetched page: as long as a guide's, which should not lose its place to it
_OVERVIEW = 0.68  # the opening of a guide, which says what the guide is about
_VARIABLE = 0.9  # an environment variable or option: short texts, hundreds of them, wanted by name
_PARAMETER = 0.9  # a parameter: its function answers unless the question asks for just this
_FAILURE_PAGE = 0.7  # a page on a failure, when the question tells of none
_COMMON = 1 / 2  # of all entries; a term that more of them hold tells little and costs most
_CORRECTED = 0.8  # a term of the name that a misspelt one is taken for
_SHORTEST_CORRECTED = 5
_COVERAGE_SHARE = 0.5


class Hit(NamedTuple):
    """The number of an entry that was found, and how well it matches."""

    number: int
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
        synonyms: words that widen a question.
        families: generations of one thing (FSDP1, FSDP2) and the words that ask for each.
        torch_version: version that the API entries are from; None when there is no torch.
        missing: what the index lacks and why, for the reader; empty when complete.
    """

    rows: Sequence[Row]
    postings: Postings
    synonyms: Sequence[Synonym] = ()
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

    @cached_property
    def glossary(self) -> Glossary:
        """What widens a question."""
        return Glossary(self.synonyms, rarity=self.postings.rarity)

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
        folded = _folded_name(name)
        if folded in self.by_name:
            return self.by_name[folded]
        return [
            number
            for number in self.by_name.get(folded.rpartition(".")[2], ())
            if any(full.endswith(f".{folded}") for full in _names_of(self.rows[number]))
        ]

    def nearly_named(self, name: str) -> list[int]:
        """Return what `named` finds, else the entries of the same last component that share most of a wrong path."""
        if found := self.named(name):
            return found
        *path, leaf = _folded_name(name).split(".")
        owners = set(path) - {"torch"}
        shared = {
            number: len(owners.intersection(self.rows[number].symbol.casefold().split(".")))
            for number in self.by_name.get(leaf.lstrip("_"), ())
        }
        most = max(shared.values(), default=0)
        return [number for number, count in shared.items() if count == most and most > 0]

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
        """Return the entries for `question`, best first, at most two of each symbol."""
        question = self._spelt(question)
        terms = self._telling_terms(question.terms)
        scores = self.scores(terms)
        exact = set(self.nearly_named(question.text)[:_CANDIDATES])
        pool = self._pool(scores, exact, kind)
        coverage = self._coverage(terms, pool)
        factors = self._factors(question, pool, exact)
        whole = {number: 1 - _COVERAGE_SHARE + _COVERAGE_SHARE * coverage[number] for number in pool}
        scored = {number: (scores[number] or 1.0) * factors[number] * whole[number] for number in pool}
        order = sorted(pool, key=lambda number: (-scored[number], number))
        found = self._distinct(order)
        hits = [Hit(number, scored[number]) for number in (found if kind else self._varied(found))]
        covered = 0.0 if not order else 1.0 if order[0] in exact else coverage[order[0]]
        return Ranking(hits, covered)

    def _pool(self, scores: list[float], exact: set[int], kind: Kind | None) -> list[int]:
        """Return the entries that are looked at closely: the exact ones and those that score best."""
        floor = max(scores, default=0.0) * _LEAST_SHARE
        near = list(compress(range(len(scores)), map((0.0 if kind else floor).__lt__, scores)))
        if kind is not None:
            near = [number for number in near if self.rows[number].kind == kind]
            exact = {number for number in exact if self.rows[number].kind == kind}
        best = nlargest(_CANDIDATES, near, key=scores.__getitem__)
        return [*best, *exact.difference(best)]

    def _spelt(self, question: Question) -> Question:
        """Add the closest name, and its terms, for each identifier that no entry has."""
        near = [name for word in question.identifiers for name in self._closest_name(word)]
        if not near:
            return question
        terms = dict.fromkeys((term for name in near for term in terms_of(name)), _CORRECTED)
        return replace(
            question,
            text=" ".join([question.text, *near]) if " " in question.text.strip() else near[0],
            terms={**terms, **question.terms},
            identifiers=(*question.identifiers, *near),
        )

    def _closest_name(self, word: str) -> list[str]:
        leaf = word.rpartition(".")[2].strip("_").casefold()
        known = leaf in self.by_name or self.postings.span(stem(leaf))[1]
        if known or len(leaf) < _SHORTEST_CORRECTED:
            return []
        return self.spelling.closest(leaf) or self.spelling.longer(leaf)

    def _telling_terms(self, terms: dict[str, float]) -> dict[str, float]:
        """Drop the terms that very many entries hold, and all but the rarest of a long question.

        BM25Okapi gives a term of more than half the entries more weight than one of just under half.
        """
        common = len(self.rows) * _COMMON
        counts = {term: end - start for term, (start, end) in ((term, self.postings.span(term)) for term in terms)}
        telling = {term: times for term, times in terms.items() if counts[term] <= common} or terms
        if len(telling) <= MAX_TERMS:
            return telling
        kept = sorted(telling, key=lambda term: (not counts[term], counts[term]))[:MAX_TERMS]
        return {term: telling[term] for term in kept}

    def _coverage(self, terms: dict[str, float], pool: Iterable[int]) -> dict[int, float]:
        """Return for each candidate the share of the question's weight, by rarity, whose terms it holds."""
        found = dict.fromkeys(pool, 0.0)
        total = 0.0
        translated = any(times < 1 for times in terms.values())
        for term, times in terms.items():
            start, end = self.postings.span(term)
            if start == end and translated and not term.isascii():
                continue  # Characters that the glossary has read already.
            gain = times * max(self.postings.rarity(term), 0.0)
            total += gain
            for number in self.postings.holding(term, found):
                found[number] += gain
        return {number: value / total if total else 0.0 for number, value in found.items()}

    def _factors(self, question: Question, pool: Iterable[int], exact: set[int]) -> dict[int, float]:
        """Return what each candidate's score is multiplied with for names that the question mentions."""
        found = dict.fromkeys(pool, 1.0)
        mentioned = {number for word in question.identifiers for number in self.nearly_named(word)}
        generations = self._generations(question)
        failures = 1.0 if question.tells_failure else _FAILURE_PAGE
        for number in found:
            if number in exact:
                found[number] *= _EXACT
            elif number in mentioned:
                found[number] *= _MENTIONED
            found[number] *= generations.get(self._families[number], 1.0)
            found[number] *= failures if self.rows[number].kind == "failure" else _standing(self.rows[number])
        return found

    def _generations(self, question: Question) -> dict[str, float]:
        """Return what entries of each generation count; those that nobody asked for less than the others."""
        folded = question.text.casefold()
        asked = {family.name for family in self.families if any(hint.casefold() in folded for hint in family.hints)}
        wanted = asked or {family.name for family in self.families if family.preferred}
        less = _OTHER_GENERATION if asked else _OLDER_GENERATION
        return {family.name: 1.0 if family.name in wanted else less for family in self.families}

    @cached_property
    def _families(self) -> list[str]:
        """The name of the generation that each entry belongs to, or an empty string."""
        return [next((family.name for family in self.families if _belongs(row, family)), "") for row in self.rows]

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

    def _varied(self, order: Sequence[int]) -> list[int]:
        """Move guide sections behind the first hits where those hold enough of them; what is left keeps its order."""
        first: list[int] = []
        guides: Counter[str] = Counter()
        for number in order:
            row = self.rows[number]
            if row.kind == "guide":
                if guides.total() >= _GUIDES_AMONG_FIRST or guides[row.page] >= _PER_GUIDE_AMONG_FIRST:
                    continue
                guides[row.page] += 1
            first.append(number)
            if len(first) == _FIRST:
                break
        return [*first, *(number for number in order if number not in first)]


def _folded_name(name: str) -> str:
    return name.strip("`'\" \n").removesuffix("()").casefold()


def _belongs(row: Row, family: Family) -> bool:
    below = tuple(f"{name}." for name in family.symbols)
    return row.page in family.guides or row.symbol in family.symbols or row.symbol.startswith(below)


def _standing(row: Row) -> float:
    """Return how much an entry counts by what it is: names that their official page documents come first."""
    if row.kind in ("env_var", "option"):
        return _VARIABLE
    if row.kind == "guide":
        return _GUIDE if "#" in row.uri else _OVERVIEW
    if row.kind != "api":
        return _OFFICIAL if row.kind == "official" else 1.0
    documented = 1.0 if "#" in row.url else _NOT_ON_ITS_PAGE
    return documented * (_PRIVATE if "._" in row.symbol else 1.0) * (_PARAMETER if "#" in row.uri else 1.0)


def _names_of(row: Row) -> set[str]:
    """Return the folded names that mean a row: paths and their last components."""
    if row.kind in PAGE_KINDS:
        return {name.casefold() for name in row.names}
    parameter = row.uri.partition("#param-")[2]
    folded = {name.casefold() for name in ([parameter] if parameter else [row.symbol or row.title, *row.names])}
    return folded | {name.rpartition(".")[2] for name in folded}


def _summary(text: str) -> str:
    """Return the paragraph below the title of a guide's first section."""
    paragraphs = [part for part in text.split("\n\n") if not part.startswith("# ")]
    return paragraphs[0] if paragraphs else ""
