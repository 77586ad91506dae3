"""Reads the modules of a torch folder into name bindings, lazily and without importing anything.

A binding remembers under which condition it holds, because torch defines names in branches: stubs for builds without
distributed, fallbacks in `except ImportError`, names that only a type checker sees.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Literal

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import Value

_LOG = logging.getLogger(__name__)


class ModuleRow(Value):
    """One row of `facts/api_modules.yaml`: which modules are read, and what no reader of files can see."""

    path: str
    role: Literal["root", "private", "reexports", "redirect", "alias"]
    target: str | None = None
    why: str


def module_rows(role: str) -> tuple[ModuleRow, ...]:
    """Return the rows of one role, in the order of the table."""
    return tuple(row for row in load_facts("api_modules", ModuleRow) if row.role == role)


class When(IntEnum):
    """How certain a binding is; of nested conditions the weakest counts."""

    ALWAYS = 0
    OPTIONAL = 1
    """Present in some builds or on some systems only."""
    FALLBACK = 2
    """In an `except` or `else`: what holds when the main branch does not."""
    TYPING = 3
    STUB = 4
    """In the branch for builds without torch.distributed."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What one statement binds a name to."""

    kind: Literal["def", "class", "module", "from", "value"]
    when: When
    node: ast.stmt
    module: str = ""
    """For imports: the module imported, or imported from."""
    original: str = ""
    """For `from module import original`."""


@dataclass(slots=True)
class ModuleSource:
    """The names that one file binds at module level."""

    name: str
    path: Path
    is_package: bool
    tree: ast.Module
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[tuple[str, When]] = field(default_factory=list)
    exports: list[tuple[ast.expr, When, bool]] = field(default_factory=list)
    """Operations on `__all__`: the expression, its condition, whether it adds to what there was."""
    listed: dict[str, When] | None = None
    """What they come to, once worked out."""


class SourceTree:
    """The modules of one torch folder; a file is parsed when it is asked for, once."""

    def __init__(self, torch_dir: Path) -> None:
        self.torch_dir = torch_dir
        self.skipped: list[str] = []
        """Files that could not be read or parsed, relative to the folder of torch."""
        self._modules: dict[str, ModuleSource | None] = {}
        self._own = tuple(row.path for row in load_facts("api_modules", ModuleRow) if row.role != "alias")
        self._redirects = {row.path: row.target or "" for row in module_rows("redirect")}

    def owns(self, module: str) -> bool:
        """Whether imports from `module` are followed: torch's distributed parts and the C++ stubs."""
        return module.startswith("torch._C") or any(
            module == own or module.startswith(f"{own}.") for own in self._own if own != "torch.nn.utils"
        )

    def module(self, name: str) -> ModuleSource | None:
        """Return the module, or None when it has no readable file."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def exists(self, name: str) -> bool:
        """Whether a file or a redirect provides the module."""
        return self._find(name) is not None or self._redirected(name) is not None

    def _redirected(self, name: str) -> str | None:
        target = self._redirects.get(name)
        return target if target is not None and self._find(target) is not None else None

    def _find(self, name: str) -> tuple[Path, bool] | None:
        """Return the file of a module and whether it is a package; a .py goes before the .pyi beside it."""
        base = self.torch_dir.joinpath(*name.split(".")[1:])
        for suffix in (".py", ".pyi"):
            if name != "torch" and base.with_name(base.name + suffix).is_file():
                return base.with_name(base.name + suffix), False
            if (base / f"__init__{suffix}").is_file():
                return base / f"__init__{suffix}", True
        return None

    def _read(self, name: str) -> ModuleSource | None:
        found = self._find(name)
        if found is None:
            target = self._redirected(name)
            return self.module(target) if target else None
        path, is_package = found
        try:
            tree = ast.parse(_text_to_parse(name, path))
        except (OSError, SyntaxError, ValueError) as error:
            self.skipped.append(path.relative_to(self.torch_dir).as_posix())
            _LOG.warning("skipped %s: %s", path, error)
            return None
        module = ModuleSource(name=name, path=path, is_package=is_package, tree=tree)
        _scan(module, tree.body, When.ALWAYS)
        return module

    def source_of(self, module_name: str, line: int) -> str | None:
        """Return `torch/.../file.py:line` for a line of a module."""
        module = self.module(module_name)
        if module is None:
            return None
        return f"torch/{module.path.relative_to(self.torch_dir).as_posix()}:{line}"

    def modules_below(self, root: str) -> Iterator[str]:
        """Yield `root` and its public submodules, by name."""
        found = self._find(root)
        if found is None:
            return
        yield root
        path, is_package = found
        if not is_package:
            return
        for child in sorted(path.parent.iterdir()):
            if child.name.startswith(("_", ".")):
                continue
            if child.is_dir() and child.name.isidentifier():
                yield from self.modules_below(f"{root}.{child.name}")
            elif child.suffix == ".py":
                yield f"{root}.{child.stem}"


def _text_to_parse(name: str, path: Path) -> str:
    """Read a file; of torch/_C/__init__.pyi (12,000 lines) only the exception classes, which are all that is used."""
    text = path.read_text(encoding="utf-8")
    if name != "torch._C":
        return text
    return "\n".join(f"{head}: ..." for head in re.findall(r"^class _Dist\w+\([\w., ]+\)", text, re.MULTILINE)) + "\n"


def _scan(module: ModuleSource, body: Iterable[ast.stmt], when: When) -> None:
    """Record the bindings of each statement, nested blocks included."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                _bind(module, name, Binding("def", when, node))
            case ast.ClassDef(name=name):
                _bind(module, name, Binding("class", when, node))
            case ast.Import() | ast.ImportFrom():
                _scan_import(module, node, when)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                _scan_assignment(module, node, when)
            case ast.Expr(value=ast.Call() as call):
                _scan_call(module, call, when)
            case ast.If():
                _scan_if(module, node, when)
            case ast.Try():
                _scan_try(module, node, when)
            case ast.With() | ast.For() | ast.While():
                _scan(module, node.body, when)
            case _:
                pass


