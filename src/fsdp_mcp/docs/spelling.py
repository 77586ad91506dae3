"""Finds the identifier that a misspelt one is closest to, by the letter triples that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher

_LOOKED_AT = 12
_ALIKE = 0.8
_FEWEST_PARTS = 2


class Spelling:
    """The known names by the triples of letters in them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        self._holding: dict[str, list[int]] = {}
        self._parts = [frozenset(name.split("_")) if "_" in name and "." not in name else None for name in self._names]
        for number, name in enumerate(self._names):
            for triple in _triples(name):
                self._holding.setdefault(triple, []).append(number)

    def closest(self, word: str, *, count: int = 1, alike: float = _ALIKE) -> list[str]:
        """Return the names that resemble `word`, nearest first; the word itself counts when it is known."""
        folded = word.casefold()
        wanted = _triples(folded)
        shared = Counter(number for triple in wanted for number in self._holding.get(triple, ()))
        near = sorted(shared, key=lambda number: -shared[number] / (len(wanted) + len(self._names[number])))
        ratios = [(SequenceMatcher(None, folded, self._names[number]).ratio(), number) for number in near[:_LOOKED_AT]]
        best = sorted((pair for pair in ratios if pair[0] >= alike), key=lambda pair: (-pair[0], self._names[pair[1]]))
        return [self._names[number] for _, number in best[:count]]

    def longer(self, word: str) -> list[str]:
        """Return the shortest name that has all parts of `word` and one more: `destroy_group` lacks `process`."""
        wanted = frozenset(filter(None, word.casefold().split("_")))
        if len(wanted) < _FEWEST_PARTS:
            return []
        found = [name for name, parts in zip(self._names, self._parts, strict=True) if parts and wanted < parts]
        return sorted(found, key=lambda name: (len(name), name))[:1]


def _triples(word: str) -> set[str]:
    padded = f"^{word}$"
    return {padded[i : i + 3] for i in range(len(padded) - 2)}
