"""Releases of torch as numbers that can be compared."""

from __future__ import annotations

import re


def release_numbers(version: str) -> tuple[int, ...]:
    """Return the release X.Y of a version: (2, 13) for `2.13`, `2.13.0+cpu` and `2.13.0a0`."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
