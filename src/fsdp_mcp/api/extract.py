"""Reads the API of a torch folder: every public object of its distributed parts, without importing torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_mcp.api.docstrings import document
from fsdp_mcp.api.members import ClassReader
from fsdp_mcp.api.pages import with_page
from fsdp_mcp.api.raw import RawSymbol, describe_callable
from fsdp_mcp.api.resolve import Definition, define, exported
from fsdp_mcp.api.signatures import pick_implementation, signature_of_value
from fsdp_mcp.api.torchrun import torchrun_options
from fsdp_mcp.api.tree import ModuleSource, SourceTree, When, module_rows
from fsdp_mcp.models import ApiSymbol


@dataclass(slots=True)
class FoundObject:
    """One object and the paths that lead to it."""

    definition: Definition
    paths: dict[str, bool] = field(default_factory=dict)
    """Public path to whether an `__all__` lists it."""
    optional: bool = False
    unlisted: bool = False
    """Whether no `__all__` lists it where there is one."""

    @property
    def canonical(self) -> str:
        """The path to name it by: no private part, fewest dots, listed, shortest."""
        return min(self.paths, key=self._rank)

    def _rank(self, path: str) -> tuple[bool, int, bool, int, str]:
        return is_private(path), path.count("."), not self.paths[path], len(path), path


def is_private(path: str) -> bool:
    """Whether a part of the path begins with an underscore; `__init__` and its like do not count."""
    return any(part.startswith("_") and not part.endswith("__") for part in path.split("."))


def extract_api(torch_dir: Path) -> tuple[ApiSymbol, ...]:
    """Return every public object of the torch in `torch_dir`, documented, sorted by qualified name.

    Files that are missing or do not parse are skipped and named in the log; takes seconds, so call it off the
    request path.
    """
    return tuple(with_page(document(raw.symbol, raw.docstring)) for raw in read_torch(torch_dir).symbols)


@dataclass(frozen=True, slots=True)
class TorchApi:
    """What one torch offers.

    Args:
        symbols: every public object with its docstring as written, sorted by qualified name.
        imports: further paths that an import finds though nothing lists them, with the qualified name of the object.
        unlisted: qualified names of objects that no `__all__` lists where there is one.
        skipped: files that could not be read or parsed, relative to the folder of torch.
    """

    symbols: tuple[RawSymbol, ...]
    imports: Mapping[str, str]
    unlisted: frozenset[str]
    skipped: tuple[str, ...]


def read_torch(torch_dir: Path) -> TorchApi:
    """Return what the torch in `torch_dir` offers, its docstrings not yet parsed."""
    tree = SourceTree(torch_dir)
    modules = read_modules(tree)
    objects = find_objects(tree, modules)
    public = {found.definition.home: found.canonical for found in objects.values()}
    classes = ClassReader(tree, public)
    symbols: dict[str, RawSymbol] = {}
    for found in objects.values():
        for raw in _describe(tree, classes, found):
            symbols.setdefault(raw.symbol.qualified_name, raw)
    for module in modules:
        symbols.setdefault(module.name, _describe_module(tree, module))
    for option in torchrun_options(tree):
        symbols.setdefault(option.symbol.qualified_name, option)
    imports = {path: public.get(item.home, "") for path, item in importable_names(tree, modules).items()}
    return TorchApi(
        symbols=tuple(symbols[name] for name in sorted(symbols)),
        imports={path: name for path, name in imports.items() if name and path != name},
        unlisted=frozenset(found.canonical for found in objects.values() if found.unlisted),
        skipped=tuple(tree.skipped),
    )


def read_modules(tree: SourceTree) -> list[ModuleSource]:
    """Return the public modules, then the private ones that users import."""
    public = [name for row in module_rows("root") for name in tree.modules_below(row.path)]
    private = [row.path for role in ("private", "redirect") for row in module_rows(role)]
    found = {name: tree.module(name) for name in [*public, *private]}
    return [
        module if module.name == name else _under_name(module, name)
        for name, module in found.items()
        if module is not None
    ]


def _under_name(module: ModuleSource, name: str) -> ModuleSource:
    """Return the module that a redirect leads to, under the old name."""
    return ModuleSource(
        name=name,
        path=module.path,
        is_package=module.is_package,
        tree=module.tree,
        stars=[(module.name, When.ALWAYS)],
        exports=module.exports,
    )


def find_objects(tree: SourceTree, modules: list[ModuleSource]) -> dict[str, FoundObject]:
    """Return the public objects by home, with every public path to each."""
    objects: dict[str, FoundObject] = {}
    for module in modules:
        for name, listed, optional in public_names(tree, module):
            definition = define(tree, module.name, name)
            if definition is not None:
                _add(objects, f"{module.name}.{name}", definition, listed=listed, optional=optional)
    for path, definition in unlisted_names(tree, modules, objects).items():
        _add(objects, path, definition, listed=False, optional=False)
        objects[definition.home].unlisted = True
    for row in module_rows("reexports"):
        _add_reexports(tree, objects, row.path)
    for row in module_rows("alias"):
        module_name, _, name = (row.target or "").rpartition(".")
        definition = define(tree, module_name, name)
        if definition is not None and definition.home in objects:
            _add(objects, row.path, definition, listed=True, optional=False)
    return objects


def _add(objects: dict[str, FoundObject], path: str, definition: Definition, *, listed: bool, optional: bool) -> None:
    if definition.kind == "module" or (definition.kind == "external" and not definition.module.startswith("torch.")):
        return
    found = objects.setdefault(definition.home, FoundObject(definition))
    found.paths[path] = listed
    found.optional = found.optional or optional or definition.optional


def public_names(tree: SourceTree, module: ModuleSource) -> Iterator[tuple[str, bool, bool]]:
    """Yield the public names of a module: name, whether `__all__` lists it, whether only some builds have it.

    With an `__all__` these are its names, and for a package also what it re-exports without listing
    (`torch.distributed` has no `__all__`); without one, what the module defines itself and, in a package, re-exports.
    """
    listed = exported(tree, module)
    if listed is not None:
        for name, when in listed.items():
            yield name, True, when is not When.ALWAYS
        return
    for name, when in visible_names(tree, module).items():
        definition = None if name.startswith("_") else define(tree, module.name, name)
        if definition is not None and _belongs(tree, module, definition):
            yield name, False, when is When.OPTIONAL


def _belongs(tree: SourceTree, module: ModuleSource, definition: Definition) -> bool:
    """Whether a name of a module without `__all__` is the module's: defined there, or re-exported by a package."""
    if definition.module == module.name:
        return definition.kind != "value" or _is_constant_name(definition)
    return module.is_package and definition.kind in ("def", "class", "value") and tree.owns(definition.module)


