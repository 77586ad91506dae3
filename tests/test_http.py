"""A real HTTP service: all tools, both eras, the token, hosts, limits, and cancellation."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from test_stdio import BOTH_ERAS, only_the_warm_one, sleepers, text_of, wait_until

TOKEN = "a-token-for-tests"


@contextlib.contextmanager
def serving(*options: str, token: str = "") -> Iterator[int]:
    """Start the service on a free port, yield the port, and end it with SIGTERM."""
    server = subprocess.Popen(
        [sys.executable, "-m", "fsdp_mcp", "serve", "--transport", "http", "--port", "0", *options],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "FSDP_MCP_TOKEN": token},
    )
    try:
        port = int(re.search(r":(\d+)/mcp", server.stderr.readline()).group(1))
        assert wait_until(lambda: answers_health(port))
        yield port
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=30)


def answers_health(port: int) -> bool:
    with contextlib.suppress(OSError):
        return request(port, "GET", "/health")[0] == 200
    return False


def request(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection.request(method, path, body, {**sent, **{k.replace("_", "-"): v for k, v in headers.items()}})
    answer = connection.getresponse()
    status, content = answer.status, answer.read()
    connection.close()
    return status, content


@contextlib.asynccontextmanager
async def connect(port: int, era: str, token: str | None = None) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=300) as http_client:
        transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http_client)
        async with Client(transport, mode=era, read_timeout_seconds=300) as client:
            yield client


@pytest.mark.anyio
@pytest.mark.ranks
@BOTH_ERAS
async def test_a_client_uses_every_tool(era):
    with serving("--structured", "--allow-run") as port:
        async with connect(port, era) as client:
            found = await client.call_tool("search_docs", {"query": "which backend for CPU tensors"})
            page = await client.call_tool("read_doc", {"uri": found.structured_content["hits"][0]["uri"]})
            api = await client.call_tool("lookup_api", {"name": "fully_shard"})
            backend = await client.call_tool("recommend_backend", {"accelerator": "xpu"})
            code = await client.call_tool("generate_training_code", {"strategy": "ddp", "verify": False})
            report = await client.call_tool("run_on_gloo", {"code": "print('hello')", "world_size": 1})
    assert [text_of(answer) for answer in (found, page, api, backend, code, report) if answer.is_error] == []
    assert report.structured_content["ranks"][0]["output"].strip() == "hello"


@pytest.mark.anyio
@pytest.mark.ranks
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@BOTH_ERAS
async def test_cancelling_a_call_ends_its_ranks(tmp_path: Path, era):
    mark = tmp_path / "started"
    code = f"import time\nopen({str(mark)!r}, 'a').close()\ntime.sleep(300)\n"
    with serving("--allow-run") as port:
        before = set(sleepers("fsdp_mcp"))
        async with connect(port, era) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "run_on_gloo", {"code": code, "world_size": 1})
            assert await anyio.to_thread.run_sync(wait_until, mark.exists)
            group.cancel_scope.cancel()
        gone = await anyio.to_thread.run_sync(wait_until, lambda: only_the_warm_one(set(sleepers("fsdp_mcp")) - before))
    assert gone


@pytest.mark.anyio
async def test_the_token_the_host_and_the_size_of_a_request_are_checked():
    with serving(token=TOKEN) as port:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        without = request(port, "POST", "/mcp", b"{}")
        wrong = request(port, "POST", "/mcp", b"{}", Authorization="Bearer other")
        foreign = request(port, "POST", "/mcp", b"{}", Host="evil.example", **bearer)
        origin = request(port, "POST", "/mcp", b"{}", Origin="http://evil.example", **bearer)
        large = request(port, "POST", "/mcp", b" " * (5 << 20), **bearer)
        garbage = request(port, "POST", "/mcp", b"not JSON", **bearer)
        async with connect(port, "legacy", TOKEN) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
    statuses = [status for status, _ in (without, wrong, foreign, origin, large, garbage)]
    assert statuses == [401, 401, 421, 403, 413, 400]
    assert b"Authorization: Bearer" in without[1]
    assert "run_on_gloo" not in tools


@pytest.mark.anyio
@BOTH_ERAS
async def test_two_workers_serve_clients_of_both_eras(era):
    with serving("--workers", "2", token=TOKEN) as port:
        async with connect(port, era, TOKEN) as client:
            answers = [await client.call_tool("recommend_backend", {"accelerator": "cpu"}) for _ in range(10)]
    assert not any(answer.is_error for answer in answers)


def test_the_health_check_needs_no_token():
    with serving(token=TOKEN) as port:
        status, body = request(port, "GET", "/health")
    assert (status, json.loads(body)["status"]) == (200, "ok")


def _refusal(*options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "fsdp_mcp", "serve", "--transport", "http", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    return done.returncode, done.stderr


def test_a_port_in_use_is_an_error_of_the_environment():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, message = _refusal("--port", str(port))
    assert status == 3
    assert f"Port {port} on 127.0.0.1 cannot be bound" in message


def test_another_address_than_loopback_needs_a_token():
    status, message = _refusal("--host", "0.0.0.0", "--port", "0")
    assert status == 2
    assert "a token is needed" in message


def test_an_empty_token_file_is_refused(tmp_path):
    (tmp_path / "token").write_text("\n", encoding="utf-8")
    status, message = _refusal("--token-file", str(tmp_path / "token"))
    assert (status, "is empty" in message) == (2, True)


@pytest.mark.parametrize("option", [("--port", "99999"), ("--port", "-1"), ("--workers", "0")], ids=" ".join)
def test_a_port_or_number_of_workers_that_cannot_be_is_refused_by_its_value(option):
    status, message = _refusal(*option)
    assert status == 2
    assert f"{option[0]}: got {option[1]}, expected" in message
