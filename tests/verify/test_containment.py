"""What a run may not do, by kind of isolation. The fixture of this folder looks for what is left after each test."""

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context

import pytest
from _pytest.mark import ParameterSet

from fsdp_mcp import call
from fsdp_mcp.errors import Cancelled, EnvironmentProblem
from fsdp_mcp.lab import RankReport
from fsdp_mcp.run_report import RunReport
from fsdp_mcp.verify import warm
from fsdp_mcp.verify.rank_side import limits
from fsdp_mcp.verify.run import run_on_gloo

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and namespaces"),
]
KINDS = ("namespaces", "subreaper", "process_group")


def nightly(value: object) -> ParameterSet:
    """Return a parameter whose test is not part of `make test`."""
    return pytest.param(value, marks=pytest.mark.nightly)


on_every_kind = pytest.mark.parametrize("kind", KINDS)
mostly_warm = pytest.mark.parametrize("kind", [*KINDS[:2], nightly(KINDS[2])])  # which starts every rank anew


def run_isolated(kind: str, isolation: Callable[[str], None], code: str, **arguments: float) -> RunReport:
    """Run code with one kind of isolation; skip where the machine does not have it."""
    isolation(kind)
    report = run_on_gloo(code, **arguments)
    if report.isolation != kind:
        pytest.skip(f"this machine refuses {kind}")
    return report


def ends(report: RunReport) -> list[tuple[str, str | None]]:
    """Return the status of each rank and the kind of its error."""
    return [(rank.status, rank.error and rank.error.type) for rank in report.ranks]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["namespaces", "subreaper"])
def test_a_fork_bomb_is_ended(kind: str, isolation: Callable[[str], None]) -> None:
    code = "import os\nif os.environ['RANK'] == '0':\n    while True:\n        os.fork()\nimport time\ntime.sleep(1000)"
    report = run_isolated(kind, isolation, code)
    assert ends(report) == [("killed", "ProcessLimit"), ("killed", None)]


@pytest.mark.parametrize("kind", [nightly("namespaces"), nightly("subreaper"), "process_group"])
def test_many_children_of_one_rank_are_ended(kind: str, isolation: Callable[[str], None]) -> None:
    code = """
import os, time
for _ in range(300):
    if os.fork() == 0:
        break
time.sleep(1000)
"""
    report = run_isolated(kind, isolation, code, world_size=1)
    assert ends(report) == [("killed", "ProcessLimit")]


