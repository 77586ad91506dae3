"""Reads classes: constructor, fields, methods, properties, attributes, nested classes, and what bases give them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fsdp_mcp.api.raw import RawSymbol, describe_callable
from fsdp_mcp.api.resolve import evaluate
from fsdp_mcp.api.signatures import (
    FunctionNode,
    annotation_of,
    decorators_of,
    deprecation_of,
    fields_of,
    parameters_of,
    pick_implementation,
    signature_from,
    signature_of,
    signature_of_value,
)
from fsdp_mcp.api.tree import SourceTree
from fsdp_mcp.models import ApiParameter, ApiSymbol, SymbolKind

_ENUMS = frozenset({"Enum", "IntEnum", "Flag", "IntFlag", "StrEnum"})
_EXCEPTIONS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
)
_PLAIN_BASES = frozenset({"object", "ABC", "Protocol", "Generic", "NamedTuple", *_ENUMS})
_SPECIAL_METHODS = frozenset({"__call__", "__getitem__", "__enter__", "__exit__", "__iter__", "__len__"})


@dataclass(frozen=True, slots=True)
class ClassNode:
    """A class and the module that defines it."""

    module: str
    node: ast.ClassDef

    @property
    def home(self) -> str:
        """The defining path."""
        return f"{self.module}.{self.node.name}"


@dataclass(frozen=True, slots=True)
class ClassReader:
    """Describes classes; `public` maps the home of each public object to its canonical path."""

    tree: SourceTree
    public: Mapping[str, str]

    def read(self, module_name: str, node: ast.ClassDef, qualified_name: str) -> list[RawSymbol]:
        """Return the symbol of the class, then those of its members and of the members of its private bases."""
        own = ClassNode(module_name, node)
        members: dict[str, RawSymbol] = {}
        for source in (own, *self._private_bases(own)):
            for member in self._members(source, qualified_name):
                members.setdefault(member.symbol.qualified_name, member)
        return [self._class(own, qualified_name), *members.values()]

    def lineage(self, own: ClassNode) -> list[ClassNode]:
        """Return the class and its bases within torch's distributed parts, nearest first."""
        found = [own]
        for current in found:
            module = self.tree.module(current.module)
            for base in current.node.bases if module is not None else ():
                definition = evaluate(self.tree, module, base) if module is not None else None
                if definition is not None and isinstance(definition.node, ast.ClassDef):
                    above = ClassNode(definition.module, definition.node)
                    if above not in found:
                        found.append(above)
        return found

    def _private_bases(self, own: ClassNode) -> list[ClassNode]:
        return [above for above in self.lineage(own)[1:] if above.home not in self.public]

    def _class(self, own: ClassNode, qualified_name: str) -> RawSymbol:
        name = qualified_name.rpartition(".")[2]
        lineage = self.lineage(own)
        signature, parameters, constructor_text = self._constructor(name, lineage)
        return RawSymbol(
            ApiSymbol(
                name=name,
                qualified_name=qualified_name,
                kind="exception" if _is_exception(lineage) else "class",
                signature=signature,
                parameters=parameters,
                home=own.home,
                source=self.tree.source_of(own.module, own.node.lineno),
                deprecated=deprecation_of(own.node),
                bases=tuple(self._base_name(own, base) for base in own.node.bases),
            ),
            _joined(ast.get_docstring(own.node), constructor_text),
        )

    def _base_name(self, own: ClassNode, base: ast.expr) -> str:
        """Return the public path of a base, else its text."""
        module = self.tree.module(own.module)
        definition = evaluate(self.tree, module, base) if module is not None else None
        if definition is None:
            return ast.unparse(base)
        return self.public.get(definition.home, ast.unparse(base))

    def _constructor(
        self, name: str, lineage: list[ClassNode]
    ) -> tuple[str | None, tuple[ApiParameter, ...], str | None]:
        """Return signature, parameters and docstring of what makes an instance; None for an enumeration's."""
        if _is_enum(lineage) or _is_exception(lineage):
            return None, (), None
        for current in lineage:
            if _is_dataclass(current.node) and not _methods(current.node, "__init__"):
                fields = _all_fields(lineage[lineage.index(current) :])
                return signature_from(name, fields), fields, None
            node = _constructor_of(current.node)
            if node is not None:
                text = ast.get_docstring(node) if node.name == "__init__" else None  # __new__ tells of mechanics.
                signature = signature_of(name, node, is_method=True).partition(" -> ")[0]
                return signature, parameters_of(node, is_method=True), text
        if lineage[0].module.startswith("torch._C"):
            return None, (), None  # A stub names no constructor where only C++ makes the objects.
        outside = any(_last_name(base) not in _PLAIN_BASES for current in lineage for base in _outer(current, lineage))
        return (None if outside else f"{name}()"), (), None

    def _members(self, source: ClassNode, qualified_name: str) -> Iterator[RawSymbol]:
        functions: dict[str, list[FunctionNode]] = {}
        for item, text in _statements(source.node):
            match item:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if _is_public_member(name):
                    functions.setdefault(name, []).append(item)
                case ast.ClassDef(name=name) if not name.startswith("_"):
                    yield from self.read(source.module, item, f"{qualified_name}.{name}")
                case ast.AnnAssign() | ast.Assign():
                    yield from self._attributes(source, item, text, qualified_name)
                case _:
                    pass
        for name, nodes in functions.items():
            yield self._method(source, name, nodes, qualified_name)

    def _method(self, source: ClassNode, name: str, nodes: list[FunctionNode], qualified_name: str) -> RawSymbol:
        nodes = pick_implementation(nodes)
        kind: SymbolKind = "property" if any("property" in word for word in decorators_of(nodes[0])) else "method"
        return describe_callable(self.tree, source.home, nodes, f"{qualified_name}.{name}", kind).with_fields(
            source=self.tree.source_of(source.module, nodes[-1].lineno)
        )

    def _attributes(
        self, source: ClassNode, item: ast.AnnAssign | ast.Assign, text: str | None, qualified_name: str
    ) -> Iterator[RawSymbol]:
        targets = item.targets if isinstance(item, ast.Assign) else [item.target]
        for target in targets:
            if not isinstance(target, ast.Name) or target.id.startswith("_"):
                continue
            yield RawSymbol(
                ApiSymbol(
                    name=target.id,
                    qualified_name=f"{qualified_name}.{target.id}",
                    kind="attribute",
                    signature=signature_of_value(target.id, item),
                    returns=annotation_of(item.annotation) if isinstance(item, ast.AnnAssign) else None,
                    home=f"{source.home}.{target.id}",
                    source=self.tree.source_of(source.module, item.lineno),
                ),
                text,
            )


