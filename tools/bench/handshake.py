"""How long a client waits for the answer to its first message, and what the server then weighs."""

from __future__ import annotations

import time

from tools.bench.figure import Figure
from tools.bench.processes import BARE, OURS, StdioServer, processor_seconds, resident_mb
from tools.bench.questions import QUESTIONS

_RUNS = 11
_BUDGET = 1.2
_MEMORY_BUDGET_MB = 250
_SERVE = (*OURS, "serve")


def measure_handshake(*, quick: bool) -> list[Figure]:
    """Return the least processor time and wall time from spawn to an answered handshake, runs interleaved."""
    bare, ours = [], []
    for _ in range(1 + (5 if quick else _RUNS)):
        bare.append(_time_once(BARE))
        ours.append(_time_once(_SERVE))
    names = ("processor time", "wall time")
    budgets = (_BUDGET, None)  # Processor time decides: the clock swings with whatever else runs.
    return [
        Figure(
            "handshake over stdio",
            names[column],
            min(run[column] for run in ours[1:]) * 1e3,
            "ms",
            reference=min(run[column] for run in bare[1:]) * 1e3,
            budget=budgets[column],
            note=f"spawn to answer, minimum of {len(ours) - 1} interleaved runs, against a bare server of the SDK",
        )
        for column in (0, 1)
    ]


def _time_once(command: tuple[str, ...]) -> tuple[float, float]:
    with StdioServer(command) as server:
        server.handshake()
        wall = time.perf_counter() - server.started
        return processor_seconds(server.pid), wall


def measure_memory(*, quick: bool) -> list[Figure]:
    """Return the memory of a server that has answered every kind of lookup."""
    del quick
    with StdioServer(BARE) as server:
        server.handshake()
        bare, _ = resident_mb(server.pid)
    with StdioServer(_SERVE) as server:
        server.handshake()
        for question in QUESTIONS:
            server.call("search_docs", {"query": question})
        server.call("lookup_api", {"name": "fully_shard"})
        server.call("recommend_backend", {"accelerator": "cuda"})
        now, peak = resident_mb(server.pid)
    return [
        Figure(
            "memory of the server", "index loaded", now, "MB", budget=_MEMORY_BUDGET_MB, note=f"bare: {bare:.0f} MB"
        ),
        Figure("memory of the server", "peak", peak, "MB"),
    ]
