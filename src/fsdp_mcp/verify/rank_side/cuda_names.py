"""Stands in for the functions and classes of torch.cuda, torch.accelerator and NVTX that need a GPU.

Only callers outside of torch see the substitutes: torch itself asks `torch.cuda.is_available()` to decide whether it
may use CUDA, and would.
"""

from __future__ import annotations

import collections
import functools
import importlib
import os
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from .cuda_patch import called_by_torch, is_index, replace_copies, replacements, stand_in_class, watch_attributes
from .cuda_record import Record
from .cuda_streams import CpuContext, CpuEvent, CpuRange, CpuStream, CudaRuntime, NoGraph

_RANKS_OF_A_SCRIPT_THAT_STARTS_THEM = 2
"""What `device_count` says where no launcher did: scripts start one rank for each device."""

_CAPABILITY = (8, 0)
"""The oldest that has bfloat16, so that scripts take their usual branch."""

_VERSIONS = {"cuda": "12.8", "nccl": (2, 27, 0), "cudnn": 91000}
"""New enough for what scripts ask for; nothing here computes with them."""


def substitute(record: Record) -> None:
    """Put the stand-ins in place."""
    importlib.import_module("torch.cuda.nccl")
    for owner, names in _values().items():
        module = _find(owner)
        for name, value in names.items():
            _stand_in(module, owner, name, value, record.mapped)
    for owner, names in _MEANINGLESS.items():
        module = _find(owner)
        for name, value in names.items():
            _stand_in(module, owner, name, value, record.unsupported)
    _substitute_classes(record)
    _substitute_attributes(record)
    _report_the_rest(record)


_NUMBERS = dict.fromkeys(
    ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached"), 0
)
_MEANINGLESS: dict[str, dict[str, Any]] = {
    "torch.cuda": {
        **_NUMBERS,
        **dict.fromkeys(("max_memory_cached", "utilization", "memory_usage", "temperature", "power_draw"), 0),
        **dict.fromkeys(("clock_rate", "device_memory_used", "host_memory_stats"), 0),
        "memory_stats": lambda *_, **__: collections.defaultdict(int),
        "memory_summary": "",
        "list_gpu_processes": "",
        "memory_snapshot": lambda *_, **__: [],
    },
    "torch.accelerator": {**_NUMBERS, "memory_stats": lambda *_, **__: collections.defaultdict(int)},
}
"""What reads a number that says nothing about a GPU."""


class _Current:
    """The index of the device that the script has selected."""

    def __init__(self) -> None:
        self.index = int(os.environ.get("LOCAL_RANK", "0"))

    def select(self, device: Any = None, *_: Any, **__: Any) -> None:
        """Take the index of the device, if it names one."""
        text = str(device).rpartition(":")[2]
        self.index = device if is_index(device) else int(text) if text.isdigit() else self.index


def _values() -> dict[str, dict[str, Any]]:
    """Return what each function answers on the CPU: a value, or a function of the same arguments."""
    current = _Current()
    count = int(os.environ.get("LOCAL_WORLD_SIZE", _RANKS_OF_A_SCRIPT_THAT_STARTS_THEM))
    return {
        "torch.cuda": {
            **dict.fromkeys(_CUDA_DOES_NOTHING),
            **_of_the_generator(),
            "set_device": current.select,
            "current_device": lambda: current.index,
            "device_count": count,
            **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported", "is_tf32_supported"), True),
            **dict.fromkeys(("can_device_access_peer",), True),
            "is_current_stream_capturing": False,
            "get_sync_debug_mode": 0,
            "mem_get_info": _memory,
            "get_device_name": "CPU in place of CUDA",
            "get_device_capability": _CAPABILITY,
            "get_device_properties": _properties,
            "get_arch_list": lambda: [f"sm_{_CAPABILITY[0]}{_CAPABILITY[1]}"],
            "current_stream": CpuStream,
            "default_stream": CpuStream,
            "cudart": CudaRuntime,
            "make_graphed_callables": lambda callables, *_, **__: callables,
        },
        "torch.cuda.memory": {
            **dict.fromkeys(("_record_memory_history", "_dump_snapshot")),
            "_snapshot": _no_snapshot,
        },
        "torch.cuda.profiler": dict.fromkeys(("start", "stop", "init")),
        "torch.cuda.nccl": {"version": _VERSIONS["nccl"]},
        "torch.cuda.nvtx": dict.fromkeys(("range_push", "range_pop", "mark", "range_start", "range_end"), 0),
        "torch.backends.cudnn": {"version": _VERSIONS["cudnn"], "is_available": True},
        "torch.backends.cuda": {
            **dict.fromkeys(("preferred_linalg_library", "preferred_blas_library", "enable_math_sdp")),
            "is_built": True,
        },
        "torch.accelerator": {
            **dict.fromkeys(_ACCELERATOR_DOES_NOTHING),
            **dict.fromkeys(("set_device_index", "set_device_idx"), current.select),
            "is_available": True,
            "device_count": count,
            **dict.fromkeys(("current_device_index", "current_device_idx"), lambda: current.index),
            "current_accelerator": lambda *_, **__: torch.device("cuda"),
            "current_stream": CpuStream,
            "get_memory_info": _memory,
            "get_device_capability": lambda *_: {},
        },
        "torch": {"get_device_module": lambda *_, **__: torch.cuda},
        "torch.distributed": {
            "is_nccl_available": True,
            "is_backend_available": lambda backend: str(backend).lower() in ("gloo", "nccl"),
        },
    }


