"""Reads from a script on which condition a line is reached, as far as its text shows."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

_OF_RANKS = re.compile(r"rank|is_main|main_process|is_master|is_leader|is_coordinator|is_first|is_last", re.IGNORECASE)
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_SAME_EVERYWHERE = ("__name__", "TYPE_CHECKING")


@dataclass(frozen=True)
class Condition:
    """A condition that differs between ranks, or a loop or handler.

    Args:
        line: where it stands.
        text: its source, on one line.
    """

    line: int
    text: str


class Branch(NamedTuple):
    """On which side of a condition a line stands.

    Args:
        condition: what decides.
        side: `then`, `else`, `either` where both sides are on the line, or `stays` where a block before it that leaves
            the function or the loop was not taken.
        of_rank: whether the condition speaks of the rank.
        leaves: how the block leaves: `return`, `continue` or `break`, empty for the other sides.
    """

    condition: Condition
    side: Literal["then", "else", "either", "stays"]
    of_rank: bool
    leaves: str = ""

    @property
    def done(self) -> str:
        """Return what the block before the line does when it is taken."""
        return {"return": "left the function", "continue": "skipped it"}.get(self.leaves, "left the loop")


def branches(file: str, line: int) -> tuple[Branch, ...]:
    """Return the conditions that decide whether a line is reached, outermost first."""
    tree = _parsed(file)
    if tree is None:
        return ()
    names = _names_of_ranks(tree)
    found = []
    for test, side, leaves in _deciding(tree.body, line):
        text = ast.unparse(test)
        if not any(word in text for word in _SAME_EVERYWHERE):
            found.append(Branch(Condition(test.lineno, text), side, _is_of_rank(test, names), leaves))
    return tuple(found)


def _parsed(file: str) -> ast.Module | None:
    try:
        return _parse(Path(file).read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> ast.Module:
    """Return the tree of a file, which is asked about once for each line that made a call."""
    return ast.parse(text)


@functools.lru_cache(maxsize=8)
def _names_of_ranks(tree: ast.Module) -> set[str]:
    """Return the names that the file gives to a rank, or to what is computed from one."""
    returned = {
        node.name: part.value
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for part in ast.walk(node)
        if isinstance(part, ast.Return) and part.value is not None
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            value = node.value
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                value = returned.get(value.func.id, value)
            found |= {name for target in node.targets for name in _ranks_among(target, value, found)}
    return found


def _ranks_among(target: ast.expr, value: ast.expr, known: set[str]) -> Iterator[str]:
    """Yield the names of an assignment that get something computed from a rank."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=False):
            yield from _ranks_among(one, part, known)
    elif isinstance(target, ast.Name) and _only_computes(value) and _is_of_rank(value, known):
        yield target.id


def _only_computes(value: ast.expr) -> bool:
    """Return whether an expression yields a rank or a truth about one, not something that is made on a rank."""
    calls = [ast.unparse(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)]
    plain = all(_OF_RANKS.search(call) or call in ("int", "bool", "os.getenv", "os.environ.get") for call in calls)
    return plain and not any(isinstance(node, ast.IfExp) for node in ast.walk(value))


def _is_of_rank(value: ast.expr, known: set[str]) -> bool:
    """Return whether an expression speaks of a rank or uses a name that holds one."""
    used = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return bool(_OF_RANKS.search(ast.unparse(value))) or not known.isdisjoint(used)


_Decision = tuple[ast.expr, Literal["then", "else", "either", "stays"], str]


def _deciding(body: list[ast.stmt], line: int) -> Iterator[_Decision]:
    """Yield the tests that decide about a line of a block, outermost first."""
    for statement in body:
        if statement.lineno > line:
            return
        if not _holds(statement, line):
            yield from _leaving(statement)
            continue
        yield from _around(statement, line)
        for inner in _blocks(statement):
            if any(_holds(part, line) for part in inner):
                yield from _deciding(inner, line)


def _leaving(statement: ast.stmt) -> Iterator[_Decision]:
    """Yield the test of a block before the line that leaves the function or the loop."""
    if isinstance(statement, ast.If):
        for part in (*statement.body, *statement.orelse):
            if isinstance(part, _LEAVES):
                yield statement.test, "stays", type(part).__name__.lower()
                return


def _around(statement: ast.stmt, line: int) -> Iterator[_Decision]:
    """Yield the tests of a statement that decide about a line inside it; they may stand on the line themselves."""
    if isinstance(statement, ast.If):
        shared = _holds(statement.test, line)
        for side, part in (("then", statement.body), ("else", statement.orelse)):
            if any(_holds(inner, line) and (not shared or _has_call(inner, line)) for inner in part):
                yield statement.test, "then" if side == "then" else "else", ""
                return
    elif not any(True for inner in _blocks(statement) if inner):
        for node in ast.walk(statement):
            if isinstance(node, ast.IfExp):
                yield from _alternative(node, line)
            elif isinstance(node, ast.BoolOp) and any(_has_call(value, line) for value in node.values[1:]):
                yield node.values[0], "then", ""


def _alternative(node: ast.IfExp, line: int) -> Iterator[_Decision]:
    first, second = _has_call(node.body, line), _has_call(node.orelse, line)
    if first or second:
        yield node.test, "either" if first and second else "then" if first else "else", ""


def _has_call(node: ast.AST, line: int) -> bool:
    return any(isinstance(part, ast.Call) and _holds(part, line) for part in ast.walk(node))


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


def loop_around(file: str, line: int) -> Condition | None:
    """Return the head of the innermost loop around a line."""
    tree = _parsed(file)
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))] if tree else []
    inner = max((loop for loop in loops if _holds(loop, line)), key=lambda loop: loop.lineno, default=None)
    if inner is None:
        return None
    if isinstance(inner, ast.While):
        return Condition(inner.lineno, f"while {ast.unparse(inner.test)}")
    return Condition(inner.lineno, f"for {ast.unparse(inner.target)} in {ast.unparse(inner.iter)}")


def swapped_branches(file: str, one: int, other: int) -> Condition | None:
    """Return the condition whose two branches hold the two lines and make the same calls in another order."""
    tree = _parsed(file)
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, ast.If):
            continue
        sides = (node.body, node.orelse)
        if all(any(_holds(part, one) or _holds(part, other) for part in side) for side in sides):
            calls = [_calls(side) for side in sides]
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
        if not isinstance(node, ast.Try) or not any(_holds(part, line) for part in node.body):
            continue
        for handler in node.handlers:
            if not any(_leaves_process(inner) for inner in ast.walk(handler)):
                return Condition(handler.lineno, f"except {ast.unparse(handler.type)}" if handler.type else "except")
    return None


def _leaves_process(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and "exit" in ast.unparse(node.func))
