"""Follows a name to the statement that defines it: through imports, stars, assignments and re-exports."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from fsdp_mcp.api.tree import Binding, ModuleSource, SourceTree, When

_Seen = frozenset[tuple[str, str]]
_NOTHING: _Seen = frozenset()


@dataclass(frozen=True, slots=True)
class Definition:
    """Where a name leads to; `external` is outside of what is read, `module` is a module."""

    kind: Literal["def", "class", "value", "module", "external"]
    module: str
    name: str
    node: ast.stmt | None = None
    optional: bool = False
    """Whether some builds or systems lack it."""

    @property
    def home(self) -> str:
        """The defining path, private parts included."""
        return self.module if self.kind == "module" else f"{self.module}.{self.name}"


def define(tree: SourceTree, module_name: str, name: str, seen: _Seen = _NOTHING) -> Definition | None:
    """Return what `module_name.name` is, or None when there is no such name."""
    if (module_name, name) in seen:
        return None
    seen |= {(module_name, name)}
    module = tree.module(module_name) if tree.owns(module_name) else None
    if module is None:
        return Definition("external", module_name, name)
    binding = _strongest(module.bindings.get(name, []))
    if binding is not None:
        return _follow(tree, module, name, binding, seen)
    found = _from_stars(tree, module, name, seen)
    if found is None and tree.exists(f"{module_name}.{name}"):
        return Definition("module", f"{module_name}.{name}", name)
    return found


def _strongest(bindings: list[Binding]) -> Binding | None:
    """Return the binding that holds at run time: the last certain one, else a fallback, else what typing sees."""
    for accepted in ((When.ALWAYS, When.OPTIONAL), (When.FALLBACK,), (When.TYPING,)):
        matching = [binding for binding in bindings if binding.when in accepted]
        if matching:
            return matching[-1]
    return None


def _follow(tree: SourceTree, module: ModuleSource, name: str, binding: Binding, seen: _Seen) -> Definition | None:
    optional = binding.when is When.OPTIONAL
    if binding.kind == "module":
        return Definition("module", binding.module, name)
    if binding.kind == "from":
        found = _imported(tree, binding, seen)
        return _mark(found, optional)
    if binding.kind == "value":
        return _aliased(tree, module, binding, seen) or Definition("value", module.name, name, binding.node, optional)
    return Definition(binding.kind, module.name, name, binding.node, optional)


def _mark(found: Definition | None, optional: bool) -> Definition | None:
    if found is None or not optional or found.optional:
        return found
    return Definition(found.kind, found.module, found.name, found.node, optional=True)


def _imported(tree: SourceTree, binding: Binding, seen: _Seen) -> Definition | None:
    """Follow `from module import original`: a name of the module goes before a submodule of that name."""
    found = define(tree, binding.module, binding.original, seen)
    submodule = f"{binding.module}.{binding.original}"
    if (found is None or found.kind == "external") and tree.owns(submodule) and tree.exists(submodule):
        return Definition("module", submodule, binding.original)
    return found


def _aliased(tree: SourceTree, module: ModuleSource, binding: Binding, seen: _Seen) -> Definition | None:
    """Follow `name = other` and `name = package.other` when that leads to a definition of torch."""
    value = getattr(binding.node, "value", None)
    if not isinstance(value, ast.Name | ast.Attribute):
        return None
    found = evaluate(tree, module, value, seen)
    return _mark(found, binding.when is When.OPTIONAL) if found and found.kind in ("def", "class") else None


def evaluate(tree: SourceTree, module: ModuleSource, node: ast.expr, seen: _Seen = _NOTHING) -> Definition | None:
    """Return what a dotted expression in `module` leads to."""
    if isinstance(node, ast.Subscript):
        return evaluate(tree, module, node.value, seen)
    if isinstance(node, ast.Name):
        return define(tree, module.name, node.id, seen)
    if isinstance(node, ast.Attribute):
        base = evaluate(tree, module, node.value, seen)
        if base is not None and base.kind == "module":
            return _attribute(tree, base.module, node.attr, seen)
    return None


def _attribute(tree: SourceTree, module_name: str, name: str, seen: _Seen) -> Definition | None:
    """Return an attribute of a module; a submodule counts even below a package that is not read, such as torch."""
    submodule = f"{module_name}.{name}"
    if not tree.owns(module_name) and (tree.owns(submodule) or submodule in ("torch.nn", "torch.utils")):
        return Definition("module", submodule, name)
    return define(tree, module_name, name, seen)


def _from_stars(tree: SourceTree, module: ModuleSource, name: str, seen: _Seen) -> Definition | None:
    for source_name, when in module.stars:
        if when in (When.STUB, When.TYPING) or not tree.owns(source_name):
            continue
        source = tree.module(source_name)
        if source is None:
            continue
        listed = exported(tree, source)
        if name in listed if listed is not None else not name.startswith("_"):
            found = define(tree, source_name, name, seen)
            if found is not None:
                return found
    return None


def exported(tree: SourceTree, module: ModuleSource) -> dict[str, When] | None:
    """Return the names of `__all__` with the condition of each, or None when the module has no `__all__`."""
    if not module.exports:
        return None
    if module.listed is None:
        module.listed = {}  # What a module that imports itself in a circle sees of it meanwhile.
        module.listed = _read_all(tree, module)
    return module.listed


def _read_all(tree: SourceTree, module: ModuleSource) -> dict[str, When]:
    names: dict[str, When] = {}
    for value, when, adds in module.exports:
        if when is not When.STUB:
            added = _evaluate_all(tree, module, value, names)
            names = {**(names if adds else {}), **{name: names.get(name, when) for name in added}}
    return names


def _evaluate_all(tree: SourceTree, module: ModuleSource, node: ast.expr, so_far: dict[str, When]) -> list[str]:
    """Evaluate the arithmetic on `__all__`: lists, sums, stars and other modules' `__all__`."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            pass
        case ast.BinOp(left=left, right=right):
            parts = [left, right]
        case ast.Starred(value=value):
            parts = [value]
        case ast.Constant(value=str(name)):
            return [name]
        case ast.Name(id="__all__"):
            return list(so_far)
        case ast.Attribute(value=owner, attr="__all__"):
            return _all_of(tree, evaluate(tree, module, owner))
        case _:
            return []
    return [name for part in parts for name in _evaluate_all(tree, module, part, so_far)]


def _all_of(tree: SourceTree, found: Definition | None) -> list[str]:
    other = tree.module(found.module) if found is not None and found.kind == "module" else None
    return list(exported(tree, other) or {}) if other is not None else []