_CUDA_DOES_NOTHING = (
    *("set_stream", "synchronize", "init", "ipc_collect", "empty_cache", "reset_peak_memory_stats"),
    *("reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats"),
    *("set_per_process_memory_fraction", "set_sync_debug_mode", "reset_peak_host_memory_stats"),
    *("manual_seed", "manual_seed_all", "seed", "seed_all"),
)
"""A seed does nothing either: what CUDA draws comes from the CPU's generator, which `torch.manual_seed` has seeded."""

_ACCELERATOR_DOES_NOTHING = (
    *("synchronize", "set_stream", "empty_cache", "empty_host_cache", "reset_peak_memory_stats"),
    "reset_accumulated_memory_stats",
)


def _of_the_generator() -> dict[str, Any]:
    """Return the functions on the state of CUDA's generator, for which the CPU's stands in."""
    return {
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state": lambda new_state, *_, **__: torch.set_rng_state(new_state),
        "set_rng_state_all": lambda new_states: torch.set_rng_state(next(iter(new_states))),
    }


def _no_snapshot(*_: Any, **__: Any) -> dict[str, list[Any]]:
    return {"segments": [], "device_traces": []}


def _find(path: str) -> Any:
    """Return the module, None in a torch that lacks it."""
    return functools.reduce(lambda found, name: getattr(found, name, None), path.split(".")[1:], torch)


def _stand_in(module: Any, owner: str, name: str, value: Any, note: Callable[[str], None]) -> None:
    """Replace one function by its answer on the CPU, for callers outside of torch."""
    original = getattr(module, name, None)
    if original is None:
        return
    what = f"{owner}.{name} {_answer(value)}"

    @functools.wraps(original, updated=())
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if called_by_torch():
            return original(*args, **kwargs)
        note(what)
        return value(*args, **kwargs) if callable(value) else value

    replacements.append(stand_in)
    setattr(module, name, stand_in)
    replace_copies("torch.cuda", name, original, stand_in)
    replace_copies("torch.accelerator", name, original, stand_in)


def _answer(value: Any) -> str:
    """Say what a stand-in does."""
    if value is None:
        return "does nothing"
    return "answers for the CPU" if callable(value) else f"reads {value!r}"


def _memory(*_: Any, **__: Any) -> tuple[int, int]:
    """Return the free and the total memory of the machine in bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def _properties(*_: Any, **__: Any) -> SimpleNamespace:
    return SimpleNamespace(
        name="CPU in place of CUDA",
        major=_CAPABILITY[0],
        minor=_CAPABILITY[1],
        total_memory=_memory()[1],
        multi_processor_count=os.cpu_count() or 1,
        **dict.fromkeys(("warp_size", "max_threads_per_multi_processor"), 1),
        **dict.fromkeys(("is_integrated", "is_multi_gpu_board", "L2_cache_size", "regs_per_multiprocessor"), 0),
        gcnArchName="",
    )


def _substitute_classes(record: Record) -> None:
    """Put classes of ours in place of those that need a GPU, and let their use be told."""
    for owner, name, stand_in in (
        *(("torch.cuda", name, CpuStream) for name in ("Stream", "ExternalStream")),
        ("torch.cuda", "Event", CpuEvent),
        *(("torch.cuda", name, CpuContext) for name in ("device", "device_of", "stream", "StreamContext")),
        ("torch.cuda", "_DeviceGuard", CpuContext),
        ("torch.accelerator", "device_index", CpuContext),
        ("torch.cuda.nvtx", "range", CpuRange),
        ("torch.cuda.profiler", "profile", CpuRange),
        ("torch.autograd.profiler", "emit_nvtx", CpuRange),
        *(("torch.cuda", name, NoGraph) for name in ("CUDAGraph", "graph")),
    ):
        original = getattr(_find(owner), name, None)
        if original is not None:
            replacement = stand_in_class(original, _told(stand_in, f"{owner}.{name}", record), also=(stand_in,))
            setattr(_find(owner), name, replacement)
            replace_copies("torch.cuda", name, original, replacement)


def _told(stand_in: type, name: str, record: Record) -> Callable[..., Any]:
    """Return what makes an object of the stand-in and tells it."""

    def make(*args: Any, **kwargs: Any) -> Any:
        if stand_in is NoGraph:
            record.unsupported(name)
        else:
            record.mapped(f"{name} is of the CPU")
        return stand_in(*args, **kwargs)

    return make


_LEGACY_TYPES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")


def _substitute_attributes(record: Record) -> None:
    """Let attributes read as they would on a GPU: legacy tensor types, generators, versions."""
    types_ = {f"{name}Tensor": getattr(torch, f"{name}Tensor") for name in _LEGACY_TYPES}
    _watch(torch.cuda, "torch.cuda", types_, record)
    _watch(torch.cuda, "torch.cuda", {"default_generators": (torch.default_generator,)}, record)
    _watch(torch.version, "torch.version", {"cuda": _VERSIONS["cuda"]}, record)


def _watch(module: types.ModuleType, owner: str, values: dict[str, Any], record: Record) -> None:
    watch_attributes(
        module,
        {
            name: (value, functools.partial(record.mapped, f"{owner}.{name} answers for the CPU"))
            for name, value in values.items()
        },
    )


def _report_the_rest(record: Record) -> None:
    """Name the use of every other function of torch.cuda; it then does what it does without a GPU."""

    def told(original: Any, what: str) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not called_by_torch():
                record.unsupported(what)
            return original(*args, **kwargs)

        return call

    for name, value in list(vars(torch.cuda).items()):
        ours = getattr(value, "__code__", None) is not None and value.__code__.co_filename == __file__
        if isinstance(value, types.FunctionType) and not name.startswith("_") and not ours:
            setattr(torch.cuda, name, told(value, f"torch.cuda.{name}"))
