"""Every failure a caller can act on.

FsdpMcpError
├── BadArgument          a value, a combination or an argument name is not accepted
├── UnknownName          no API, page, guide or option of that name
├── Forbidden            a path or a run that this transport does not permit
├── EnvironmentProblem   no torch, a missing interpreter, a port in use
└── Cancelled            the caller went away

A message is one or two sentences: what was got, what is accepted, the next step.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class FsdpMcpError(Exception):
    """Base of all failures that a caller can act on; `exit_code` is the command line's."""

    exit_code: ClassVar[int] = 2


class BadArgument(FsdpMcpError):
    """A value, a combination or an argument name is not accepted."""


class UnknownName(FsdpMcpError):
    """No API, page, guide or option has that name."""


class Forbidden(FsdpMcpError):
    """A path or a run that this transport does not permit."""


class EnvironmentProblem(FsdpMcpError):
    """The machine lacks something: torch, an interpreter, a free port."""

    exit_code: ClassVar[int] = 3


class Cancelled(FsdpMcpError):
    """The caller cancelled or went away before the work was done."""

    exit_code: ClassVar[int] = 130


def closest(name: str, accepted: Iterable[str], *, count: int = 3) -> list[str]:
    """Return the accepted names that resemble `name`, the nearest first."""
    by_folded = {candidate.casefold(): candidate for candidate in accepted}
    found = get_close_matches(name.casefold(), list(by_folded), n=count, cutoff=0.6)
    return [by_folded[folded] for folded in found]


def did_you_mean(name: str, accepted: Iterable[str]) -> str:
    """Return `Did you mean 'x'? ` for a near miss and an empty string otherwise."""
    found = closest(name, accepted, count=1)
    return f"Did you mean {found[0]!r}? " if found else ""
