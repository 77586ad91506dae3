"""Names what in the user's sources has no meaning on a CPU: imports of CUDA kernels, decisions on a device's type."""

from __future__ import annotations

import ast
import atexit
import contextlib
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .cuda_record import Record

_KERNELS = frozenset(
    (
        *("triton", "flash_attn", "flash_attn_interface", "flash_attn_3", "apex", "bitsandbytes", "xformers"),
        *("transformer_engine", "liger_kernel", "fused_dense_lib", "deep_ep", "deep_gemm", "flashinfer", "cupy"),
        *("pynvml", "causal_conv1d", "mamba_ssm", "megablocks", "grouped_gemm", "torchao", "fbgemm_gpu", "cutlass"),
    )
)
"""Packages whose code runs on GPUs, or asks one."""

_BUILDS = "torch.utils.cpp_extension"


def report_sources(record: Record, entry: str) -> None:
    """Report on the script now, on the user's modules as they import kernels, and on those loaded at the end."""
    _report_decisions(record, entry)
    sys.meta_path.insert(0, _ImportWatch(record))
    atexit.register(_report_modules, record, entry)


class _ImportWatch:
    """Finds nothing, but sees what is imported."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        """Report an import of CUDA kernels by the user's own code."""
        if name in _KERNELS or name == _BUILDS:
            place = self._importer()
            if place:
                self._record.unsupported(_said(name), place)

    def _importer(self) -> tuple[str, int] | None:
        """Return file and line of the import statement, if it is the user's."""
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        if frame is None or not self._record.is_users(frame.f_code.co_filename):
            return None
        return frame.f_code.co_filename, frame.f_lineno


def _said(name: str) -> str:
    return f"import {name}: builds custom kernels" if name == _BUILDS else f"import {name}: its kernels need a GPU"


def _report_modules(record: Record, entry: str) -> None:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file != entry and record.is_users(file):
            _report_decisions(record, file)


def _report_decisions(record: Record, file: str) -> None:
    """Report the lines that compare the type of a tensor's device with "cuda": it is a CPU."""
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
        for line in sorted(set(_decisions(ast.parse(Path(file).read_bytes())))):
            record.unsupported('a tensor is on "cpu" where its device is compared with a GPU', (file, line))


def _decisions(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            of_type = any(map(_is_type, sides)) and any(map(_names_cuda, sides))
            if of_type or (any(map(_is_device_of, sides)) and any(map(_is_own_device, sides))):
                yield node.lineno


def _is_type(node: ast.AST) -> bool:
    """Return whether the expression is the type of a tensor's device; a device of the user's own keeps its type."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "type"
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "device"
    )


def _is_device_of(node: ast.AST) -> bool:
    """Return whether the expression is the device of what is most likely a tensor."""
    return isinstance(node, ast.Attribute) and node.attr == "device" and not _is_own_device(node)


def _is_own_device(node: ast.AST) -> bool:
    """Return whether the expression is a device that the script has made and holds under a name."""
    if isinstance(node, ast.Attribute) and node.attr == "device":
        return ast.unparse(node.value).rpartition(".")[2] in ("self", "args", "cfg", "config")
    return isinstance(node, ast.Name) and node.id == "device"


def _names_cuda(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Constant) and part.value == "cuda" for part in ast.walk(node))
