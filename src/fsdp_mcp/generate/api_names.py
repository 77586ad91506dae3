"""Lists the torch APIs that a script uses, by qualified name."""

from __future__ import annotations

import ast


def names_used(source: str) -> tuple[str, ...]:
    """Return the dotted torch names that the script imports or reads, in order, without local variables' methods."""
    tree = ast.parse(source)
    aliases = _aliases(tree)
    found = {name: None for name in aliases.values() if name.startswith("torch.")}
    for node in ast.walk(tree):
        name = _resolve(node, aliases)
        if name is not None and name.startswith("torch."):
            found[name] = None
    prefixes = {name.rpartition(".")[0] for name in found}
    return tuple(sorted(name for name in found if name not in prefixes))


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


def _resolve(node: ast.AST, aliases: dict[str, str]) -> str | None:
    """Return the qualified name of `alias.a.b`, or None when it does not start at an import."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute):
        parent = _resolve(node.value, aliases)
        return f"{parent}.{node.attr}" if parent else None
    return None
