"""Takes secrets out of what is quoted from a log, and on request whatever names people and machines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_SECRETS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[\w-]{16,}|AKIA[A-Z0-9]{16}|xox[abp]-[\w-]{10,})"
    r"|(?<=Bearer )[\w.~+/-]{12,}"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"
    r"|(?<=[Kk][Ee][Yy]=)[^\s&]{8,}|(?<=[Tt][Oo][Kk][Ee][Nn]=)[^\s&]{8,}|(?<=[Pp][Aa][Ss][Ss][Ww][Oo][Rr][Dd]=)[^\s&]+"
)
_ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{0,4}\b|\bfe80::[0-9a-fA-F:]+"
)
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_USER = re.compile(r"(?<=/home/)[^/\s\"']+|(?<=/Users/)[^/\s\"']+|(?<=\\Users\\)[^\\\s\"']+")


def without_secrets(text: str) -> str:
    """Return the text with access tokens, keys and passwords replaced."""
    return _SECRETS.sub("<secret>", text)


def mask_names(hosts: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces addresses, users, mail addresses and these hosts, the same one always alike."""
    numbers: dict[str, str] = {name: f"host-{number}" for number, name in enumerate(sorted(hosts), start=1) if name}
    known = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, numbers))})(?![\w.-])") if numbers else None

    def masked(text: str) -> str:
        text = known.sub(lambda found: numbers[found.group()], text) if known else text
        for pattern, word in ((_MAIL, "<mail>"), (_ADDRESS, "<address>"), (_USER, "<user>")):
            text = pattern.sub(word, text)
        return text

    return masked