def _statements(node: ast.ClassDef) -> Iterator[tuple[ast.stmt, str | None]]:
    """Yield the statements of a class body, branches included, each with the string that follows it."""
    body = [
        inner for item in node.body for inner in ([*item.body, *item.orelse] if isinstance(item, ast.If) else [item])
    ]
    for index, item in enumerate(body):
        match body[index + 1 : index + 2]:
            case [ast.Expr(value=ast.Constant(value=str(text)))]:
                yield item, text
            case _:
                yield item, None


def _is_public_member(name: str) -> bool:
    return not name.startswith("_") or name in _SPECIAL_METHODS


def _methods(node: ast.ClassDef, name: str) -> list[FunctionNode]:
    return [
        item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == name
    ]


def _constructor_of(node: ast.ClassDef) -> FunctionNode | None:
    """Return the `__init__` of the class, or its `__new__` when only that names the parameters."""
    found = [*pick_implementation(_methods(node, "__init__")), *pick_implementation(_methods(node, "__new__"))]
    named = [item for item in found if len(item.args.posonlyargs + item.args.args + item.args.kwonlyargs) > 1]
    return next(iter(named), next(iter(found), None))


def _is_dataclass(node: ast.ClassDef) -> bool:
    is_named_tuple = any(_last_name(base) == "NamedTuple" for base in node.bases)
    return is_named_tuple or any("dataclass" in word for word in decorators_of(node))


def _all_fields(lineage: list[ClassNode]) -> tuple[ApiParameter, ...]:
    """Return the fields that a dataclass's `__init__` takes: those of its bases first, as dataclasses order them."""
    fields: dict[str, tuple[ApiParameter, bool]] = {}
    for current in reversed(lineage):
        if _is_dataclass(current.node):
            fields.update({field.name: (field, in_init) for field, in_init in fields_of(current.node)})
    return tuple(field for field, in_init in fields.values() if in_init)


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).partition("[")[0].rpartition(".")[2]


def _outer(current: ClassNode, lineage: list[ClassNode]) -> list[ast.expr]:
    known = {item.node.name for item in lineage}
    return [base for base in current.node.bases if _last_name(base) not in known]


def _is_enum(lineage: list[ClassNode]) -> bool:
    return any(_last_name(base) in _ENUMS for current in lineage for base in current.node.bases)


def _is_exception(lineage: list[ClassNode]) -> bool:
    return any(_last_name(base) in _EXCEPTIONS for current in lineage for base in current.node.bases)


def _joined(first: str | None, second: str | None) -> str | None:
    """Return the docstring of a class followed by that of its constructor."""
    return "\n\n".join(part for part in (first, second) if part) or None