def _bind(module: ModuleSource, name: str, binding: Binding) -> None:
    module.bindings.setdefault(name, []).append(binding)


def _scan_import(module: ModuleSource, node: ast.Import | ast.ImportFrom, when: When) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            _bind(module, alias.asname or first, Binding("module", when, node, alias.name if alias.asname else first))
        return
    source = absolute_module(module, node)
    for alias in node.names:
        if alias.name == "*":
            module.stars.append((source, when))
        else:
            _bind(module, alias.asname or alias.name, Binding("from", when, node, source, alias.name))


def absolute_module(module: ModuleSource, node: ast.ImportFrom) -> str:
    """Return the absolute name of the module that a `from` import names."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    keep = len(parts) - node.level + (1 if module.is_package else 0)
    return ".".join([*parts[:keep], *([node.module] if node.module else [])])


def _scan_assignment(module: ModuleSource, node: ast.Assign | ast.AnnAssign | ast.AugAssign, when: When) -> None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if isinstance(target, ast.Name) and target.id == "__all__":
            if node.value is not None:
                module.exports.append((node.value, when, isinstance(node, ast.AugAssign)))
        elif isinstance(target, ast.Name) and not isinstance(node, ast.AugAssign):
            _bind(module, target.id, Binding("value", when, node))
        elif isinstance(target, ast.Tuple):
            for element in target.elts:
                if isinstance(element, ast.Name):
                    _bind(module, element.id, Binding("value", when, node))


def _scan_call(module: ModuleSource, call: ast.Call, when: When) -> None:
    """Record `__all__.extend([...])` and `__all__.append(...)`."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="__all__"), attr="extend"), args=[names]):
            module.exports.append((names, when, True))
        case ast.Call(func=ast.Attribute(value=ast.Name(id="__all__"), attr="append"), args=[name]):
            module.exports.append((ast.List(elts=[name], ctx=ast.Load()), when, True))
        case _:
            pass


_AVAILABILITY = ("is_available", "_rpc_init", "_c10d_init")


def _scan_if(module: ModuleSource, node: ast.If, when: When) -> None:
    test = ast.unparse(node.test)
    about_availability = any(word in test for word in _AVAILABILITY)
    if about_availability and test.startswith("not "):
        body, orelse = When.STUB, When.ALWAYS
    elif about_availability:
        body, orelse = When.ALWAYS, When.STUB
    elif "TYPE_CHECKING" in test:
        body, orelse = (When.ALWAYS, When.TYPING) if test.startswith("not ") else (When.TYPING, When.ALWAYS)
    else:
        body, orelse = When.OPTIONAL if "sys.platform" in test else When.ALWAYS, When.FALLBACK
    _scan(module, node.body, max(when, body))
    _scan(module, node.orelse, max(when, orelse))


def _scan_try(module: ModuleSource, node: ast.Try, when: When) -> None:
    about_imports = any("Error" in ast.unparse(handler.type) for handler in node.handlers if handler.type)
    _scan(module, [*node.body, *node.orelse], max(when, When.OPTIONAL) if about_imports else when)
    for handler in node.handlers:
        _scan(module, handler.body, max(when, When.FALLBACK))
    _scan(module, node.finalbody, when)
