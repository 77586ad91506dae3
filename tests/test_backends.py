"""recommend_backend: what it decides, refuses and finds, and whether the tables agree with torch."""

import ast
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_mcp.backends import BackendAdvice, machine, recommend_backend
from fsdp_mcp.backends.case import Case, CollectiveRow, NoteRow, RuleRow, VariableRow, VariantRow, accelerator_row
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.errors import BadArgument
from fsdp_mcp.tokens import estimate_tokens
from fsdp_mcp.toolbox import find_tool

ACCELERATORS = ("cuda", "rocm", "xpu", "mps", "cpu")
IB_CPUS = {"accelerator": "cpu", "nodes": 2, "interconnect": "infiniband"}
NCCL = ["NCCL_SOCKET_IFNAME", "NCCL_DEBUG"]
INTERCONNECTS = ("infiniband", "roce", "efa", "ethernet", "nvlink", "pcie")


@pytest.mark.parametrize(
    ("question", "backend"),
    [
        ({"accelerator": "cuda", "interconnect": "infiniband", "nodes": 4}, "nccl"),
        ({"accelerator": "cuda", "interconnect": "ethernet", "nodes": 4}, "nccl"),
        ({"accelerator": "cuda", "interconnect": "roce", "nodes": 2}, "nccl"),
        ({"accelerator": "cuda", "interconnect": "efa", "nodes": 2}, "nccl"),
        ({"accelerator": "cuda", "interconnect": "nvlink"}, "nccl"),
        ({"accelerator": "cuda", "processes_per_device": 2}, "gloo"),
        ({"accelerator": "cuda", "os": "windows"}, "gloo"),
        ({"accelerator": "rocm", "interconnect": "infiniband", "nodes": 2}, "nccl"),
        ({"accelerator": "rocm", "processes_per_device": 2}, "gloo"),
        ({"accelerator": "xpu"}, "xccl"),
        ({"accelerator": "xpu", "torch_version": "2.7.1"}, "ccl"),
        ({"accelerator": "xpu", "os": "windows"}, "gloo"),
        ({"accelerator": "mps"}, "gloo"),
        ({"accelerator": "cpu", "interconnect": "ethernet", "nodes": 2}, "gloo"),
        ({"accelerator": "cpu", "interconnect": "infiniband", "nodes": 2, "ip_over_ib": True}, "gloo"),
        ({"accelerator": "cpu", "interconnect": "infiniband", "nodes": 2, "ip_over_ib": False}, "mpi"),
        ({"accelerator": "cpu", "interconnect": "infiniband", "ip_over_ib": False}, "mpi"),
        ({"accelerator": "cpu", "os": "macos"}, "gloo"),
        ({"accelerator": "cuda", "collectives": ["cpu:all_reduce"]}, "cpu:gloo,cuda:nccl"),
        ({"accelerator": "rocm", "collectives": ["cpu:all_gather"]}, "cpu:gloo,cuda:nccl"),
        ({"accelerator": "xpu", "collectives": ["cpu:barrier"]}, "cpu:gloo,xpu:xccl"),
        ({"accelerator": "cpu", "collectives": ["cpu:all_reduce"]}, "gloo"),
    ],
)
def test_the_backend_follows_the_official_rules(question: dict[str, object], backend: str) -> None:
    assert recommend_backend(**{"torch_version": "2.13"} | question).backend == backend


