"""Runs the CUDA calls of a script on the CPU, and records each: devices, back ends, autocast, scalers, wrappers.

A TorchFunctionMode sees most uses of a device; what it cannot see is patched here and in cuda_names.py. Autocast and
gradient scaling are mapped, never dropped: without it a script would pass with other numerics than it has on a GPU.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from . import cuda_names
from .cuda_record import Record


def activate(path: Path, is_users: Callable[[str], bool], preload: list[str]) -> None:
    """Map CUDA to the CPU in this process from now on, in every thread, and keep the record in `path`."""
    for module in preload:
        importlib.import_module(module)
    record = Record(path, is_users)
    mode = CudaToCpu(record)
    _map_modules(record)
    _map_amp(record)
    _map_communication(record)
    _map_wrappers(record)
    _map_loading(record)
    cuda_names.substitute(record)
    _enter_in_threads_and_backward(record)
    mode.__enter__()


def is_cuda(value: object) -> bool:
    """Return whether a value names a CUDA device: "cuda", "cuda:1" or such a torch.device."""
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return isinstance(value, torch.device) and value.type == "cuda"


def is_index(value: object) -> bool:
    """Return whether a value is a device index; True and False are no indices."""
    return isinstance(value, int) and not isinstance(value, bool)


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
            torch.device: self._index_first,
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
        if is_cuda(device) or is_index(device):
            self._record.mapped(f'device={_shown(device)} -> "cpu" in {_name(func)}')
            kwargs = {**kwargs, "device": "cpu"}
        if kwargs.get("pin_memory"):
            self._record.mapped(f"pin_memory left out in {_name(func)}")
            kwargs = {**kwargs, "pin_memory": False}
        if any(is_cuda(value) for value in args):
            if func is not torch.device or not cuda_names.called_by_torch(depth=4):  # torch names it for itself
                self._record.mapped(f'"cuda" -> "cpu" in {_name(func)}')
            args = tuple("cpu" if is_cuda(value) else value for value in args)
            if func is torch.device:  # ("cuda", 1): the CPU has no further index
                args = args[:1]
        return func(*args, **kwargs)

    def _stay(self, func: Any, args: Any, kwargs: Any) -> Any:
        self._record.mapped(f"{_name(func)}() stays on the CPU")
        return args[0]

    def _nothing(self, func: Any, args: Any, kwargs: Any) -> None:
        self._record.mapped(f"{_name(func)}() does nothing")

    def _index_first(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Take an integer where a device stands for a CUDA device."""
        at = 0 if func is torch.device else 1
        if len(args) > at and is_index(args[at]):
            self._record.mapped(f'device index -> "cpu" in {_name(func)}')
            args = (*args[:at], "cpu", *args[at + 1 :])
        return self._call(func, args, kwargs)

    def _is_cuda(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not cuda_names.called_by_torch(depth=3):
            self._record.unsupported("Tensor.is_cuda is False")
        return func(*args, **kwargs)


def _name(func: Any) -> str:
    """Return how a user writes the function."""
    name = str(getattr(func, "__name__", func))
    return f"Tensor.{name}" if getattr(torch.Tensor, name, None) is func else name


def _shown(device: object) -> str:
    """Return a device without its index, which differs between ranks."""
    return '"cuda"' if is_cuda(device) else "index"


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace `owner.name` by a function that calls `wrapper(original, *args, **kwargs)`, if there is such a name.

    Copies of the same object under that name in other modules of torch.distributed are replaced as well.
    """
    original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    holders = [owner] if isinstance(owner, type) else [owner, *_modules_below("torch.distributed")]
    for holder in holders:
        if holder is owner or getattr(holder, "__dict__", {}).get(name) is original:
            setattr(holder, name, replaced)


def _modules_below(package: str) -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name == package or name.startswith(package + ".")]


def _map_modules(record: Record) -> None:
    """Take `Module.to(0)`, `Module.cuda()` and `Module.to_empty(device=0)`, which call no torch function first."""

    def move(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        device = args[0] if args else kwargs.get("device")
        if is_cuda(device) or is_index(device):
            record.mapped(f'{_name(original)}({_shown(device)}) -> "cpu" for a module')
            args = ("cpu", *args[1:]) if args else args
            kwargs = {**kwargs, "device": "cpu"} if "device" in kwargs else kwargs
        return original(module, *args, **kwargs)

    def stay(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        record.mapped("Module.cuda() stays on the CPU")
        return module

    _wrap(torch.nn.Module, "to", move)
    _wrap(torch.nn.Module, "to_empty", move)
    _wrap(torch.nn.Module, "cuda", stay)


def _map_amp(record: Record) -> None:
    """Autocast and scale on the CPU with the data type that CUDA would have used."""

    def autocast(original: Any, self: Any, device_type: Any, *args: Any, **kwargs: Any) -> None:
        if is_cuda(device_type):
            dtype = args[0] if args else kwargs.get("dtype")
            dtype = torch.get_autocast_dtype("cuda") if dtype is None else dtype
            record.mapped(f'autocast("cuda") -> "cpu" with {dtype}')
            device_type, args, kwargs = "cpu", args[1:], {**kwargs, "dtype": dtype}
            args, kwargs = (), {**kwargs, **dict(zip(("enabled", "cache_enabled"), args))}  # noqa: B905, Python 3.8
        original(self, device_type, *args, **kwargs)

    def scaler(original: Any, self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        if is_cuda(device):
            record.mapped('GradScaler("cuda") -> "cpu"')
            device = "cpu"
        original(self, device, *args, **kwargs)

    _wrap(torch.amp.autocast_mode.autocast, "__init__", autocast)
    _wrap(torch.amp.GradScaler, "__init__", scaler)


def _map_communication(record: Record) -> None:
    """Use Gloo in place of NCCL, and the CPU as the device of groups and meshes."""

    def with_gloo(original: Any, *args: Any, **kwargs: Any) -> Any:
        backend_at = 0 if _name(original) == "init_process_group" else 2
        backend = args[backend_at] if len(args) > backend_at else kwargs.get("backend")
        if backend is not None and "nccl" in str(backend).lower():
            record.mapped(f'backend "{backend}" -> "gloo" in {_name(original)}')
            if len(args) > backend_at:
                args = (*args[:backend_at], "gloo", *args[backend_at + 1 :])
            else:
                kwargs = {**kwargs, "backend": "gloo"}
        for name in ("device_id", "pg_options"):
            if kwargs.get(name) is not None:
                record.mapped(f"{name} left out in {_name(original)}")
                kwargs = {**kwargs, name: None}
        return original(*args, **kwargs)

    def barrier(original: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("device_ids", None) is not None:
            record.mapped("device_ids left out in barrier")
        return original(*args, **kwargs)

    def mesh(original: Any, *args: Any, **kwargs: Any) -> Any:
        """`init_device_mesh(device_type, ...)` or `DeviceMesh.__init__(self, device_type, ...)`."""
        at = 1 if _name(original) == "__init__" else 0
        device_type = args[at] if len(args) > at else kwargs.get("device_type")
        if is_cuda(device_type):
            record.mapped('device mesh of "cuda" -> "cpu"')
            args = (*args[:at], "cpu", *args[at + 1 :]) if len(args) > at else args
            kwargs = {**kwargs, "device_type": "cpu"} if "device_type" in kwargs else kwargs
        return original(*args, **kwargs)

    _wrap(dist.distributed_c10d, "init_process_group", with_gloo)
    _wrap(dist.distributed_c10d, "new_group", with_gloo)
    _wrap(dist.distributed_c10d, "barrier", barrier)
    _wrap(dist.device_mesh, "init_device_mesh", mesh)
    _wrap(dist.device_mesh.DeviceMesh, "__init__", mesh)


def _map_wrappers(record: Record) -> None:
    """Put DistributedDataParallel, FSDP1 and offloaded parameters on the CPU."""

    def data_parallel(original: Any, self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        for at, name in enumerate(("device_ids", "output_device")):
            if (args[at] if len(args) > at else kwargs.pop(name, None)) is not None:
                record.mapped(f"{name} left out in DistributedDataParallel")
        original(self, module, None, None, *args[2:], **kwargs)

    def fsdp1(original: Any, self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        record.mapped("device_id of FullyShardedDataParallel is the CPU")
        kwargs["device_id"] = torch.device("cpu")  # FSDP1 refuses to choose the CPU by itself
        if kwargs.pop("sync_module_states", False):
            record.mapped("sync_module_states done by a broadcast on the CPU")
            _broadcast_states(module, kwargs.get("process_group"))
        original(self, module, *args, **kwargs)

    def offload(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        if args[:1] == (True,) or kwargs.get("pin_memory", not args):
            record.mapped("pin_memory=False in CPUOffloadPolicy")
        original(self, pin_memory=False)

    _wrap(torch.nn.parallel.DistributedDataParallel, "__init__", data_parallel)
    fsdp = sys.modules.get("torch.distributed.fsdp")
    prototype = sys.modules.get("torch.distributed._composable.fsdp")  # Remove when torch < 2.6 is unsupported.
    for home, name, wrapper in (
        (fsdp, "FullyShardedDataParallel", fsdp1),
        (fsdp, "CPUOffloadPolicy", offload),
        (prototype if not hasattr(fsdp, "CPUOffloadPolicy") else None, "CPUOffloadPolicy", offload),
    ):
        if hasattr(home, name):
            _wrap(getattr(home, name), "__init__", wrapper)


def _broadcast_states(module: Any, group: Any) -> None:
    """Give every rank of the group the parameters and buffers of its first rank, as FSDP1 does on GPUs."""
    if isinstance(group, tuple):  # hybrid sharding: (shard group, replicate group) cover all ranks together
        group = None
    source = dist.get_global_rank(group, 0) if group is not None else 0
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), src=source, group=group)


def _map_loading(record: Record) -> None:
    """Load checkpoints to the CPU, and let generators and default devices be of the CPU."""

    def load(original: Any, *args: Any, **kwargs: Any) -> Any:
        location = args[1] if len(args) > 1 else kwargs.get("map_location")
        if location is None or is_cuda(location) or isinstance(location, dict) or is_index(location):
            if location is not None:
                record.mapped('map_location -> "cpu" in load')
            args, kwargs = (*args[:1], *args[2:]), {**kwargs, "map_location": "cpu"}
        return original(*args, **kwargs)

    def default_device(original: Any, device: Any) -> Any:
        if is_cuda(device) or is_index(device):
            record.mapped(f'set_default_device({_shown(device)}) -> "cpu"')
            device = "cpu"
        return original(device)

    _wrap(torch, "load", load)
    _wrap(torch, "set_default_device", default_device)
    torch.Generator = _generator_class(record)


def _generator_class(record: Record) -> Any:
    """Return a stand-in for torch.Generator, which is no torch function and so escapes the mode."""
    original = torch.Generator

    class AnyGenerator(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, original)

        def __call__(cls, device: Any = "cpu") -> Any:
            if is_cuda(device) or is_index(device):
                record.mapped(f'Generator({_shown(device)}) -> "cpu"')
                device = "cpu"
            return original(device)

    return AnyGenerator("Generator", (), {"__doc__": original.__doc__, "__module__": "torch"})


def _enter_in_threads_and_backward(record: Record) -> None:
    """Enter the mode where it is not in force by itself: in other threads, and in the backward pass.

    A mode belongs to a thread; and while it handles `Tensor.backward` it is off, though hooks and recomputation run
    the user's code.
    """

    def in_thread(original: Any, *args: Any, **kwargs: Any) -> Any:
        with CudaToCpu(record):
            return original(*args, **kwargs)

    _wrap(threading.Thread, "_bootstrap_inner", in_thread)
    for module in (torch.autograd, torch.autograd.graph):
        with contextlib.suppress(AttributeError):
            _wrap(module, "_engine_run_backward", in_thread)
