"""run_on_gloo on real ranks: what it reports, and that nothing outlives a run."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path

import pytest
from living_processes import processes_that_mention, wait_until_ended

from fsdp_mcp import call
from fsdp_mcp.errors import Cancelled
from fsdp_mcp.lab import Program
from fsdp_mcp.run_report import RunReport
from fsdp_mcp.verify.run import run_on_gloo, run_ranks

pytestmark = pytest.mark.ranks
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and namespaces")
SCRIPTS = Path(__file__).parent / "scripts"

DOUBLE_FORK = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        time.sleep(1000)
    os._exit(0)
os.wait()
"""


def run_as(caller: call.Caller, code: str, **arguments: float) -> RunReport:
    """Call the tool on behalf of `caller`."""

    def inside() -> RunReport:
        call.enter(caller)
        return run_on_gloo(code, **arguments)

    return copy_context().run(inside)


def test_ranks_see_what_torchrun_sets_and_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "a secret")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "model.py").write_text("WIDTH = 8\n", encoding="utf-8")
    report = run_on_gloo(
        (SCRIPTS / "torchrun_view.py").read_text(encoding="utf-8"),
        nodes=2,
        arguments=["--steps", "3"],
        files={"data/seen.txt": "text of a file"},
        project_dir="project",
    )
    assert report.ok, report.render()
    view = json.loads(report.ranks[1].output.splitlines()[-1])
    assert view == {
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "secret": None,
        "home_is_private": True,
        "name": "__main__",
        "arguments": ["train.py", "--steps", "3"],
        "file": "text of a file",
        "width": 8,
        "falls": True,
        "threads": 2,
    }


def test_the_rank_that_raised_is_first_although_both_fail() -> None:
    report = run_on_gloo((SCRIPTS / "one_rank_raises.py").read_text(encoding="utf-8"))
    first = report.first_failure
    assert [rank.status for rank in report.ranks] == ["error", "error"]
    assert first is not None
    assert (first.rank, first.message, first.file, first.line) == (1, "ValueError: bad batch", "train.py", 11)
    assert 'raise ValueError("bad batch")' in report.render()


def test_ranks_that_hang_are_located_and_progress_is_told() -> None:
    told: list[str] = []
    caller = call.Caller(report=lambda done, total, message: told.append(message))
    report = run_as(caller, (SCRIPTS / "one_rank_sleeps.py").read_text(encoding="utf-8"), timeout_seconds=6)
    places = [(rank.status, rank.collective, rank.stuck_at and rank.stuck_at.code) for rank in report.ranks]
    assert places == [("hung", "all_reduce", "dist.all_reduce(tensor)"), ("hung", None, "time.sleep(1000)")]
    assert "2 ranks running" in told[-1]


def test_exits_and_crashes_are_told_apart() -> None:
    code = """
import ctypes, os, sys, time
rank = int(os.environ["RANK"])
if rank == 0:
    sys.exit(3)
if rank == 1:
    os._exit(4)
if rank == 2:
    ctypes.string_at(0)
time.sleep(1000)
"""
    report = run_on_gloo(code, world_size=4)
    ends = [(r.status, r.exit_code, r.signal, r.error and r.error.type, r.error and r.error.line) for r in report.ranks]
    assert ends == [
        ("error", 3, None, "SystemExit", 5),
        ("error", 4, None, "ExitStatus", None),
        ("error", None, "SIGSEGV", "Signal", 9),
        ("killed", None, None, None, None),
    ]


@on_linux
@pytest.mark.parametrize("kind", ["namespaces", "subreaper"])
def test_double_forked_children_that_ignore_sigterm_do_not_survive(kind: str, isolation: Callable[[str], None]) -> None:
    isolation(kind)
    report = run_on_gloo(DOUBLE_FORK)
    assert (report.ok, report.isolation) in {(True, kind), (True, "subreaper")}  # some machines refuse namespaces


