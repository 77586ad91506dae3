"""Lists the torch APIs that a script uses, by qualified name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping


def names_used(source: str) -> tuple[str, ...]:
    """Return the torch names that the script reads, and the parameters it passes by keyword, sorted.

    A parameter is written as in the API's address: `torch.distributed.init_process_group#param-device_id`. Methods of
    local variables are not seen.
    """
    tree = ast.parse(source)
    aliases = _aliases(tree)
    found = {name for node in ast.walk(tree) for name in _names(node, aliases) if name.startswith("torch.")}
    modules = {name.rpartition(".")[0] for name in found}
    return tuple(sorted(found - modules))


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Return what each imported local name stands for."""
    aliases: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            aliases.update({item.asname or item.name.partition(".")[0]: _stands_for(item) for item in node.names})
        elif isinstance(node, ast.ImportFrom):
            aliases.update({item.asname or item.name: f"{node.module}.{item.name}" for item in node.names})
    return aliases


def _stands_for(item: ast.alias) -> str:
    """Return the module that `import a.b` (a) or `import a.b as c` (a.b) binds."""
    return item.name if item.asname else item.name.partition(".")[0]


def _names(node: ast.AST, aliases: Mapping[str, str]) -> Iterator[str]:
    """Yield the name that an expression reads, or the parameters that a call passes by keyword."""
    if isinstance(node, ast.Call):
        function = _resolve(node.func, aliases)
        yield from (f"{function}#param-{keyword.arg}" for keyword in node.keywords if function and keyword.arg)
    else:
        name = _resolve(node, aliases)
        yield from (name,) if name else ()


def _resolve(node: ast.AST, aliases: Mapping[str, str]) -> str | None:
    """Return the qualified name of `alias.a.b`, or None when it does not start at an import."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute):
        parent = _resolve(node.value, aliases)
        return f"{parent}.{node.attr}" if parent else None
    return None
