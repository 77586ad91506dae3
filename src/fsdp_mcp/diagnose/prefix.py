"""Takes launchers' and loggers' prefixes off a line: which rank, on which host, at what time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from pydantic import Field

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import Value

_MOST_PREFIXES = 4
_INSIDE = re.compile(r"\[(?:PG [^\]]*?)?[Rr]ank (?P<rank>\d+)\]")
_FILE_OF_RANK = re.compile(r"rank[_-]?(\d+)|[/\\]attempt_\d+[/\\](\d+)[/\\]std", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(.*?)(\d{1,5})([^\d/\\]*)", re.DOTALL)
_DATED = re.compile(r"(?:\d{4}-)?(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d(?:[.,]\d+)?)")
_GLOG = re.compile(r"[IWEF](?P<month>\d{1,2}?)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?)")
_DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


class Prefix(Value):
    """A row of facts/log_prefixes.yaml."""

    name: str
    pattern: str = Field(description="With the named parts rank, local_rank, host and process as far as there are any")
    source: str


class Origin(NamedTuple):
    """Where a line comes from, as far as its prefixes tell."""

    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    process: str = ""


NOWHERE = Origin()


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(row.pattern) for row in load_facts("log_prefixes", Prefix))


@lru_cache(maxsize=1)
def _all_prefixes() -> re.Pattern[str]:
    """Return one pattern for all prefixes of a line, so that they are found, or found missing, in one step."""
    unnamed = (re.sub(r"\(\?P<\w+>", "(?:", row.pattern) for row in load_facts("log_prefixes", Prefix))
    return re.compile(f"(?:{'|'.join(unnamed)}){{1,{_MOST_PREFIXES}}}")


def split_prefix(text: str) -> tuple[Origin, str]:
    """Return where the line comes from, and the line without its prefixes."""
    found = _all_prefixes().match(text)
    return (_read(found.group()), text[found.end() :]) if found else (NOWHERE, text)


@lru_cache(maxsize=16_384)
def _read(prefixes: str) -> Origin:
    """Return what some prefixes say; a log has few different ones."""
    found: dict[str, str] = {}
    at = 0
    while match := next((m for pattern in _patterns() if (m := pattern.match(prefixes, at)) and m.end() > at), None):
        found = {**{name: value for name, value in match.groupdict().items() if value is not None}, **found}
        at = match.end()
    return _origin(found)


def _origin(found: dict[str, str]) -> Origin:
    rank, local_rank = found.get("rank"), found.get("local_rank")
    return Origin(
        rank=int(rank) if rank else None,
        local_rank=int(local_rank) if local_rank else None,
        host=found.get("host", ""),
        process=found.get("process", ""),
    )


def rank_inside(text: str) -> int | None:
    """Return the rank that a message of a process group names as its own."""
    found = _INSIDE.search(text)
    return int(found["rank"]) if found else None


def rank_of_file(name: str) -> int | None:
    """Return the rank that the name of a log file stands for, if it does for one."""
    found = _FILE_OF_RANK.search(name)
    return int(found[1] or found[2]) if found else None


def ranks_of_files(names: Sequence[str]) -> dict[str, int]:
    """Return the ranks of files that are named alike but for a last number that counts from 0, as srun's %t does."""
    found = [(name, match) for name in names if (match := _LAST_NUMBER.fullmatch(name))]
    ranks = {name: int(match[2]) for name, match in found}
    alike = len({(match[1], match[3]) for _, match in found}) == 1
    return ranks if alike and len(ranks) > 1 and sorted(ranks.values()) == list(range(len(ranks))) else {}


def time_of(text: str) -> float | None:
    """Return the seconds since the start of the year that a time stamp in the line says; the year is not looked at."""
    found = _DATED.search(text) or _GLOG.search(text)
    if not found or not 1 <= int(found["month"]) <= 12:
        return None
    hours, minutes, seconds = found["clock"].replace(",", ".").split(":")
    days = _DAYS_BEFORE[int(found["month"]) - 1] + int(found["day"])
    return days * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