@pytest.mark.parametrize(
    ("question", "wrong", "right"),
    [
        ({"accelerator": "cuda", "os": "macos"}, "no NCCL", "accelerator='mps' or 'cpu'"),
        ({"accelerator": "mps", "os": "windows"}, "macOS only", "os='macos'"),
        ({"accelerator": "rocm", "os": "windows"}, "Linux only", "os='linux'"),
        ({"accelerator": "cuda", "interconnect": "efa", "os": "windows"}, "aws-ofi-nccl", "interconnect='ethernet'"),
        ({"accelerator": "cpu", "interconnect": "nvlink"}, "NVIDIA GPUs only", "interconnect='pcie'"),
        ({"accelerator": "mps", "interconnect": "infiniband"}, "Linux", "interconnect='ethernet'"),
        ({"accelerator": "cpu", "nodes": 0}, "got 0", "nodes=1"),
        ({"accelerator": "cpu", "devices_per_node": -1}, "got -1", "devices_per_node=1"),
        ({"accelerator": "cuda", "processes_per_device": 0}, "got 0", "processes_per_device=1"),
        ({"accelerator": "cuda", "collectives": ["all_to_al"]}, "'all_to_al'", "'all_to_all'"),
        ({"accelerator": "cuda", "collectives": ["gpu:all_reduce"]}, "'gpu:all_reduce'", "cpu:NAME"),
        ({"accelerator": "cuda", "torch_version": "new"}, "'new'", "X.Y"),
        ({"accelerator": "cuda", "torch_version": "1.13"}, "'1.13'", "2.0 or later"),
    ],
)
def test_nonsense_is_answered_with_what_is_wrong_and_what_would_be_right(
    question: dict[str, object], wrong: str, right: str
) -> None:
    with pytest.raises(BadArgument) as caught:
        recommend_backend(**question)
    assert [part for part in (wrong, right) if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ({"accelerator": "cuda", "processes_per_device": 2}, "exclusive access"),
        (
            {"accelerator": "cuda", "processes_per_device": 2, "collectives": ["isend"]},
            "send on cuda tensors",
        ),
        ({"accelerator": "mps", "nodes": 2, "interconnect": "ethernet"}, "Several Macs"),
        ({"accelerator": "cuda", "nodes": 2, "interconnect": "nvlink"}, "inside a machine"),
        ({"accelerator": "cuda", "nodes": 2, "interconnect": "ethernet", "ip_over_ib": True}, "ignored"),
        ({**IB_CPUS}, "Unknown whether IP over InfiniBand"),
        ({**IB_CPUS, "ip_over_ib": False}, "build torch from source"),
        ({**IB_CPUS, "ip_over_ib": False, "collectives": ["reduce_scatter"]}, "reduce_scatter on cpu tensors"),
        ({"accelerator": "cuda", "collectives": ["monitored_barrier"]}, "a group of Gloo alone"),
        ({"accelerator": "cuda", "os": "windows"}, "prototype"),
        ({"accelerator": "cuda"}, "ucc (experimental)"),
        ({"accelerator": "cuda", "interconnect": "infiniband"}, "the only backend that uses InfiniBand and GPUDirect"),
        ({"accelerator": "cuda", "interconnect": "infiniband"}, "infiniband joins machines"),
        ({"accelerator": "rocm"}, "RCCL"),
    ],
)
def test_limits_of_a_choice_are_told(question: dict[str, object], told: str) -> None:
    advice = recommend_backend(**{"torch_version": "2.13"} | question)
    assert told in " ".join(advice.reasons + advice.warnings)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ({"accelerator": "cuda", "interconnect": "infiniband"}, [*NCCL, "NCCL_IB_HCA"]),
        ({"accelerator": "rocm", "interconnect": "roce"}, [*NCCL, "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"]),
        ({"accelerator": "cuda", "interconnect": "efa"}, [*NCCL, "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA"]),
        ({"accelerator": "cpu", "interconnect": "ethernet"}, ["GLOO_SOCKET_IFNAME"]),
        ({"accelerator": "cpu", "interconnect": "infiniband", "ip_over_ib": False}, []),
        ({"accelerator": "xpu", "interconnect": "ethernet"}, ["CCL_ATL_TRANSPORT"]),
        ({"accelerator": "cuda", "interconnect": "ethernet", "os": "windows"}, ["GLOO_SOCKET_IFNAME", "USE_LIBUV"]),
        (
            {"accelerator": "cuda", "interconnect": "infiniband", "collectives": ["cpu:all_reduce"]},
            [*NCCL, "NCCL_IB_HCA", "GLOO_SOCKET_IFNAME"],
        ),
    ],
)
def test_variables_belong_to_the_library_in_use(question: dict[str, object], names: list[str]) -> None:
    advice = recommend_backend(nodes=2, torch_version="2.13", **question)
    assert sorted(variable.name for variable in advice.environment) == sorted(names)


