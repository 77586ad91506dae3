"""How fast diagnose_log reads, and whether more failure pages make it slower."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Iterator, Sequence

from fsdp_mcp.diagnose.page import FailurePage, failure_pages
from fsdp_mcp.diagnose.reading import RawLine
from fsdp_mcp.diagnose.scan import matcher_of, scan
from tools.bench.figure import Figure

_MB = 100
_BUDGET_SECONDS = 10
_BUDGET_MB = 300
_MANY_PAGES = 1_500
_RANKS = 512
_WORDS = ("loader", "cache", "worker", "shard", "step", "layer", "model", "batch", "epoch", "queue", "tensor", "token")


def measure_diagnosing(*, quick: bool) -> list[Figure]:
    """Return the time and memory for 100 MB of a healthy log of 512 ranks, with our pages and with 1,500."""
    megabytes = 5 if quick else 20
    pages = failure_pages()
    ours, many = (_seconds(each, megabytes) for each in (pages, [*pages, *_synthetic(_MANY_PAGES - len(pages))]))
    group, scale = "diagnose_log", _MB / megabytes
    note = f"processor time for {megabytes} MB of lines, scaled"
    return [
        Figure(group, f"{_MB} MB, {len(pages)} pages", ours * scale, "s", budget=_BUDGET_SECONDS, note=note),
        Figure(group, f"{_MB} MB, {_MANY_PAGES:,} pages", many * scale, "s", reference=ours * scale, budget=1.5),
        Figure(
            group, "memory of a scan", _peak_mb(pages, megabytes), "MB", budget=_BUDGET_MB, note="peak by tracemalloc"
        ),
    ]


def _seconds(pages: Sequence[FailurePage], megabytes: int) -> float:
    matcher = matcher_of(pages)
    lines = list(_lines(megabytes))
    gc.collect()
    started = time.process_time()
    scan(lines, matcher)
    return time.process_time() - started


def _peak_mb(pages: Sequence[FailurePage], megabytes: int) -> float:
    matcher = matcher_of(pages)
    tracemalloc.start()
    scan(_lines(megabytes // 4), matcher)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def _lines(megabytes: int) -> Iterator[RawLine]:
    """Yield a healthy training log: progress, NCCL's channels, and free text that never repeats."""
    draw = random.Random(7)
    size = number = 0
    while size < megabytes * 1_000_000:
        number += 1
        rank = draw.randrange(_RANKS)
        text = (
            f"[rank{rank}]:[titan] 2025-04-10 14:20:11,031 - root - INFO - step: {number}  loss:  {draw.random():.4f}"
            f"  memory: {draw.random() * 60:.2f}GiB(77.27%)  tps: {draw.randint(10, 5000):,}",
            f"node-{rank // 8:02d}:{4000 + rank}:{4400 + rank} [{rank % 8}] NCCL INFO Channel 00/0 : {rank}[0] -> 1[1]"
            " via P2P/CUMEM",
            f"[rank{rank}]: {' '.join(draw.choices(_WORDS, k=14))}",
        )[number % 3]
        size += len(text) + 1
        yield RawLine("", number, text)


def _synthetic(count: int) -> list[FailurePage]:
    """Return pages with patterns of their own, of which some share their words with the log."""
    draw = random.Random(11)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [
        failure_pages()[0].model_copy(
            update={
                "id": f"synthetic-{number}",
                "signs": (),
                "match": (rf"{draw.choice(_WORDS)} {''.join(draw.choices(letters, k=9))} failed with (?P<code>\d+)",),
            }
        )
        for number in range(count)
    ]
