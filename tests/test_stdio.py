"""A real server process over stdio: all tools, both eras, and a clean end in every case."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

BOTH_ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}},
}


def server_parameters(*options: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-m", "fsdp_mcp", "serve", *options], env=dict(os.environ), cwd=Path.cwd()
    )


def text_of(result) -> str:
    return "\n".join(block.text for block in result.content)


@pytest.mark.anyio
@pytest.mark.ranks
@BOTH_ERAS
async def test_a_client_uses_every_tool(era):
    """The script that the generator hands over is what the runner runs."""
    async with Client(server_parameters("--structured"), mode=era, read_timeout_seconds=300) as client:
        found = await client.call_tool("search_docs", {"query": "which backend for CPU tensors"})
        page = await client.call_tool("read_doc", {"uri": found.structured_content["hits"][0]["uri"]})
        api = await client.call_tool("lookup_api", {"name": "fully_shard"})
        backend = await client.call_tool("recommend_backend", {"accelerator": "cpu", "nodes": 1})
        code = await client.call_tool("generate_training_code", {"strategy": "fsdp2", "verify": False})
        script = code.structured_content["files"][0]["content"]
        report = await client.call_tool("run_on_gloo", {"code": script, "arguments": ["--steps", "2"]})
    answers = [found, page, api, backend, code, report]
    assert [text_of(answer) for answer in answers if answer.is_error] == []
    assert api.structured_content["qualified_name"] == "torch.distributed.fsdp.fully_shard"
    assert backend.structured_content["backend"] == "gloo"
    assert report.structured_content["ok"], text_of(report)


def start(*options: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fsdp_mcp", "serve", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        cwd=cwd,
    )


def send(server: subprocess.Popen[str], message: object) -> None:
    server.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    server.stdin.flush()


def shake_hands(server: subprocess.Popen[str]) -> dict:
    send(server, INITIALIZE)
    answer = json.loads(server.stdout.readline())
    send(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    return answer


def sleepers(mark: str) -> list[int]:
    """Return the processes whose environment or command line carries the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def only_the_warm_one(processes: set[int]) -> bool:
    """Return whether nothing is left but the process that keeps torch imported for the next run."""
    return len(processes) <= 1


def wait_until(condition, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


END = {
    "stdin closes": lambda server: server.stdin.close(),
    "SIGTERM": lambda server: server.send_signal(signal.SIGTERM),
    "SIGINT": lambda server: server.send_signal(signal.SIGINT),
    "SIGKILL": lambda server: server.kill(),
}
STATUS = {"stdin closes": 0, "SIGTERM": 143, "SIGINT": 130, "SIGKILL": -9}


@pytest.mark.ranks
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("how", END)
def test_the_server_ends_with_its_ranks(tmp_path, how):
    mark = tmp_path / "started"
    code = f"import time\nopen({str(mark)!r}, 'a').close()\ntime.sleep(300)\n"
    server = start(cwd=tmp_path)
    before = set(sleepers("fsdp_mcp"))
    shake_hands(server)
    call = {"name": "run_on_gloo", "arguments": {"code": code, "world_size": 1}}
    send(server, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
    assert wait_until(mark.exists)
    assert set(sleepers("fsdp_mcp")) - before
    END[how](server)
    assert server.wait(timeout=20) == STATUS[how]
    assert wait_until(lambda: not set(sleepers("fsdp_mcp")) - before)
    for pipe in (server.stdin, server.stdout, server.stderr):
        pipe.close()


def test_garbage_and_unknown_methods_do_not_end_the_server(tmp_path):
    server = start(cwd=tmp_path)
    send(server, "this is not JSON")
    answer = shake_hands(server)
    while answer.get("id") != 1:
        answer = json.loads(server.stdout.readline())
    send(server, {"jsonrpc": "2.0", "id": 3, "method": "no/such/method"})
    send(server, {"jsonrpc": "2.0", "id": 4, "method": "ping"})
    answers = {}
    while 4 not in answers:
        message = json.loads(server.stdout.readline())
        answers[message.get("id")] = message
    server.communicate(timeout=20)
    assert answer["result"]["serverInfo"]["name"] == "fsdp-mcp"
    assert "error" in answers[3]
    assert answers[4]["result"] == {}


def test_a_log_line_says_which_torch_was_chosen_and_stdout_carries_protocol_only(tmp_path):
    server = start(cwd=tmp_path)
    shake_hands(server)
    line = server.stderr.readline()
    out, _ = server.communicate(timeout=60)
    assert "chosen by" in line
    assert [json.loads(line)["jsonrpc"] for line in out.splitlines()] == ["2.0"] * len(out.splitlines())


@pytest.mark.anyio
@pytest.mark.ranks
@BOTH_ERAS
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_cancelling_a_call_ends_its_ranks_and_the_server_lives_on(tmp_path, era):
    mark = tmp_path / "started"
    code = f"import time\nopen({str(mark)!r}, 'a').close()\ntime.sleep(300)\n"
    async with Client(server_parameters(), mode=era, read_timeout_seconds=120) as client:
        before = set(sleepers("fsdp_mcp"))
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "run_on_gloo", {"code": code, "world_size": 1})
            assert await anyio.to_thread.run_sync(wait_until, mark.exists)
            group.cancel_scope.cancel()
        gone = await anyio.to_thread.run_sync(wait_until, lambda: only_the_warm_one(set(sleepers("fsdp_mcp")) - before))
        alive = await client.call_tool("recommend_backend", {"accelerator": "cpu"})
    assert gone
    assert not alive.is_error
