"""Reads a question: its terms with their weights, its identifiers, and the words that a glossary adds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fsdp_mcp.docs.tokenise import is_identifier, terms_of, words_of
from fsdp_mcp.models import Value

MAX_CHARACTERS = 2_000
MAX_TERMS = 64
_HEAD = 600  # of a longer question: its beginning says what is asked, its end is where a stack trace names the error
_PATH_OR_ADDRESS = re.compile(r"https?://\S+|(?:[A-Za-z]:)?(?:[/\\][\w.\-]+){2,}[/\\]|0x[0-9a-fA-F]+")
_IMPORTED = re.compile(r"\bimport\s+\(?([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)")
_CODE = re.compile(r"[`'\"]([A-Za-z_][\w.]{2,})(?:\(\))?[`'\"]|\b([A-Za-z_][\w.]*\w)\(")
_FAILURE = re.compile(
    r"error\b|exception\b|warning\b|traceback|\b(?:fail(?:s|ed|ure)?|crash(?:es|ed)?|killed|aborted|hangs?|stuck|timeout)\b"
    r"|报错|异常|失败|警告|超时|卡住|卡死|崩溃",
    re.IGNORECASE,
)

_ADDED_WEIGHT = 0.5  # a word of the glossary beside one of the question
_TRANSLATED_WEIGHT = 0.7  # the same when it translates: few entries hold the Chinese word itself
_ADDED_MOST = 3.5  # idf that the words of a row may add together: less than one rare word of the question
_TRANSLATED_MOST = 14.0  # the same for a row that translates


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

    @property
    def tells_failure(self) -> bool:
        """Whether it tells of something that went wrong, or shows what a program printed then."""
        return _FAILURE.search(self.text) is not None


class Glossary:
    """The rows of the glossary, arranged so that a question looks at few of them.

    Args:
        rows: the table.
        rarity: gives the idf of a term; what a row adds of it is bounded, however many words it has.
    """

    def __init__(self, rows: Sequence[Synonym], *, rarity: Callable[[str], float]) -> None:
        self._literal: list[tuple[str, dict[str, float]]] = []
        self._by_term: dict[str, list[tuple[frozenset[str], dict[str, float]]]] = {}
        for row in rows:
            mean = dict.fromkeys(term for words in row.mean for term in terms_of(words))
            total = max(sum(rarity(term) for term in mean), 1.0)
            added = min(_ADDED_WEIGHT, _ADDED_MOST / total)
            translated = min(_TRANSLATED_WEIGHT, _TRANSLATED_MOST / total)
            for phrase in row.say:
                self._add(phrase, dict.fromkeys(mean, added if phrase.isascii() else translated))

    def _add(self, phrase: str, mean: dict[str, float]) -> None:
        """File a phrase under its longest term; as it stands when Chinese, or when a single term is left."""
        terms = terms_of(phrase)
        if not phrase.isascii():
            self._literal.append((phrase.casefold(), mean))
        elif len(set(terms)) < 2 <= len(phrase.split()):
            self._literal.append((f" {phrase.casefold()} ", mean))
        else:
            self._by_term.setdefault(max(terms, key=len), []).append((frozenset(terms), mean))

    def added(self, text: str, terms: Iterable[str]) -> dict[str, float]:
        """Return the terms that the glossary has for a question, given as text and as terms, with their weights."""
        folded = f" {' '.join(text.casefold().split())} "
        have = set(terms)
        rows = [mean for phrase, mean in self._literal if phrase in folded]
        rows += [mean for term in have for wanted, mean in self._by_term.get(term, ()) if wanted <= have]
        found: dict[str, float] = {}
        for mean in rows:
            for term, weight in mean.items():
                found[term] = max(found.get(term, 0.0), weight)
        return found


def read_question(query: str, *, glossary: Glossary) -> Question:
    """Return the terms and identifiers of `query`, widened by the glossary."""
    text = query if len(query) <= MAX_CHARACTERS else f"{query[:_HEAD]}\n{query[_HEAD - MAX_CHARACTERS :]}"
    bare = _PATH_OR_ADDRESS.sub(" ", text)
    terms = dict.fromkeys(terms_of(bare), 1.0)
    terms = {**glossary.added(bare, terms), **terms}
    identifiers = tuple(dict.fromkeys([word for word in words_of(bare) if is_identifier(word)] + _code(bare)))
    return Question(text=text, terms=terms, identifiers=identifiers)


def _code(text: str) -> list[str]:
    """Return what is called, quoted or imported as code, such as `load` in `dcp.load(...)`."""
    imported = [name for names in _IMPORTED.findall(text) for name in re.findall(r"\w+", names)]
    return [quoted or called for quoted, called in _CODE.findall(text)] + imported