@on_linux
def test_killing_the_group_of_the_parent_ends_the_rank_alone() -> None:
    code = "import os, signal\nos.killpg(os.getpgid(os.getppid()), signal.SIGKILL)"
    report = run_on_gloo(code, world_size=1)
    assert [(rank.status, rank.signal) for rank in report.ranks] == [("error", "SIGKILL")]


def test_output_is_bounded_and_counted() -> None:
    code = "print('x' * 3_000_000)\nprint('the end')"
    rank = run_on_gloo(code, world_size=1).ranks[0]
    assert (len(rank.output), rank.output[-8:], rank.output_omitted_bytes) == (4000, "the end\n", 2_996_009)


@on_linux
def test_memory_and_files_are_bounded() -> None:
    code = """
import os, torch
if os.environ["RANK"] == "0":
    torch.ones(1 << 40)
with open("big", "wb", buffering=0) as file:
    file.seek(3 << 30)
    file.write(b"x")
"""
    report = run_on_gloo(code)
    ends = [(rank.status, rank.error and rank.error.type, rank.error and rank.error.line) for rank in report.ranks]
    assert ends == [("killed", "MemoryLimit", 4), ("killed", "FileSizeLimit", 7)]


@on_linux
def test_too_many_processes_end_the_run() -> None:
    code = """
import os, time
if os.environ["RANK"] == "1":
    for _ in range(300):
        if os.fork() == 0:
            break
time.sleep(1000)
"""
    report = run_on_gloo(code)
    assert [(rank.status, rank.error and rank.error.type) for rank in report.ranks] == [
        ("killed", None),
        ("killed", "ProcessLimit"),
    ]


@on_linux
def test_cancelling_ends_all_ranks(temporary: Path) -> None:
    def both_are_up() -> bool:
        return len(list(temporary.glob("*/tmp/up*"))) == 2

    code = f"{DOUBLE_FORK}\nopen(os.environ['TMPDIR'] + '/up' + os.environ['RANK'], 'w')\ntime.sleep(1000)"
    with pytest.raises(Cancelled):
        run_as(call.Caller(is_cancelled=both_are_up), code)


@on_linux
def test_ranks_end_when_the_server_is_killed(tmp_path: Path, temporary: Path) -> None:
    up = tmp_path / "up"
    os.mkfifo(up)
    code = f"{DOUBLE_FORK}\nwith open({str(up)!r}, 'w') as up:\n    up.write('up')\ntime.sleep(1000)"
    server = f"""
import tempfile
tempfile.tempdir = {str(temporary)!r}
from fsdp_mcp.verify.run import run_on_gloo
run_on_gloo({code!r}, world_size=1)
"""
    process = subprocess.Popen([sys.executable, "-c", server])
    reader = os.open(up, os.O_RDONLY | os.O_NONBLOCK)
    assert select.select([reader], [], [], 120)[0], "the rank did not start"
    os.close(reader)
    left = processes_that_mention(f"{temporary}/fsdp-mcp-")
    process.kill()
    process.wait()
    assert len(left) >= 4  # keeper, supervisor, rank and daemon
    assert wait_until_ended(left, seconds=60)


def test_fresh_processes_work_where_nothing_can_be_isolated(isolation: Callable[[str], None]) -> None:
    isolation("process_group")
    code = (
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\nraise KeyError('k')"
    )
    report = run_on_gloo(code)
    ends = [(rank.status, rank.error and rank.error.type, rank.error and rank.error.line) for rank in report.ranks]
    assert (report.isolation, ends) == ("process_group", [("error", "KeyError", 4)] * 2)


def test_a_variable_that_torch_reads_at_import_has_its_effect() -> None:
    code = """
import os
os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
import torch.distributed as dist
print(dist.get_debug_level())
"""
    assert run_on_gloo(code, world_size=1).ranks[0].output == "DebugLevel.DETAIL\n"


def test_a_script_that_spawns_its_ranks_runs_as_one_process() -> None:
    report = run_on_gloo((SCRIPTS / "spawns_ranks.py").read_text(encoding="utf-8"), world_size=1)
    assert (report.ok, sorted(report.ranks[0].output.splitlines())) == (True, ["0 sees 3.0", "1 sees 3.0"])


