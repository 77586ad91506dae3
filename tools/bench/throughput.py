"""How many searches a second the HTTP service answers, against an echo tool on the bare SDK."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from tools.bench.figure import Figure
from tools.bench.processes import BARE, OURS, family_processor_seconds, free_port, http_server
from tools.bench.questions import QUESTIONS

_CONNECTIONS = 8
_BUDGET = 0.7
_SERVE = (*OURS, "serve", "--transport", "http")
_PROTOCOL = "2026-07-28"


@dataclass(frozen=True)
class Load:
    """What is asked of a server: a tool of the process `pid` at a port."""

    port: int
    tool: str
    pid: int


class Round(NamedTuple):
    """What a server did in one round: answers a second, and its own processor time for each in milliseconds."""

    per_second: float
    processor_ms: float


def measure_throughput(*, quick: bool) -> list[Figure]:
    """Return requests a second of the bare server, of ours, and of ours with two workers; rounds interleaved."""
    seconds, rounds = (1.0, 2) if quick else (2.0, 5)
    with ExitStack() as servers:
        loads = [
            _start(servers, BARE, "echo"),
            _start(servers, (*_SERVE, "--port"), "search_docs"),
            _start(servers, (*_SERVE, "--workers", "2", "--port"), "search_docs"),
        ]
        for load in loads:
            ask(load, seconds=1.0)  # The first search opens the index, in each worker.
        taken = [[ask(load, seconds=seconds) for load in loads] for _ in range(rounds)]
    bare, one, two = (_median(column) for column in zip(*taken, strict=True))
    how = f"{_CONNECTIONS} connections, median of {rounds} interleaved rounds"
    echo = f"against an echo tool on the bare SDK; {how}"
    return [
        Figure(
            "HTTP search", "one worker", one.per_second, "req/s", bare.per_second, _BUDGET, at_least=True, note=echo
        ),
        Figure(
            "HTTP search", "processor time of one", one.processor_ms, "ms", bare.processor_ms, 1 / _BUDGET, note=echo
        ),
        Figure(
            "HTTP search",
            "two workers",
            two.per_second,
            "req/s",
            one.per_second,
            1.0,
            at_least=True,
            note="against one worker; the load generator shares the cores",
        ),
    ]


def _start(servers: ExitStack, command: Sequence[str], tool: str) -> Load:
    port = free_port()
    pid = servers.enter_context(http_server((*command, str(port)), port=port))
    return Load(port, tool, pid)


def _median(rounds: Sequence[Round]) -> Round:
    return Round(*(statistics.median(column) for column in zip(*rounds, strict=True)))


def ask(load: Load, *, seconds: float, connections: int = _CONNECTIONS) -> Round:
    """Return what `connections` clients get answered in a time, each waiting for its answer before it asks again."""
    counts = [0] * connections
    failures: list[BaseException] = []
    started, before = time.perf_counter(), family_processor_seconds(load.pid)

    def client(number: int) -> None:
        try:
            counts[number] = _ask_until(started + seconds, load, first=number)
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            failures.append(error)

    _run_together(client, connections)
    if failures:
        raise failures[0]
    used = family_processor_seconds(load.pid) - before
    return Round(sum(counts) / (time.perf_counter() - started), used * 1e3 / max(sum(counts), 1))


def _run_together(client: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=client, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ask_until(stop: float, load: Load, *, first: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", load.port, timeout=60)
    bodies = _bodies(load.tool, QUESTIONS[first % len(QUESTIONS) :] + QUESTIONS[: first % len(QUESTIONS)])
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _PROTOCOL,
        "Mcp-Method": "tools/call",
        "Mcp-Name": load.tool,
    }
    asked = 0
    while time.perf_counter() < stop:
        connection.request("POST", "/mcp", bodies[asked % len(bodies)], headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200 or b'"isError":true' in answer or b'"result"' not in answer:
            raise RuntimeError(f"{load.tool}: status {response.status}: {answer[:300]!r}")
        asked += 1
    connection.close()
    return asked


def _bodies(tool: str, queries: Sequence[str]) -> list[bytes]:
    """Return the request of each query, as a client of the newest protocol sends it: no session, one message."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": _PROTOCOL,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    calls = [{"name": tool, "arguments": {"query": query}, "_meta": meta} for query in queries]
    return [json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() for call in calls]
