"""What a running tool call knows of its caller: how to report progress, whether it was cancelled, what it may touch."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_mcp.errors import BadArgument, Cancelled, Forbidden


def _ignore_progress(done: float, total: float | None, message: str) -> None:
    """Report to nobody."""


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Caller:
    """The party behind a tool call.

    Args:
        report: takes done, total (or None) and a message; silent unless the caller asked for progress.
        is_cancelled: turns true when the caller cancelled or went away.
        roots: folders below which `path`, `project_dir` and `output_dir` may lie; empty over HTTP.
        may_run: whether code may run on behalf of this caller.
        python: the interpreter that `--python` named, if any.
    """

    report: Callable[[float, float | None, str], None] = _ignore_progress
    is_cancelled: Callable[[], bool] = _never
    roots: tuple[Path, ...] = field(default_factory=lambda: (Path.cwd(),))
    may_run: bool = True
    python: Path | None = None


_CURRENT: ContextVar[Caller | None] = ContextVar("fsdp_mcp_caller", default=None)


def current() -> Caller:
    """Return the caller of the tool call in progress, or a local caller with full rights when there is none."""
    return _CURRENT.get() or Caller()


def enter(caller: Caller) -> None:
    """Make `caller` the current one for this context (thread or task)."""
    _CURRENT.set(caller)


def report(done: float, total: float | None, message: str) -> None:
    """Tell the caller how far the work is; raise Cancelled when there is nobody left to tell."""
    check_cancelled()
    current().report(done, total, message)


def check_cancelled() -> None:
    """Raise Cancelled when the caller cancelled or went away."""
    if current().is_cancelled():
        raise Cancelled("The call was cancelled; everything it started was ended.")


def allowed_path(text: str, *, argument: str) -> Path:
    """Return the absolute path for `text`, which has to lie below one of the caller's roots.

    Relative paths start at the first root. Links are followed before the check.

    Raises:
        BadArgument: no file system takes such a path.
        Forbidden: no root is open to this caller (HTTP), or the path leads outside all of them.
    """
    roots = [Path(os.path.realpath(root)) for root in current().roots]
    if not roots:
        raise Forbidden(f"{argument}: paths are refused over HTTP. Send the text itself instead.")
    try:
        path = Path(os.path.realpath(roots[0] / Path(text).expanduser()))
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null character, the home of nobody
        raise BadArgument(f"{argument}: {text[:80]!r} is no usable path ({error}).") from None
    if not any(path == root or root in path.parents for root in roots):
        raise Forbidden(f"{argument}: {text!r} lies outside {roots[0]}. Give a path below that folder.")
    return path
