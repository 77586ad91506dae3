"""Starts the servers under test and talks to them without an SDK, so that the client's cost stays small and equal."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OURS = (sys.executable, "-m", "fsdp_mcp")
BARE = (sys.executable, str(Path(__file__).with_name("bare_server.py")))
_START_SECONDS = 30


def environment() -> dict[str, str]:
    """Return the environment for children: bytecode is kept, as where the package is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def processor_seconds(pid: int) -> float:
    """Return the processor time of all living threads of a process so far; Linux only."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9


def family_processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of its living descendants so far; Linux only."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for each in lists for child in each.read_text(encoding="ascii").split()]
    return processor_seconds(pid) + sum(family_processor_seconds(child) for child in children)


def resident_mb(pid: int) -> tuple[float, float]:
    """Return the memory of a process now and at its peak, in MB; Linux only."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    now, peak = (int(lines[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return now, peak


class StdioServer:
    """A stdio server as a child process, spoken to in JSON-RPC lines; leaving the block ends it."""

    def __init__(self, command: Sequence[str]) -> None:
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            cwd=ROOT,
        )
        self.pid = self._process.pid
        self._last_id = 0

    def __enter__(self) -> StdioServer:
        """Return the running server."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the server."""
        self._process.kill()
        self._process.communicate()

    def request(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the result of one request; other messages that come before it are dropped."""
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": parameters})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._last_id:
                result: dict[str, Any] = message["result"]
                return result
        raise RuntimeError(f"The server ended before it answered {method}.")

    def handshake(self) -> None:
        """Open a session of the handshake era."""
        client = {"name": "bench", "version": "0"}
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self._send({"method": "notifications/initialized"})

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Return the text that a tool answers."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        text: str = result["content"][0]["text"]
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {text}")
        return text

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


@contextmanager
def http_server(command: Sequence[str], *, port: int) -> Iterator[int]:
    """Run a command that serves HTTP at `port` of loopback until the block is left; give its process number."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    try:
        _wait_for(port, process)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"Nothing serves port {port}.")


def free_port() -> int:
    """Return a TCP port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
