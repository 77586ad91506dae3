"""Reads a question: its terms with their weights, its identifiers, and the words that a glossary adds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fsdp_mcp.docs.tokenise import is_identifier, terms_of, words_of
from fsdp_mcp.models import Value

MAX_CHARACTERS = 2_000
MAX_TERMS = 64
_HEAD = 600  # of a longer question: its beginning says what is asked, its end is where a stack trace names the error
_PATH_OR_ADDRESS = re.compile(r"https?://\S+|(?:[A-Za-z]:)?(?:[/\\][\w.\-]+){2,}[/\\]|0x[0-9a-fA-F]+")
_CODE = re.compile(r"[`'\"]([A-Za-z_][\w.]{2,})(?:\(\))?[`'\"]|\b([A-Za-z_][\w.]*\w)\(")


_ADDED_WEIGHT = 0.5  # a word of the glossary beside one of the question


class Synonym(Value):
    """A row of the glossary: what people say, and the words that the documentation has for it."""

    say: tuple[str, ...]
    mean: tuple[str, ...]
    source: str = ""


class Family(Value):
    """A row that tells apart two generations of one thing: what belongs to it and which words ask for it."""

    name: str
    symbols: tuple[str, ...]
    guides: tuple[str, ...] = ()
    hints: tuple[str, ...]
    preferred: bool
    source: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the ranking sees it.

    Args:
        text: what was asked, shortened to MAX_CHARACTERS.
        terms: each term with how much it counts, 1 for a word of the question.
        identifiers: words written as code, as they stand.
    """

    text: str
    terms: dict[str, float]
    identifiers: tuple[str, ...]


class Glossary:
    """The rows of the glossary, arranged so that a question looks at few of them."""

    def __init__(self, rows: Sequence[Synonym]) -> None:
        self._wide: list[tuple[str, tuple[str, ...]]] = []
        self._by_term: dict[str, list[tuple[frozenset[str], tuple[str, ...]]]] = {}
        for row in rows:
            mean = tuple(dict.fromkeys(term for words in row.mean for term in terms_of(words)))
            for phrase in row.say:
                self._add(phrase, mean)

    def _add(self, phrase: str, mean: tuple[str, ...]) -> None:
        """Chinese is found as it stands, other phrases by all of their terms, filed under the longest."""
        terms = terms_of(phrase)
        if not phrase.isascii():
            self._wide.append((phrase.casefold(), mean))
        elif terms:
            self._by_term.setdefault(max(terms, key=len), []).append((frozenset(terms), mean))

    def added(self, folded: str, terms: Iterable[str]) -> set[str]:
        """Return the terms that the glossary has for a question, given folded and as terms."""
        have = set(terms)
        found = {term for phrase, mean in self._wide if phrase in folded for term in mean}
        for term in have:
            for phrase_terms, mean in self._by_term.get(term, ()):
                if phrase_terms <= have:
                    found.update(mean)
        return found


def read_question(query: str, *, glossary: Glossary) -> Question:
    """Return the terms and identifiers of `query`, widened by the glossary."""
    text = query if len(query) <= MAX_CHARACTERS else f"{query[:_HEAD]}\n{query[_HEAD - MAX_CHARACTERS :]}"
    bare = _PATH_OR_ADDRESS.sub(" ", text)
    terms = dict.fromkeys(terms_of(bare), 1.0)
    for term in sorted(glossary.added(bare.casefold(), terms)):
        terms.setdefault(term, _ADDED_WEIGHT)
    identifiers = tuple(dict.fromkeys([word for word in words_of(bare) if is_identifier(word)] + _code(bare)))
    return Question(text=text, terms=terms, identifiers=identifiers)


def _code(text: str) -> list[str]:
    """Return what is called or quoted as code, such as `load` in `dcp.load(...)`."""
    return [quoted or called for quoted, called in _CODE.findall(text)]