@pytest.mark.parametrize(
    ("question", "launch"),
    [
        ({"accelerator": "cuda"}, "torchrun --standalone --nproc-per-node=8 train.py"),
        (
            {"accelerator": "cuda", "interconnect": "infiniband", "nodes": 4, "devices_per_node": 2},
            "torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 --nproc-per-node=2 train.py",
        ),
        ({"accelerator": "cuda", "processes_per_device": 2}, "torchrun --standalone --nproc-per-node=16 train.py"),
        ({**IB_CPUS, "ip_over_ib": False, "devices_per_node": 4}, "mpirun -n 8 python train.py"),
        ({"accelerator": "mps"}, "torchrun --standalone --nproc-per-node=1 train.py"),
    ],
)
def test_the_code_says_how_it_is_launched(question: dict[str, object], launch: str) -> None:
    assert recommend_backend(torch_version="2.13", **question).init_code.splitlines()[0] == f"# {launch}"


def accepted_answers() -> list[tuple[Case, BackendAdvice]]:
    """Answer every combination of the main arguments that is not refused."""
    found = []
    for accelerator, link, system, nodes, processes, torch in itertools.product(
        ACCELERATORS, INTERCONNECTS, ("linux", "windows", "macos"), (1, 2), (1, 2), ("2.5", "2.13")
    ):
        for ip_over_ib in (True, False, None) if link == "infiniband" else (None,):
            case = Case(accelerator, system, link, nodes, 8, processes, ip_over_ib, tuple(map(int, torch.split("."))))
            try:
                advice = recommend_backend(
                    accelerator,
                    link,
                    os=system,
                    nodes=nodes,
                    processes_per_device=processes,
                    ip_over_ib=ip_over_ib,
                    torch_version=torch,
                )
            except BadArgument:
                continue
            found.append((case, advice))
    return found


def test_every_answer_is_complete_and_its_code_compiles() -> None:
    collectives = [row.name for row in load_facts("collective_variants", VariantRow)]
    incomplete = [
        case
        for case, advice in accepted_answers()
        if not (advice.reasons and advice.sources and ast.parse(advice.init_code).body)
        or [item.collective for item in advice.capabilities] != collectives
    ]
    assert incomplete == []


def test_every_rule_decides_some_case() -> None:
    reasons = {advice.reasons[0] for _, advice in accepted_answers()}
    assert {row.reason for row in load_facts("backend_rules", RuleRow)} == reasons


def test_every_note_and_variable_is_told_in_some_case() -> None:
    asked = [advice for _, advice in accepted_answers()]
    asked += [recommend_backend(name, collectives=["cpu:all_reduce"], torch_version="2.13") for name in ACCELERATORS]
    told = {text for advice in asked for text in advice.reasons + advice.warnings}
    told |= {variable.why for advice in asked for variable in advice.environment}
    rows = [row.text for row in load_facts("backend_notes", NoteRow)]
    rows += [row.why for row in load_facts("network_variables", VariableRow)]
    assert [row for row in rows if row not in told] == []


def test_a_reply_is_short() -> None:
    assert max(estimate_tokens(advice.render()) for _, advice in accepted_answers()) <= 700


def test_the_tool_costs_few_tokens_in_the_tool_list() -> None:
    tool = find_tool("recommend_backend")
    text = tool.description + json.dumps(tool.input_schema(), separators=(",", ":"))
    assert estimate_tokens(text) <= 345


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


ROUTE = "Iface\tDestination\tGateway\nens5\t00000000\t0100000A\nens5\t0000000A\t00000000\n"


GPUS = "proc/driver/nvidia/gpus"
KFD = "sys/class/kfd/kfd/topology/nodes"
LINK = "sys/class/infiniband/mlx5_0/ports/1/link_layer"
CARD = "sys/class/drm/card1/device"
IB0 = "sys/class/net/ib0"


