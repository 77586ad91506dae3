"""Reads from a script on which condition a line is reached, as far as its text shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_OF_RANKS = re.compile(r"rank|is_main|main_process|is_master|is_leader|is_coordinator|is_first|is_last", re.IGNORECASE)
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


@dataclass(frozen=True)
class Condition:
    """A condition that differs between ranks.

    Args:
        line: where it stands.
        text: its source, on one line.
    """

    line: int
    text: str


def rank_condition(file: str, line: int) -> Condition | None:
    """Return the condition on the rank that decides whether a line is reached, None when none is seen.

    Either the line stands inside its block, or the block leaves the function or loop before the line.
    """
    tree = _parsed(file)
    if tree is None:
        return None
    for test, found in _deciding(tree.body, line):
        text = ast.unparse(test)
        if _OF_RANKS.search(text):
            return Condition(found, text)
    return None


def _parsed(file: str) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _deciding(body: list[ast.stmt], line: int) -> Iterator[tuple[ast.expr, int]]:
    """Yield the tests that decide about a line of a block, outermost first."""
    for statement in body:
        if statement.lineno > line:
            return
        if not _holds(statement, line):
            if isinstance(statement, ast.If) and any(isinstance(inner, _LEAVES) for inner in statement.body):
                yield statement.test, statement.lineno
            continue
        if isinstance(statement, ast.If) and not _holds(statement.test, line):
            yield statement.test, statement.lineno
        for inner in _blocks(statement):
            if any(_holds(part, line) for part in inner):
                yield from _deciding(inner, line)


def _holds(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks below a statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body
    for case in getattr(statement, "cases", []):
        yield case.body


def swapped_branches(file: str, one: int, other: int) -> Condition | None:
    """Return the condition whose two branches hold the two lines and make the same calls in another order."""
    tree = _parsed(file)
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, ast.If):
            continue
        branches = (node.body, node.orelse)
        if all(any(_holds(part, one) or _holds(part, other) for part in branch) for branch in branches):
            calls = [_calls(branch) for branch in branches]
            if calls[0] != calls[1] and sorted(calls[0]) == sorted(calls[1]):
                return Condition(node.lineno, ast.unparse(node.test))
    return None


def _calls(branch: list[ast.stmt]) -> list[str]:
    """Return the statements of a branch that call something."""
    return [ast.unparse(part) for part in branch if any(isinstance(node, ast.Call) for node in ast.walk(part))]


def swallowing_handler(file: str, line: int) -> Condition | None:
    """Return the handler that catches an exception raised at a line and does not raise one itself; None without."""
    tree = _parsed(file)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Try) and any(_holds(part, line) for part in node.body):
            for handler in node.handlers:
                if not any(_leaves_process(inner) for inner in ast.walk(handler)):
                    return Condition(
                        handler.lineno, f"except {ast.unparse(handler.type)}" if handler.type else "except"
                    )
    return None


def _leaves_process(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and "exit" in ast.unparse(node.func))
