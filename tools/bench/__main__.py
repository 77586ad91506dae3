"""Prints the budgets as measured here and now: `python -m tools.bench [--quick] [--json] [--only GROUP]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from rich.console import Console

from fsdp_mcp.index import build_index
from tools.bench.diagnosing import measure_diagnosing
from tools.bench.figure import Figure, table_of
from tools.bench.handshake import measure_handshake, measure_memory
from tools.bench.indexing import measure_command, measure_index
from tools.bench.ranks import measure_ranks
from tools.bench.searching import measure_search
from tools.bench.throughput import measure_throughput
from tools.bench.tokens import measure_tokens

_MEASURES: dict[str, Callable[..., list[Figure]]] = {
    "handshake": measure_handshake,
    "memory": measure_memory,
    "command": measure_command,
    "index": measure_index,
    "search": measure_search,
    "http": measure_throughput,
    "ranks": measure_ranks,
    "logs": measure_diagnosing,
    "tokens": measure_tokens,
}


def main() -> int:
    """Measure what the command line asks for, one thing after the other, and print it."""
    parser = argparse.ArgumentParser("python -m tools.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs, no 50,000 sections")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", action="append", choices=tuple(_MEASURES), help="measure only this; repeat for more")
    options = parser.parse_args()
    progress = Console(stderr=True)
    build_index()
    figures: list[Figure] = []
    for name in options.only or _MEASURES:
        started = time.perf_counter()
        figures += _MEASURES[name](quick=options.quick)
        progress.print(f"[dim]{name}: measured in {time.perf_counter() - started:.0f} s[/]")
    if options.json:
        print(json.dumps({"figures": [figure.as_dict() for figure in figures]}, indent=1))
    else:
        Console(width=max(Console().width, 150)).print(table_of(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
