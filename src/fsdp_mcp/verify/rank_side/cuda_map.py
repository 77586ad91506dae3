"""Runs the CUDA calls of a script on the CPU, and records each: devices, back ends, autocast, scalers, wrappers.

A TorchFunctionMode sees most uses of a device; what it cannot see is patched by the modules named cuda_*.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing.spawn
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.rpc
from torch.overrides import TorchFunctionMode

from . import cuda_amp, cuda_groups, cuda_loading, cuda_names, cuda_sources
from .cuda_patch import called_by_torch, is_compiling, is_cuda, is_index, replacements, shown, wrap
from .cuda_record import Record


def activate(path: Path, is_users: Callable[[str], bool], preload: list[str]) -> None:
    """Map CUDA to the CPU in this process from now on, in every thread, and keep the record in `path`."""
    for module in preload:
        importlib.import_module(module)
    record = Record(path, is_users)
    cuda_amp.map_numerics(record)
    cuda_groups.map_distributed(record)
    cuda_loading.map_the_rest(record)
    cuda_names.substitute(record)
    cuda_sources.report_sources(record, sys.argv[0])
    _enter_in_threads_and_backward(record)
    _let_dynamo_follow()
    CudaToCpu(record).__enter__()


class CudaToCpu(TorchFunctionMode):  # type: ignore[misc]
    """Replaces CUDA devices among the arguments of torch functions."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self._record = record
        self._special = {
            torch.Tensor.cuda: self._stay,
            torch.Tensor.pin_memory: self._stay,
            torch.Tensor.record_stream: self._nothing,
            torch.Tensor.to: self._index_first,
            torch.Tensor.type: self._legacy_type,
            torch.device: self._device,
            torch.nn.functional.scaled_dot_product_attention: self._attention,
            torch.Tensor.is_cuda.__get__: self._is_cuda,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func` with the CPU in place of a CUDA device."""
        kwargs = kwargs or {}
        special = self._special.get(func)
        if special is not None:
            return special(func, args, kwargs)
        return self._call(func, args, kwargs)

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None and (is_cuda(device) or is_index(device)):
            self._note(f'device={shown(device)} -> "cpu" in', func)
            kwargs = {**kwargs, "device": "cpu"}
        if kwargs.get("pin_memory"):
            self._note("pin_memory left out in", func)
            kwargs = {**kwargs, "pin_memory": False}
        if any(is_cuda(value) for value in args):
            self._note('"cuda" -> "cpu" in', func)
            args = tuple("cpu" if is_cuda(value) else value for value in args)
        return func(*args, **kwargs)

    def _note(self, what: str, func: Any) -> None:
        if not is_compiling():
            self._record.mapped(f"{what} {_name(func)}")

    def _stay(self, func: Any, args: Any, kwargs: Any) -> Any:
        self._note("stays on the CPU:", func)
        return args[0]

    def _nothing(self, func: Any, args: Any, kwargs: Any) -> None:
        self._note("does nothing:", func)

    def _index_first(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Take an integer where a device stands for a CUDA device."""
        if len(args) > 1 and is_index(args[1]):
            self._note('device index -> "cpu" in', func)
            args = (args[0], "cpu", *args[2:])
        return self._call(func, args, kwargs)

    def _device(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Leave a device that the user makes as it is, so that its type and index are those of a GPU; uses are mapped.

        What torch makes for itself is the CPU.
        """
        first = args[0] if args else kwargs.get("type")
        if not called_by_torch(depth=3):
            return func("cuda", first) if is_index(first) else func(*args, **kwargs)
        return func("cpu") if is_cuda(first) or is_index(first) else func(*args, **kwargs)

    def _legacy_type(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Take "torch.cuda.FloatTensor" for "torch.FloatTensor"."""
        if len(args) > 1 and isinstance(args[1], str) and args[1].startswith("torch.cuda."):
            self._note("torch.cuda type -> torch type in", func)
            args = (args[0], args[1].replace("torch.cuda.", "torch."), *args[2:])
        return func(*args, **kwargs)

    def _attention(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Take the plain kernel for DTensors: the CPU's fused one cannot be sharded, as CUDA's can."""
        if type(args[0] if args else kwargs["query"]).__name__ != "DTensor":
            return self._call(func, args, kwargs)
        self._record.mapped("attention of DTensors takes the plain kernel")
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return func(*args, **kwargs)

    def _is_cuda(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not called_by_torch(depth=3):
            self._record.unsupported("Tensor.is_cuda is False")
        return func(*args, **kwargs)


def _name(func: Any) -> str:
    """Return how a user writes the function."""
    name = str(getattr(func, "__name__", func))
    return f"Tensor.{name}" if getattr(torch.Tensor, name, None) is func else name


def _enter_in_threads_and_backward(record: Record) -> None:
    """Enter the mode where it is not in force by itself: in other threads, and in the backward pass.

    A mode belongs to a thread; and while it handles `Tensor.backward` it is off, though hooks and recomputation run
    the user's code.
    """

    def in_thread(original: Any, *args: Any, **kwargs: Any) -> Any:
        with CudaToCpu(record):
            return original(*args, **kwargs)

    wrap(threading.Thread, "_bootstrap_inner", in_thread)
    if torch.distributed.rpc.is_available():  # calls run in threads that Python did not start
        wrap(importlib.import_module("torch.distributed.rpc.internal"), "_run_function", in_thread)
    for module in (torch.autograd, torch.autograd.graph):
        with contextlib.suppress(AttributeError):
            wrap(module, "_engine_run_backward", in_thread, copies_below="torch.autograd")


def _let_dynamo_follow() -> None:
    """Tell Dynamo, once a script compiles, that the replacements are no operators of torch as their names say."""

    def compile_(original: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(ImportError, AttributeError):
            rules = importlib.import_module("torch._dynamo.trace_rules").get_torch_obj_rule_map()
            for replacement in replacements:
                rules.pop(replacement, None)
        return original(*args, **kwargs)

    wrap(torch, "compile", compile_)


def map_in_spawned_processes(path: Path, roots: list[str], preload: list[str]) -> None:
    """Let Python processes that multiprocessing spawns map as well, from their first line on.

    They are started as new interpreters: what they run is put before multiprocessing's own program.
    """
    folder = str(Path(__file__).parents[1])

    def command(original: Any, **kwargs: Any) -> Any:
        words = list(original(**kwargs))
        at = words.index("-c") + 1 if "-c" in words else 0
        if at:
            start = f"from rank_side.rank_main import map_spawned as m; m({str(path)!r}, {roots!r}, {preload!r})"
            words[at] = f"import sys; sys.path.insert(0, {folder!r}); {start}; del sys.path[0]; {words[at]}"
        return words

    wrap(multiprocessing.spawn, "get_command_line", command)
