"""How long a search takes in process, at the real size and at larger ones."""

from __future__ import annotations

from fsdp_mcp.index import build_index
from fsdp_mcp.index_store import read_search
from tools.bench.figure import Figure
from tools.bench.questions import QUESTIONS
from tools.eval import measure_latency, resized

_BUDGET_SECTIONS = 5_000
_LARGE_SECTIONS = 50_000
_P50_BUDGET_MS = 3
_P99_BUDGET_MS = 15


def measure_search(*, quick: bool) -> list[Figure]:
    """Return the median and the 99th percentile of search_docs at several sizes of the index."""
    index = read_search(build_index())
    assert index is not None
    sizes = [len(index), _BUDGET_SECTIONS, *([] if quick else [_LARGE_SECTIONS])]
    figures = []
    for sections in sizes:
        latency = measure_latency(resized(index, sections), QUESTIONS, rounds=4 if quick else 20)
        bound = sections == _BUDGET_SECTIONS
        note = f"{latency.calls} calls of {len(QUESTIONS)} questions; processor time"
        name = f"{sections:,} sections"
        figures += [
            Figure(
                "search in process",
                f"p50, {name}",
                latency.p50_cpu_ms,
                "ms",
                budget=_P50_BUDGET_MS if bound else None,
                note=f"{note} (by the clock {latency.p50_ms:g} ms)",
            ),
            Figure(
                "search in process",
                f"p99, {name}",
                latency.p99_cpu_ms,
                "ms",
                budget=_P99_BUDGET_MS if bound else None,
                note=f"{note} (by the clock {latency.p99_ms:g} ms)",
            ),
        ]
    return figures
