"""Stands in for the functions and classes of torch.cuda, torch.accelerator and NVTX that need a GPU.

Only callers outside of torch see the substitutes: torch itself asks `torch.cuda.is_available()` to decide whether it
may use CUDA, and would.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from .cuda_record import Record


def called_by_torch(depth: int = 2) -> bool:
    """Return whether the caller `depth` frames up is a module of torch."""
    name = str(sys._getframe(depth).f_globals.get("__name__", ""))
    return name == "torch" or name.startswith("torch.")


def substitute(record: Record) -> None:
    """Put the stand-ins in place."""
    for owner, names in _values().items():
        module = _find(owner)
        for name, value in names.items():
            _stand_in(module, owner, name, value, record.mapped)
    for name in _MEMORY_NUMBERS:
        _stand_in(torch.cuda, "torch.cuda", name, 0, record.unsupported)
    torch.cuda.Stream = CpuStream
    torch.cuda.Event = CpuEvent
    if not hasattr(dist, "ProcessGroupNCCL"):
        dist.ProcessGroupNCCL = SimpleNamespace(Options=SimpleNamespace)


_MEMORY_NUMBERS = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "utilization",
)


def _values() -> dict[str, dict[str, Any]]:
    """Return what each function answers on the CPU: a value, or a function of the same arguments."""
    index, count = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nothing = dict.fromkeys(
        [
            *("set_device", "set_stream", "synchronize", "init", "ipc_collect", "empty_cache"),
            *("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_accumulated_memory_stats"),
            "set_per_process_memory_fraction",
        ]
    )
    return {
        "torch.cuda": {
            **nothing,
            "is_available": True,
            "is_initialized": True,
            "is_bf16_supported": True,
            "device_count": count,
            "current_device": lambda: index,
            "mem_get_info": _memory,
            "memory_stats": lambda *_: {},
            "memory_summary": "",
            "get_device_name": "CPU in place of CUDA",
            "get_device_capability": (8, 0),
            "get_device_properties": _properties,
            "get_rng_state": lambda *_: torch.get_rng_state(),
            "get_rng_state_all": lambda: [torch.get_rng_state()],
            "set_rng_state": lambda state, *_: torch.set_rng_state(state),
            "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
            "current_stream": lambda *_: CpuStream(),
            "default_stream": lambda *_: CpuStream(),
            "stream": lambda *_: contextlib.nullcontext(),
            "device": lambda *_: contextlib.nullcontext(),
        },
        "torch.cuda.nvtx": {
            **dict.fromkeys(("range_push", "range_pop", "mark", "range_start", "range_end"), 0),
            "range": lambda *_, **__: contextlib.nullcontext(),
        },
        "torch.accelerator": {
            **dict.fromkeys(("set_device_index", "set_device_idx", "synchronize")),
            "is_available": True,
            "device_count": count,
            "current_device_index": lambda: index,
            "current_device_idx": lambda: index,
            "current_accelerator": lambda *_, **__: torch.device("cpu"),
        },
        "torch.distributed": {"is_nccl_available": True},
    }


def _find(path: str) -> Any:
    """Return the module, None in a torch that lacks it."""
    return functools.reduce(lambda found, name: getattr(found, name, None), path.split(".")[1:], torch)


def _stand_in(module: Any, owner: str, name: str, value: Any, note: Any) -> None:
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

    setattr(module, name, stand_in)


def _answer(value: Any) -> str:
    """Say what a stand-in does."""
    if value is None:
        return "does nothing"
    return "answers for the CPU" if callable(value) else f"reads {value!r}"


def _memory(*_: Any) -> tuple[int, int]:
    """Return the free and the total memory of the machine in bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def _properties(*_: Any) -> SimpleNamespace:
    processors = os.cpu_count() or 1
    return SimpleNamespace(
        name="CPU in place of CUDA", major=8, minor=0, total_memory=_memory()[1], multi_processor_count=processors
    )


class CpuStream:
    """A stream on which everything is done by the time it is asked for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cpu")

    def __enter__(self) -> CpuStream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def synchronize(self) -> None:
        """Do nothing: the CPU is done."""

    def query(self) -> bool:
        """Say that all work is done."""
        return True

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: the other stream is done."""

    def wait_event(self, event: Any) -> None:
        """Do nothing: the event has happened."""

    def record_event(self, event: CpuEvent | None = None) -> CpuEvent:
        """Return an event that has happened now."""
        event = event or CpuEvent()
        event.record()
        return event


class CpuEvent:
    """An event that happens when it is recorded, with its time."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._time = 0.0

    def record(self, stream: Any = None) -> None:
        """Take down the time."""
        self._time = time.perf_counter()

    def elapsed_time(self, end: CpuEvent) -> float:
        """Return the milliseconds from this event to `end`."""
        return (end._time - self._time) * 1000

    def synchronize(self) -> None:
        """Do nothing: it has happened."""

    def query(self) -> bool:
        """Say that it has happened."""
        return True

    def wait(self, stream: Any = None) -> None:
        """Do nothing: it has happened."""