@mostly_warm
def test_memory_taken_by_many_processes_is_bounded(
    kind: str, isolation: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_SHARE", 500e6 / limits.free_memory_bytes())
    code = """
import os
if os.environ["RANK"] == "0":
    os.fork()
    taken = []
    for _ in range(100):
        taken.append(os.urandom(1 << 20) * 20)
import time
time.sleep(1000)
"""
    report = run_isolated(kind, isolation, code)
    assert ends(report) == [("killed", "MemoryLimit"), ("killed", None)]


@mostly_warm
def test_many_files_in_the_scratch_folder_are_bounded_in_sum(
    kind: str, isolation: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCRATCH_BYTES", 10 << 20)
    code = """
import itertools, os
for number in itertools.count():
    with open(os.environ["TMPDIR"] + f"/{number}", "wb") as file:
        file.write(bytes(1 << 20))
    if number > 20:
        import time
        time.sleep(1000)
"""
    report = run_isolated(kind, isolation, code, world_size=1)
    assert ends(report) == [("killed", "FileSizeLimit")]


@mostly_warm
def test_an_endless_printer_is_ended_and_its_output_bounded(kind: str, isolation: Callable[[str], None]) -> None:
    report = run_isolated(kind, isolation, "while True:\n    print('x' * 999)", world_size=1, timeout_seconds=2)
    rank = report.ranks[0]
    assert (rank.status, len(rank.output), rank.output_omitted_bytes > 0) == ("hung", 4000, True)


@on_every_kind
def test_ranks_that_ignore_every_signal_are_ended(kind: str, isolation: Callable[[str], None]) -> None:
    code = """
import signal, time
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(1000)
"""
    report = run_isolated(kind, isolation, code, timeout_seconds=1)
    assert [rank.status for rank in report.ranks] == ["hung", "hung"]


@mostly_warm
def test_a_stopped_rank_is_ended(kind: str, isolation: Callable[[str], None]) -> None:
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"
    report = run_isolated(kind, isolation, code, timeout_seconds=1)
    assert [rank.status for rank in report.ranks] == ["hung", "hung"]


def test_a_signal_to_every_process_reaches_the_run_alone(isolation: Callable[[str], None]) -> None:
    code = """
import os, signal, time
import torch.distributed as dist
assert os.getppid() == 1 and os.getpid() < 20, "this is no PID namespace"
dist.init_process_group("gloo")
time.sleep(0 if os.environ["RANK"] == "0" else 1000)
os.kill(-1, signal.SIGKILL)
os._exit(0)
"""
    report = run_isolated("namespaces", isolation, code)
    assert [(rank.status, rank.signal) for rank in report.ranks] == [("ok", None), ("error", "SIGKILL")]


def test_a_rank_that_kills_its_supervisor_ends_the_run_where_it_can(isolation: Callable[[str], None]) -> None:
    isolation("subreaper")
    with pytest.raises(EnvironmentProblem, match="ended"):
        run_on_gloo("import os, signal\nos.killpg(os.getpgid(os.getppid()), signal.SIGKILL)")


@pytest.fixture
def server_port() -> Iterator[int]:
    """Listen on loopback outside the run."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@mostly_warm
def test_only_namespaces_keep_the_network_away(kind: str, isolation: Callable[[str], None], server_port: int) -> None:
    code = f"import socket\nprint(socket.socket().connect_ex(('127.0.0.1', {server_port})) == 0)"
    reached = run_isolated(kind, isolation, code, world_size=1).ranks[0].output
    assert reached == f"{kind != 'namespaces'}\n"


@mostly_warm
def test_secrets_of_the_server_are_not_in_the_environment_of_a_run(
    kind: str, isolation: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "FSDP_MCP_TOKEN", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, "a secret")
    code = """
import os, subprocess
from pathlib import Path
print([name for name, value in os.environ.items() if value == "a secret"])
print(b"a secret" in subprocess.run(["env"], capture_output=True).stdout)
print([path for path in Path(f"/proc/{os.getppid()}").glob("environ") if b"a secret" in path.read_bytes()])
"""
    assert run_isolated(kind, isolation, code, world_size=1).ranks[0].output == "[]\nFalse\n[]\n"


def test_namespaces_hide_the_processes_outside(isolation: Callable[[str], None]) -> None:
    code = "import os\nprint([name for name in os.listdir('/proc') if name.isdigit() and int(name) > 20])"
    assert run_isolated("namespaces", isolation, code).ranks[0].output == "[]\n"


def cancel_at(look: int, code: str) -> None:
    """Run code for a caller who turns out to be gone when asked for the `look`-th time."""
    looks = iter(range(1, 1_000_000))

    def inside() -> list[RankReport]:
        call.enter(call.Caller(is_cancelled=lambda: next(looks) >= look))
        return list(run_on_gloo(code).ranks)

    with suppress(Cancelled):
        copy_context().run(inside)
        raise AssertionError("The run was not cancelled.")


NEVER_ENDS = "import time\nimport torch.distributed as dist\ndist.init_process_group('gloo')\ntime.sleep(1000)"


@pytest.mark.parametrize("look", [1, 2, 3, 4, 6, 9, 14])
def test_a_warm_run_is_cancelled_in_every_phase(look: int) -> None:
    cancel_at(look, NEVER_ENDS)


@pytest.mark.parametrize("look", [nightly(1), 2, nightly(5), 15])
def test_a_run_is_cancelled_while_torch_is_imported(look: int) -> None:
    warm.end()
    cancel_at(look, NEVER_ENDS)


@pytest.mark.parametrize("look", [nightly(1), nightly(3), 15])
def test_a_cold_run_is_cancelled_while_torch_is_imported(look: int) -> None:
    cancel_at(look, NEVER_ENDS + "\n# TORCH_LOGS is read at import")
