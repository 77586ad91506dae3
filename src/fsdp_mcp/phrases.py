"""Small parts of sentences that reports share."""

from __future__ import annotations


def cut(text: str, most: int) -> str:
    """Shorten a text to one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def count(number: int, word: str) -> str:
    """Return `1 rank` or `2 ranks`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def numbered(numbers: list[int], *, word: str) -> str:
    """Return `rank 3` or `ranks 0, 1`."""
    return f"{word} {numbers[0]}" if len(numbers) == 1 else f"{word}s {', '.join(map(str, numbers))}"
