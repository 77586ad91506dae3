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


def read_question(query: str, *, glossary: Sequence[Synonym]) -> Question:
    """Return the terms and identifiers of `query`, widened by the glossary."""
    text = query if len(query) <= MAX_CHARACTERS else f"{query[:_HEAD]}\n{query[_HEAD - MAX_CHARACTERS :]}"
    bare = _PATH_OR_ADDRESS.sub(" ", text)
    own = dict.fromkeys(terms_of(bare), 1.0)
    identifiers = tuple(dict.fromkeys([word for word in words_of(bare) if is_identifier(word)] + _code(bare)))
    terms = dict(own)
    for term, weight in _added(bare.casefold(), own.keys(), glossary):
        terms[term] = max(terms.get(term, 0.0), weight)
    return Question(text=text, terms=terms, identifiers=identifiers)


def _code(text: str) -> list[str]:
    """Return what is called or quoted as code, such as `load` in `dcp.load(...)`."""
    return [quoted or called for quoted, called in _CODE.findall(text)]


def _added(folded: str, own: Iterable[str], glossary: Sequence[Synonym]) -> list[tuple[str, float]]:
    """Return the terms that the glossary adds, with their weights."""
    have = set(own)
    found: list[tuple[str, float]] = []
    for row in glossary:
        if any(_says(phrase, folded, have) for phrase in row.say):
            found.extend((term, _ADDED_WEIGHT) for words in row.mean for term in terms_of(words))
    return found


_ADDED_WEIGHT = 0.5


def _says(phrase: str, folded: str, have: set[str]) -> bool:
    """Return whether the question uses `phrase`: as it stands when Chinese, else all of its stems."""
    if not phrase.isascii():
        return phrase.casefold() in folded
    terms = terms_of(phrase)
    return bool(terms) and have.issuperset(terms)
