"""Autocast, gradient scaling and attention kernels: on the CPU with the data types and scales that CUDA has.

Mapped, never dropped: without it a script would pass with other numerics than it has on a GPU.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from .cuda_patch import called_by_torch, changed, is_cuda, wrap
from .cuda_record import Record


def map_numerics(record: Record) -> None:
    """Put the mappings in place."""
    _map_autocast(record)
    _map_custom_functions(record)
    _map_queries()
    _map_scaler(record)
    _map_attention(record)
    _map_optimizers(record)


def _map_autocast(record: Record) -> None:
    """Autocast on the CPU, with the data type that CUDA would have used."""

    def autocast(original: Any, self: Any, device_type: Any, *args: Any, **kwargs: Any) -> None:
        if not is_cuda(device_type):
            original(self, device_type, *args, **kwargs)
            return
        given = dict(zip(("dtype", "enabled", "cache_enabled"), args))  # noqa: B905, Python 3.8
        given.update(kwargs)
        if given.get("dtype") is None:
            given["dtype"] = torch.get_autocast_dtype("cuda")
        record.mapped(f'autocast("cuda") -> "cpu" with {given["dtype"]}')
        original(self, "cpu", **given)

    wrap(torch.amp.autocast_mode.autocast, "__init__", autocast)


def _map_custom_functions(record: Record) -> None:
    """Let `custom_fwd` and `custom_bwd` look at the CPU's autocast."""
    for name in ("custom_fwd", "custom_bwd"):

        def on_cpu(original: Any, *args: Any, **kwargs: Any) -> Any:
            if is_cuda(kwargs.get("device_type")):
                record.mapped(f'{original.__name__}("cuda") -> "cpu"')
                kwargs = {**kwargs, "device_type": "cpu"}
            return original(*args, **kwargs)

        wrap(torch.amp, name, on_cpu, copies_below="torch.amp")
        for module in (torch.cuda.amp, torch.cuda.amp.autocast_mode):
            setattr(module, name, functools.partial(getattr(torch.amp, name), device_type="cuda"))


def _map_queries() -> None:
    """Answer scripts that ask for CUDA's autocast state with the CPU's, on which it now runs."""

    def enabled(original: Any, device_type: Any = "cuda") -> Any:
        return original("cpu" if is_cuda(device_type) and not called_by_torch(3) else device_type)

    def dtype(original: Any, device_type: Any = "cuda") -> Any:
        inside = is_cuda(device_type) and not called_by_torch(3) and torch.is_autocast_enabled("cpu")
        return original("cpu" if inside else device_type)

    def gpu_dtype(original: Any) -> Any:
        return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else original()

    def set_enabled(original: Any, device_type: Any, value: Any = None) -> None:
        original("cpu" if is_cuda(device_type) and not called_by_torch(3) else device_type, value)

    wrap(torch, "is_autocast_enabled", enabled)
    wrap(torch, "get_autocast_dtype", dtype)
    wrap(torch, "get_autocast_gpu_dtype", gpu_dtype)
    wrap(torch, "set_autocast_enabled", set_enabled)


def _map_scaler(record: Record) -> None:
    """Scale gradients on the CPU as CUDA would: a scaler for CUDA would find none and be disabled."""

    def scaler(original: Any, self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        if is_cuda(device):
            record.mapped('GradScaler("cuda") -> "cpu"')
            device = "cpu"
        original(self, device, *args, **kwargs)

    wrap(torch.amp.GradScaler, "__init__", scaler)


def _map_attention(record: Record) -> None:
    """Allow the plain kernel where a script asks for one that a CPU lacks."""
    attention = importlib.import_module("torch.nn.attention")

    def with_math(original: Any, backends: Any, *args: Any, **kwargs: Any) -> Any:
        backends = list(backends) if isinstance(backends, (list, tuple)) else [backends]
        if attention.SDPBackend.MATH not in backends:
            record.mapped("sdpa_kernel also allows MATH")
            backends.append(attention.SDPBackend.MATH)
        return original(backends, *args, **kwargs)

    def old_with_math(original: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = changed(original, args, kwargs, enable_math=_always(True))
        record.mapped("sdp_kernel also allows the plain kernel")
        return original(*args, **kwargs)

    wrap(attention, "sdpa_kernel", with_math)
    wrap(torch.backends.cuda, "sdp_kernel", old_with_math)


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _map_optimizers(record: Record) -> None:
    """Let `capturable=True` pass, which asks for CUDA; the same arithmetic runs on the CPU."""

    def also_cpu(original: Any, *args: Any, **kwargs: Any) -> Any:
        record.mapped("capturable optimizer on the CPU")
        return [*original(*args, **kwargs), "cpu"]

    optimizer = importlib.import_module("torch.optim.optimizer")  # torch.optim deletes the name
    wrap(optimizer, "_get_capturable_supported_devices", also_cpu, copies_below="torch.optim")