def test_a_work_dir_is_kept_between_runs(tmp_path: Path) -> None:
    code = "from pathlib import Path\nstate = Path('state')\nprint(state.exists())\nstate.touch()"
    program = Program(files={"train.py": code}, world_size=1, work_dir=tmp_path)
    outputs = [run_ranks(program).ranks[0].output for _ in range(2)]
    assert (outputs, (tmp_path / "state").exists()) == (["False\n", "True\n"], True)


def test_a_script_of_the_project_runs_in_place_and_leaves_nothing_there(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "package").mkdir(parents=True)
    (project / "package" / "part.py").write_text("def fail():\n    return {}['missing']\n", encoding="utf-8")
    (project / "train.py").write_text("from package.part import fail\n\nfail()\n", encoding="utf-8")
    before = sorted(project.rglob("*"))
    report = run_on_gloo(path="project/train.py", world_size=1)
    error = report.ranks[0].error
    assert error is not None
    assert (error.type, error.file, error.line, error.code) == (
        "KeyError",
        "package/part.py",
        2,
        "return {}['missing']",
    )
    assert sorted(project.rglob("*")) == before


def test_a_ddp_script_written_for_cuda_runs_with_the_numerics_of_cuda() -> None:
    report = run_on_gloo((SCRIPTS / "ddp_on_cuda.py").read_text(encoding="utf-8"))
    assert report.ok, report.render()
    assert "dtype=torch.float16 half=torch.bfloat16 scale=65536.0 threads=1 peak=0\n" in report.ranks[1].output
    whats = {use.what for use in report.mapped}
    assert {'backend "nccl" -> "gloo" in init_process_group', 'GradScaler("cuda") -> "cpu"'} <= whats
    assert [use.what for use in report.unsupported] == ["torch.cuda.max_memory_allocated reads 0"]


def test_an_fsdp2_script_written_for_cuda_runs_unchanged() -> None:
    report = run_on_gloo((SCRIPTS / "fsdp2_on_cuda.py").read_text(encoding="utf-8"))
    assert report.ok, report.render()
    assert "falls=True mesh=cpu is_cuda=False\n" in report.ranks[0].output
    assert [(use.what, use.line) for use in report.unsupported] == [("Tensor.is_cuda is False", 37)]


def test_without_mapping_cuda_fails_as_it_does_on_this_torch() -> None:
    report = run_on_gloo("import torch\ntorch.zeros(1, device='cuda')", world_size=1, map_cuda_to_cpu=False)
    assert (report.ok, report.mapped) == (False, ())


def test_temporary_files_of_ranks_stay_in_the_scratch_folder(temporary: Path) -> None:
    code = "import os, tempfile\nopen(os.path.expanduser('~/x'), 'w')\nprint(tempfile.mkdtemp())\nos.chmod('.', 0)"
    rank = run_on_gloo(code, world_size=1).ranks[0]
    assert rank.status == "ok"
    assert rank.output.startswith(os.path.realpath(temporary))


def test_threads_and_exit_functions_of_a_rank_finish_before_it_ends() -> None:
    code = (
        "import atexit, sys, threading\n"
        "go = threading.Event()\n"
        "def finish():\n    go.wait()\n    print('thread')\n"
        "atexit.register(print, 'exit function')\n"
        "threading.Thread(target=finish).start()\n"
        "threading.Timer(0.1, go.set).start()\n"
        "print('script')\n"
        "sys.exit(0)\n"
    )
    report = run_on_gloo(code, world_size=1)
    assert (report.ok, report.ranks[0].output.split("\n")) == (True, ["script", "thread", "exit function", ""])


def test_ranks_without_a_seed_differ_and_one_that_ends_early_waits_until_all_have_joined() -> None:
    code = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
sys.stderr.write("10%\\r20%\\r")
print(torch.rand(1).item())
"""
    report = run_on_gloo(code, world_size=4)
    assert (report.ok, len({rank.output for rank in report.ranks})) == (True, 4), report.render()
    assert "10%" not in report.render()
