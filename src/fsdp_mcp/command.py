"""What every command is given: the option --python, and the user in person as its caller."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fsdp_mcp.call import Caller

_QUIET_SECONDS = 2.0


class _Progress:
    """Tells on stderr how far the work is, once it has taken more than two seconds."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._told = ""

    def __call__(self, done: float, total: float | None, message: str) -> None:
        if time.monotonic() - self._started > _QUIET_SECONDS and message != self._told:
            self._told = message
            print(f"... {message}", file=sys.stderr, flush=True)


def add_python(command: argparse.ArgumentParser) -> None:
    """Add the option that names the interpreter."""
    command.add_argument("--python", type=Path, metavar="P", help="the interpreter whose torch to answer for")


def local_caller(options: argparse.Namespace) -> Caller:
    """Return the user in person as a caller, who is told on stderr how far the work is."""
    return Caller(report=_Progress(), python=options.python)
