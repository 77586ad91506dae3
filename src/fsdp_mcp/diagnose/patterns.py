"""Matches a line against the patterns of all pages at a cost that does not grow with their number.

Each pattern has an anchor: a whole word that every line it matches contains. A line is cut into words, and only the
patterns whose anchors are among them are tried.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    from re import _constants as sre_constants
    from re import _parser as sre_parse
else:
    import sre_constants
    import sre_parse

_DIGITS = str.maketrans("123456789", "000000000")
_WORDS = re.compile(r"\w+")
LONGEST_LINE = 4000
"""Characters of a line that are looked at; the messages of torch and NCCL are shorter."""


class Use(NamedTuple):
    """A pattern and who asks for it."""

    owner: str
    """Page or kind of line."""
    part: str
    """Field of the page."""
    pattern: str


class Candidate(NamedTuple):
    """A pattern that a line may hold."""

    pattern: re.Pattern[str]
    uses: Sequence[Use]
    words: frozenset[str]
    """All whole words that a line has to contain, as templates have them."""


class Matcher:
    """All patterns, compiled, by their anchors."""

    def __init__(self, uses: Iterable[Use]) -> None:
        by_pattern: dict[str, list[Use]] = {}
        for use in uses:
            by_pattern.setdefault(use.pattern, []).append(use)
        words = {pattern: frozenset(map(template_of, anchor_words(pattern))) for pattern in by_pattern}
        common = Counter(word for each in words.values() for word in each)
        self._by_anchor: dict[str, list[Candidate]] = {}
        for pattern, users in by_pattern.items():
            anchor = min(words[pattern], key=lambda word: (common[word], -len(word)))
            candidate = Candidate(compile_pattern(pattern), users, words[pattern])
            self._by_anchor.setdefault(anchor, []).append(candidate)
        self._anchors = frozenset(self._by_anchor)

    def candidates(self, template: str) -> Sequence[Candidate]:
        """Return the patterns that a line of this template may hold; for nearly every line there are none."""
        found = _WORDS.findall(template)
        anchors = self._anchors.intersection(found)
        if not anchors:
            return ()
        words = set(found)
        return [each for anchor in sorted(anchors) for each in self._by_anchor[anchor] if each.words <= words]


def template_of(text: str) -> str:
    """Return the text with every digit as 0: lines that tell the same of another step have one template."""
    return text.translate(_DIGITS)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that begins and ends at a word border, as a line's words are whole."""
    first = r"(?<!\w)" if re.match(r"\w", pattern) else ""
    last = r"(?!\w)" if re.search(r"(?<!\\)\w\Z", pattern) else ""
    return re.compile(f"{first}{pattern}{last}")


def anchor_words(pattern: str) -> set[str]:
    """Return the whole words that every match of the pattern contains.

    Raises:
        ValueError: there is none, so that the pattern would have to be tried on every line.
    """
    words: set[str] = set()
    run, open_left = "", False
    for part in [*_flatten(sre_parse.parse(pattern)), None]:
        if isinstance(part, str):
            run += part
            continue
        words |= _whole_words(run, open_left=open_left, open_right=part is not None)
        run, open_left = "", True
    if not words:
        raise ValueError(f"{pattern!r} holds no whole word that a line has to contain. Split it, or add words.")
    return words


_AT_WORD_BORDER = (sre_constants.AT_BEGINNING, sre_constants.AT_BOUNDARY, sre_constants.AT_END)


def _flatten(parsed: Any) -> Iterable[str | bool]:
    """Yield the literal characters of a pattern in order, and False for what is not literal."""
    for operation, argument in parsed:
        if operation is sre_constants.LITERAL:
            yield chr(argument)
        elif operation is sre_constants.AT and argument in _AT_WORD_BORDER:
            yield "\0"
        elif operation is sre_constants.SUBPATTERN and not argument[1]:
            yield from _flatten(argument[3])
        elif _ends_words(
            argument[2] if operation is sre_constants.MAX_REPEAT and argument[0] else [(operation, argument)]
        ):
            yield " "
        else:
            yield False


def _repeated(operation: Any, argument: Any) -> Any:
    """Return what is repeated at least once, else the part itself."""
    at_least_once = operation is sre_constants.MAX_REPEAT and argument[0] >= 1
    return argument[2] if at_least_once else [(operation, argument)]


def _ends_words(parsed: Any) -> bool:
    """Return whether a part of a pattern is one character that belongs to no word."""
    (operation, argument), *rest = list(parsed)
    if rest or operation is not sre_constants.IN:
        return not rest and operation is sre_constants.LITERAL and not _WORDS.match(chr(argument))
    space = (sre_constants.CATEGORY, sre_constants.CATEGORY_SPACE)
    return all(
        each == space or (each[0] is sre_constants.LITERAL and not _WORDS.match(chr(each[1]))) for each in argument
    )


def _whole_words(run: str, *, open_left: bool, open_right: bool) -> set[str]:
    """Return the words of a literal run that cannot go on beyond it."""
    return {
        word.group()
        for word in _WORDS.finditer(run)
        if not word.group().isdigit()
        if not (open_left and word.start() == 0) and not (open_right and word.end() == len(run))
    }