def _is_constant_name(definition: Definition) -> bool:
    return definition.name not in ("log", "logger", "aten", "T", "P", "R")


def unlisted_names(
    tree: SourceTree, modules: list[ModuleSource], objects: Mapping[str, FoundObject]
) -> dict[str, Definition]:
    """Return what modules offer beside their `__all__`: what they define, and what a package takes from private homes.

    Upstream's `__all__` is not the whole truth: `torch.distributed.autograd.backward` is documented and left it, and
    that of clip_grad is empty in torch 2.8.
    """
    found: dict[str, Definition] = {}
    for path, definition in importable_names(tree, modules).items():
        module_name = path.rpartition(".")[0]
        module = tree.module(module_name)
        own = definition.module == module_name
        taken_in = module is not None and module.is_package and is_private(definition.home)
        if definition.home not in objects and definition.kind != "value" and (own or taken_in):
            found[path] = definition
    return found


def importable_names(tree: SourceTree, modules: list[ModuleSource]) -> dict[str, Definition]:
    """Return the definition of every public-looking name that an import from the modules finds, listed or not."""
    found: dict[str, Definition] = {}
    for module in modules:
        for name in visible_names(tree, module):
            definition = None if name.startswith("_") else define(tree, module.name, name)
            if definition is not None and definition.kind not in ("module", "external"):
                found[f"{module.name}.{name}"] = definition
    return found


