"""Streams, events, graphs and device contexts of CUDA on a CPU, which is done with everything when it is asked."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch


class CpuStream:
    """A stream on which everything is done by the time it is asked for."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    priority = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cpu")

    def __enter__(self) -> CpuStream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuStream)

    def __hash__(self) -> int:
        return 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the bounds of a stream's priority."""
        return 0, 0

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
        self.device = torch.device("cpu")

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


class CpuContext:
    """A context that selects a device or a stream, of which a CPU has one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.idx = self.prev_idx = 0

    def __enter__(self) -> CpuContext:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class CpuRange(contextlib.ContextDecorator):
    """A named range of a profile, as a context or a decorator."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def __enter__(self) -> CpuRange:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class NoGraph:
    """Refuses to be captured: a replay would have to run again what Python ran once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA graphs have no meaning on a CPU: run this part without capturing it.")


class CudaRuntime:
    """What `torch.cuda.cudart()` returns: every function does nothing and returns success."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0
