"""A symbol as it stands in the source: its docstring not yet parsed."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from fsdp_mcp.api.signatures import (
    FunctionNode,
    annotation_of,
    deprecation_of,
    parameters_of,
    signature_of,
)
from fsdp_mcp.api.tree import SourceTree
from fsdp_mcp.models import ApiSymbol, SymbolKind


@dataclass(frozen=True, slots=True)
class RawSymbol:
    """A symbol without summary, text and descriptions, beside the docstring that holds them."""

    symbol: ApiSymbol
    docstring: str | None

    def with_fields(self, **changes: Any) -> RawSymbol:
        """Return a copy with some fields of the symbol replaced."""
        return RawSymbol(self.symbol.model_copy(update=changes), self.docstring)


def describe_callable(
    tree: SourceTree, module_name: str, nodes: list[FunctionNode], qualified_name: str, kind: SymbolKind
) -> RawSymbol:
    """Return the symbol of a function or method from its implementation or, without one, its overloads."""
    is_method = kind in ("method", "property")
    name = qualified_name.rpartition(".")[2]
    widest = max(nodes, key=lambda node: len(parameters_of(node, is_method=is_method)))
    returns = annotation_of(widest.returns)
    signatures = [signature_of(name, node, is_method=is_method) for node in nodes]
    return RawSymbol(
        ApiSymbol(
            name=name,
            qualified_name=qualified_name,
            kind=kind,
            signature=f"{name}: {returns or 'Any'}" if kind == "property" else "\n".join(signatures),
            parameters=() if kind == "property" else parameters_of(widest, is_method=is_method),
            returns=returns,
            home=f"{module_name}.{widest.name}",
            source=tree.source_of(module_name, widest.lineno),
            deprecated=deprecation_of(widest),
        ),
        next((text for text in map(ast.get_docstring, nodes) if text), None),
    )