@pytest.mark.parametrize(
    ("files", "accelerator", "devices", "interconnect", "interface", "ip_over_ib"),
    [
        ({}, "cpu", 1, None, None, False),
        (
            {f"{GPUS}/0000:01/power": "", f"{GPUS}/0000:02/power": "", LINK: "InfiniBand\n", "proc/net/route": ROUTE},
            *("cuda", 2, "infiniband", "ens5", False),
        ),
        ({"dev/nvidia0": "", "dev/nvidiactl": "", LINK: "Ethernet\n"}, "cuda", 1, "roce", None, False),
        ({"dev/kfd": "", f"{KFD}/0/gpu_id": "0\n", f"{KFD}/1/gpu_id": "4711\n"}, "rocm", 1, None, None, False),
        ({f"{CARD}/vendor": "0x8086\n", f"{CARD}/class": "0x038000\n"}, "xpu", 1, None, None, False),
        ({f"{CARD}/vendor": "0x8086\n", f"{CARD}/class": "0x030000\n"}, "cpu", 1, None, None, False),
        ({f"{IB0}/type": "32\n", f"{IB0}/operstate": "up\n"}, "cpu", 1, None, "ib0", True),
        ({f"{IB0}/type": "32\n", f"{IB0}/operstate": "down\n"}, "cpu", 1, None, "ib0", False),
    ],
)
def test_a_linux_machine_is_known_by_its_files(
    tmp_path: Path,
    files: dict[str, str],
    accelerator: str,
    devices: int,
    interconnect: str | None,
    interface: str | None,
    ip_over_ib: bool,
) -> None:
    found = machine.look(write(tmp_path, files), system="Linux", machine="x86_64")
    assert (found.accelerator, found.devices, found.interconnect, found.interface, found.ip_over_ib) == (
        accelerator,
        devices,
        interconnect,
        interface,
        ip_over_ib,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_an_efa_adapter_is_known_by_its_driver(tmp_path: Path) -> None:
    write(tmp_path, {"sys/class/infiniband/rdmap0/ports/1/link_layer": "Unspecified\n", "drivers/efa/module": ""})
    (tmp_path / "sys/class/infiniband/rdmap0/device").mkdir()
    (tmp_path / "sys/class/infiniband/rdmap0/device/driver").symlink_to(tmp_path / "drivers/efa")
    found = machine.look(tmp_path, system="Linux", machine="x86_64")
    assert (found.interconnect, found.adapters) == ("efa", ("rdmap0",))


@pytest.mark.parametrize(
    ("system", "processor", "files", "accelerator"),
    [
        ("Darwin", "arm64", {}, "mps"),
        ("Darwin", "x86_64", {}, "cpu"),
        ("Windows", "AMD64", {"Windows/System32/nvcuda.dll": ""}, "cuda"),
        ("Windows", "AMD64", {}, "cpu"),
    ],
)
def test_a_mac_and_a_windows_machine_are_known(
    tmp_path: Path, system: str, processor: str, files: dict[str, str], accelerator: str
) -> None:
    assert machine.look(write(tmp_path, files), system=system, machine=processor).accelerator == accelerator


def test_without_arguments_the_answer_says_what_this_machine_has() -> None:
    here = machine.look()
    advice = recommend_backend()
    assert (advice.device, advice.reasons[0]) == (
        accelerator_row(here.accelerator).device,
        f"This machine: {here.accelerator_found}.",
    )


RUNS = Path(__file__).with_name("gloo_collectives.py")


@pytest.mark.ranks
def test_the_cpu_code_runs_and_gloo_does_what_its_table_says(tmp_path: Path) -> None:
    advice = recommend_backend("cpu", collectives=["monitored_barrier"], torch_version="2.13")
    program = tmp_path / "program.py"
    body = RUNS.read_text(encoding="utf-8")
    program.write_text(advice.init_code.replace("# ... train ...\n", f"{body}\n"), encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "REPORT": str(tmp_path / "report.json")}
    done = subprocess.run(launch, env=environment, capture_output=True, encoding="utf-8", timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    table = {row.name: row.cpu for row in load_facts("collectives", CollectiveRow) if row.backend == "gloo"}
    defaults = {name: recommend_backend(name, torch_version="2.13").backend for name in ("cuda", "xpu", "mps", "cpu")}
    assert report == {
        "collectives": {**table, "monitored_barrier of a mixed group": "no", "AVG": "yes", "PREMUL_SUM": "no"},
        "defaults": defaults,
    }
