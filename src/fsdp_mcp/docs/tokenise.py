"""Turns text, identifiers, options and Chinese into the terms that are indexed and looked up."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(
    r"[A-Za-z0-9_]+(?:[.\-/][A-Za-z0-9_]+)*"  # an identifier, a dotted path, an option, a version
    r"|[\u3400-\u9fff\uf900-\ufaff]+"  # a run of Han characters
    r"|[\u3040-\u30ff\uac00-\ud7af]+"  # kana, hangul
    r"|[^\W\d_a-zA-Z\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+"  # any other script
)
_SEPARATORS = re.compile(r"[.\-/_]+")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_MAX_WORD = 200

STOP_WORDS = frozenset(
    """a about after again all also am an and any anyone are as at be because been being both but by can cannot could
    did do does doing done don else etc every few for from get gets getting give go goes going got had has have having
    he help her here hi his how i if in into is isn it its just know let like ll make me mine must my need needs no nor
    not now of off on once one only or other our out own per please put re s same see seem shall she should so some
    somehow something still such t than thank thanks that the their them then there these they thing this those through
    to too try trying up upon us use used using ve very want wants was way we well were what when where whether which
    while who whom whose why will with won work would wrong yes yet you your""".split()  # noqa: SIM905, a list is 130 lines
)
"""English words that say nothing about the subject of a question; identifiers are never dropped as such."""

_WIDE_STOP = re.compile(
    "为什么|怎么样|怎么办|怎么|怎样|如何|什么|是不是|有没有|能不能|可不可以|可以|应该|需要|哪个|哪些|一个|一下|一段|并没有"
    "|没有|这个|那个|之后|之前|时候|还是|现在|但是|而且|或者|以及|请问|我想|我要|想要|已经|的|了|吗|呢|吧|啊|是|在|和"
    "|与|把|被|我|你|它|他|也|都|就|要|会|到|给|让|用|上|下|里|中|这|那|着|很|再|才|又|只|该|请"
)


def terms_of(text: str) -> list[str]:
    """Return the terms of `text` in order, repeated as often as they occur.

    An identifier gives itself whole and its parts: `FSDPModule.set_x` gives the dotted path, `fsdpmodule`, `set_x`
    and the stems of `fsdp`, `module`, `set`, `x`. Chinese gives pairs of neighbouring characters.
    """
    return [term for word in _WORD.findall(text) for term in _terms_of_word(word[:_MAX_WORD])]


def words_of(text: str) -> list[str]:
    """Return the identifiers, paths, options and words of `text` as they stand."""
    return [word[:_MAX_WORD] for word in _WORD.findall(text)]


def is_identifier(word: str) -> bool:
    """Return whether `word` is written as code: with a dot, an underscore, or a capital after a small letter."""
    if not word.isascii():
        return False
    return "_" in word.strip("_") or "." in word or bool(re.search(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]", word))


@lru_cache(maxsize=65_536)
def _terms_of_word(word: str) -> tuple[str, ...]:
    if _WIDE.match(word):
        return _pairs(word)
    if not word.isascii():
        return (word.casefold(),)
    parts = [part for part in _SEPARATORS.split(word) if part]
    if len(parts) == 1 and (word.islower() or word.isdigit() or not _has_humps(word)):
        lower = parts[0].lower()
        return () if lower in STOP_WORDS else (stem(lower),)
    return _compound(word)


def _has_humps(word: str) -> bool:
    return len(_HUMPS.findall(word)) > 1 and not word[0].isdigit()


def _compound(word: str) -> tuple[str, ...]:
    """Return the path, each of its components, and the stems of the parts of each component."""
    whole = word.replace("-", "_").lower()
    found = [whole]
    for component in re.split(r"[./]", word):
        name = component.replace("-", "_").strip("_").lower()
        if name and name != whole:
            found.append(name if "_" in name else stem(name))
        for piece in filter(None, re.split(r"[_\-]+", component)):
            found.extend(_stems_of_humps(piece, name))
    return tuple(dict.fromkeys(found))


def _stems_of_humps(piece: str, name: str) -> list[str]:
    """Return the stems of `piece` and of its humps; a lone digit or letter inside a name says nothing."""
    lower = piece.lower()
    humps = [hump.lower() for hump in _HUMPS.findall(piece)] if not piece[0].isdigit() else []
    stems = [stem(hump) for hump in humps if len(hump) > 2]
    return stems if lower == name else [stem(lower), *stems]


def _pairs(run: str) -> tuple[str, ...]:
    found: list[str] = []
    for piece in _WIDE_STOP.split(run):
        found.extend(piece[i : i + 2] for i in range(len(piece) - 1))
        if len(piece) == 1:
            found.append(piece)
    return tuple(found)


_ENDINGS = (
    ("izations", "iz"),
    ("ization", "iz"),
    ("izing", "iz"),
    ("izer", "izer"),
    ("ations", "at"),
    ("ation", "at"),
    ("ating", "at"),
    ("ators", "at"),
    ("ated", "at"),
    ("ates", "at"),
    ("ate", "at"),
    ("ies", "y"),
    ("ied", "y"),
    ("sses", "ss"),
    ("ing", ""),
    ("edly", ""),
    ("ed", ""),
    ("es", ""),
    ("s", ""),
    ("e", ""),
    ("ly", ""),
)
_KEEP = ("ss", "us", "is", "as")


_ABBREVIATIONS = {
    "ckpt": "checkpoint",
    "comm": "communication",
    "comms": "communication",
    "config": "configuration",
    "cfg": "configuration",
    "dist": "distributed",
    "env": "environment",
    "err": "error",
    "fwd": "forward",
    "bwd": "backward",
    "cpus": "cpu",
    "gpus": "gpu",
    "grad": "gradient",
    "grads": "gradients",
    "init": "initialize",
    "mem": "memory",
    "optim": "optimizer",
    "param": "parameter",
    "params": "parameters",
    "pg": "processgroup",
    "sync": "synchronize",
    "var": "variable",
    "vars": "variables",
}


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return `word` without the endings of plurals and of verb and noun forms: `shards`, `sharding` -> `shard`.

    The field's abbreviations become the words that they stand for, so that `params` finds `parameters`.
    """
    word = _ABBREVIATIONS.get(word, word)
    if len(word) < 4 or not word.isalpha() or word.endswith(_KEEP):
        return word
    for ending, replacement in _ENDINGS:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if len(rest) < 3 or not any(vowel in rest for vowel in "aeiouy"):
                continue
            return _undoubled(rest + replacement)
    return word


def _undoubled(word: str) -> str:
    """Undo the doubling before an ending (`wrapp` -> `wrap`), but leave `ss`, `ll` alone."""
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "sl" else word
