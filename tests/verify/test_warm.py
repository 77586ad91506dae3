"""The warm process: what is forked from it works, and it leaves nothing behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from living_processes import children_of, command_of, wait_until_ended

from fsdp_mcp.run_report import RunReport
from fsdp_mcp.verify import warm
from fsdp_mcp.verify.run import run_on_gloo

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux forks warm processes"),
]
SHORT = (
    "import os, torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\nprint(os.environ['RANK'])"
)


@pytest.fixture(scope="module", autouse=True)
def started() -> Iterator[None]:
    """Start a warm process for this file, all of it imported."""
    run_on_gloo("import torch.distributed.fsdp, torch._dynamo", world_size=1)
    yield
    warm.end()


def warm_process(server: int) -> int:
    """Return the number of the one warm process of a server."""
    (found,) = [pid for pid in children_of(server) if "rank_side.template" in command_of(pid)]
    return found


def held(temporary: Path) -> dict[str, object]:
    """Return what a run may leak."""
    me = os.getpid()
    template = warm_process(me)
    return {
        "our files": _open_files(me),
        "its files": _open_files(template),
        "its children": children_of(template),
        "warm process": template,
        "scratch folders": list(temporary.iterdir()),
    }


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def outputs(report: RunReport) -> list[str]:
    return [rank.output for rank in report.ranks]


def test_the_first_run_is_cold_and_the_next_ones_are_warm() -> None:
    warm.end()
    assert [run_on_gloo(SHORT).warm for _ in range(3)] == [False, True, True]


@pytest.mark.parametrize(
    ("runs", "at_once"), [(20, 2), pytest.param(200, 4, marks=pytest.mark.nightly)], ids=["quick", "long"]
)
def test_many_runs_leak_nothing(runs: int, at_once: int, temporary: Path) -> None:
    run_on_gloo(SHORT)
    before = held(temporary)
    with ThreadPoolExecutor(at_once) as pool:
        reports = list(pool.map(lambda _: run_on_gloo(SHORT), range(runs)))
    assert [outputs(report) for report in reports] == [["0\n", "1\n"]] * runs
    assert held(temporary) == before


def test_ranks_forked_from_it_multiply_with_two_threads() -> None:
    code = """
import torch, torch.distributed as dist
torch.set_num_threads(2)
dist.init_process_group("gloo")
product = torch.ones(2000, 2000) @ torch.ones(2000, 2000)
dist.all_reduce(product)
print(torch.get_num_threads(), product.sum().item())
"""
    report = run_on_gloo(code)
    assert (report.warm, outputs(report)) == (True, ["2 16000000000.0\n"] * 2)


def test_ranks_forked_from_it_backpropagate_with_two_threads() -> None:
    code = """
import torch
torch.set_num_threads(2)
weight = torch.ones(1000, 1000, requires_grad=True)
(torch.ones(2000, 1000) @ weight).sum().backward()
print(torch.get_num_threads(), weight.grad.sum().item())
"""
    assert outputs(run_on_gloo(code)) == ["2 2000000000.0\n"] * 2


def test_a_broken_warm_process_is_replaced() -> None:
    run_on_gloo(SHORT)
    broken = warm_process(os.getpid())
    os.kill(broken, signal.SIGKILL)
    assert wait_until_ended({broken}, seconds=20)
    report = run_on_gloo(SHORT)
    assert (report.ok, warm_process(os.getpid()) != broken) == (True, True)


def test_a_run_outlives_the_warm_process_that_it_was_forked_from(tmp_path: Path) -> None:
    template = warm_process(os.getpid())
    up, go = tmp_path / "up", tmp_path / "go"
    for fifo in (up, go):
        os.mkfifo(fifo)
    code = f"open({str(up)!r}, 'w').close()\nopen({str(go)!r}).close()\nprint('done')"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_on_gloo, code, world_size=1)
        up.open().close()
        os.kill(template, signal.SIGKILL)
        assert wait_until_ended({template}, seconds=20)
        go.open("w").close()
        assert outputs(running.result()) == ["done\n"]


def test_another_environment_gets_another_warm_process(monkeypatch: pytest.MonkeyPatch) -> None:
    run_on_gloo(SHORT)
    before = warm_process(os.getpid())
    monkeypatch.setenv("LC_PAPER", "C")
    report = run_on_gloo("import os\nprint(os.environ['LC_PAPER'])", world_size=1)
    assert (outputs(report), report.warm, warm_process(os.getpid()) != before) == (["C\n"], False, True)


def test_a_script_that_sets_what_torch_reads_at_import_runs_cold() -> None:
    report = run_on_gloo("import os\nos.environ['TORCH_LOGS'] = 'dynamo'\nimport torch", world_size=1)
    assert (report.ok, report.warm) == (True, False)


def test_it_ends_with_a_killed_server() -> None:
    server = """
import sys
from fsdp_mcp.verify.run import run_on_gloo
print(run_on_gloo("print(1)", world_size=1).ok, flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", server], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    with process.stdin, process.stdout:
        assert process.stdout.readline() == b"True\n"
        template = warm_process(process.pid)
        process.kill()
        process.wait()
        assert wait_until_ended({template}, seconds=60)