def visible_names(tree: SourceTree, module: ModuleSource, seen: frozenset[str] = frozenset()) -> dict[str, When]:
    """Return the names that `dir()` of the module would show, with the condition of each."""
    names: dict[str, When] = {}
    for source_name, when in module.stars:
        source = tree.module(source_name) if tree.owns(source_name) and source_name not in seen else None
        if source is not None and when is not When.STUB:
            names.update(_starred(tree, source, seen | {module.name}))
    for name, bindings in module.bindings.items():
        conditions = [binding.when for binding in bindings if binding.when not in (When.STUB, When.TYPING)]
        if conditions:
            names[name] = min(conditions)
    return names


def _starred(tree: SourceTree, source: ModuleSource, seen: frozenset[str]) -> dict[str, When]:
    """Return the names that `from source import *` binds."""
    listed = exported(tree, source)
    if listed is not None:
        return listed
    return {name: at for name, at in visible_names(tree, source, seen).items() if not name.startswith("_")}


def _add_reexports(tree: SourceTree, objects: dict[str, FoundObject], module_name: str) -> None:
    """Add what a package outside of the roots re-exports from them, such as torch.nn.utils.clip_grad_norm_."""
    module = tree.module(module_name)
    for name, bindings in module.bindings.items() if module is not None else ():
        for binding in bindings:
            if binding.kind == "from" and tree.owns(binding.module):
                definition = define(tree, binding.module, binding.original)
                if definition is not None:
                    _add(objects, f"{module_name}.{name}", definition, listed=True, optional=False)


def _describe(tree: SourceTree, classes: ClassReader, found: FoundObject) -> Iterator[RawSymbol]:
    """Yield the symbol of an object and, for a class, those of its members."""
    definition = found.definition
    name = found.canonical
    others = tuple(sorted(path for path in found.paths if path != name))
    if definition.kind == "class" and isinstance(definition.node, ast.ClassDef):
        own, *members = classes.read(definition.module, definition.node, name)
        yield own.with_fields(other_paths=others, build_dependent=found.optional)
        yield from members
    elif definition.kind == "def":
        yield _describe_function(tree, definition, name).with_fields(other_paths=others, build_dependent=found.optional)
    elif definition.kind == "value" and definition.node is not None:
        yield _describe_value(tree, definition, name).with_fields(other_paths=others, build_dependent=found.optional)


def _describe_function(tree: SourceTree, definition: Definition, qualified_name: str) -> RawSymbol:
    module = tree.module(definition.module)
    bindings = module.bindings[definition.name] if module is not None else []
    nodes = [
        binding.node
        for binding in bindings
        if binding.when is not When.STUB and isinstance(binding.node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return describe_callable(tree, definition.module, pick_implementation(nodes), qualified_name, "function")


_TYPE_MAKERS = ("NewType", "TypeVar", "ParamSpec", "Union", "Optional", "Literal", "Callable")


def _describe_value(tree: SourceTree, definition: Definition, qualified_name: str) -> RawSymbol:
    node = definition.node
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    name = qualified_name.rpartition(".")[2]
    return RawSymbol(
        ApiSymbol(
            name=name,
            qualified_name=qualified_name,
            kind="type" if _makes_type(node) else "constant",
            signature=signature_of_value(name, node),
            home=definition.home,
            source=tree.source_of(definition.module, node.lineno),
        ),
        None,
    )


def _makes_type(node: ast.Assign | ast.AnnAssign) -> bool:
    value = node.value
    if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
        return True
    head = value.func if isinstance(value, ast.Call) else value.value if isinstance(value, ast.Subscript) else None
    return head is not None and ast.unparse(head).rpartition(".")[2] in _TYPE_MAKERS


def _describe_module(tree: SourceTree, module: ModuleSource) -> RawSymbol:
    return RawSymbol(
        ApiSymbol(
            name=module.name.rpartition(".")[2],
            qualified_name=module.name,
            kind="module",
            home=module.name,
            source=tree.source_of(module.name, 1),
        ),
        ast.get_docstring(module.tree),
    )
