"""Turns templates into a script: keeps the lines that were asked for, enters values, hoists and merges imports.

A template is Python that can be read as it stands, with its own imports on top. Two marks are added to the language:

    lr = $learning_rate            a value, entered as a Python literal
    loss.backward()  #? bf16 !ddp  the line stays only when the flag bf16 is set and the flag ddp is not
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping

_CONDITION = re.compile(r"\s*#\? (?P<flags>[a-z0-9_! ]+)$")
_PLACEHOLDER = re.compile(r"\$([a-z_]+)")
_IMPORT = re.compile(r"(import|from) ")


def fill(template: str, *, flags: frozenset[str], values: Mapping[str, object]) -> str:
    """Return the template with the lines that `flags` keep and each `$name` replaced by its value as a literal."""
    kept = (_kept(line, flags) for line in template.strip("\n").splitlines())
    lines = [line for line in kept if line is not None]
    return _PLACEHOLDER.sub(lambda match: _literal(values[match[1]]), "\n".join(lines)) + "\n"


def join_blocks(blocks: Iterable[str], *, header: str) -> str:
    """Return one module: the header, the merged imports of all blocks, then the blocks, two blank lines apart."""
    imports: list[str] = []
    bodies: list[str] = []
    for block in blocks:
        lines = block.splitlines()
        imports += [line for line in lines if _IMPORT.match(line)]
        bodies.append("\n".join(line for line in lines if not _IMPORT.match(line)).strip("\n"))
    head = "\n\n".join(part for part in (header.strip("\n"), merge_imports(imports)) if part)
    body = "\n\n\n".join(filter(None, bodies))
    gap = "\n\n\n" if body.startswith(("def ", "class ")) else "\n\n"
    return f"{head}{gap}{body}\n"


def merge_imports(lines: Iterable[str]) -> str:
    """Return the import lines sorted and merged, the standard library first."""
    plain: set[str] = set()
    members: dict[str, set[str]] = defaultdict(set)
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            members[node.module].update(ast.unparse(alias) for alias in node.names)
        elif isinstance(node, ast.Import):
            plain.update(ast.unparse(alias) for alias in node.names)
    statements = [(name.split()[0], f"import {name}") for name in sorted(plain)]
    statements += [(module, _from_import(module, members[module])) for module in sorted(members)]
    standard = [text for module, text in statements if _is_standard(module)]
    others = [text for module, text in statements if not _is_standard(module)]
    return "\n\n".join("\n".join(section) for section in (standard, others) if section)


def _literal(value: object) -> str:
    """Return the value as Python source: its repr, with the double quotes that formatters want."""
    if isinstance(value, tuple):
        items = [_literal(item) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _kept(line: str, flags: frozenset[str]) -> str | None:
    """Return the line without its mark, or None when a flag of the mark is not as wanted."""
    match = _CONDITION.search(line)
    if match is None:
        return line
    marks = match["flags"].split()
    wanted = all((mark.removeprefix("!") in flags) != mark.startswith("!") for mark in marks)
    return line[: match.start()] if wanted else None


def _from_import(module: str, names: set[str]) -> str:
    """Return `from module import names`, over several lines when it is long."""
    ordered = sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name.casefold()))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= 88:  # where ruff's default import sorting breaks the line
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in ordered) + ")"


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names
