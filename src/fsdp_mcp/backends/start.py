"""Writes the code that each process runs to start the chosen back end."""

from __future__ import annotations

from fsdp_mcp.backends.case import BackendRow, Case, accelerator_row, parse_version

_END = ["# ... train ...", "dist.destroy_process_group()"]


def start_code(case: Case, main: BackendRow, backend: str, *, gloo_beside: bool) -> str:
    """Return Python that initialises and shuts down the group; `gloo_beside` adds a group for host-side barriers."""
    device = accelerator_row(case.accelerator).device
    imports = ["import torch.distributed as dist"]
    setup = []
    if device == "mps":
        imports.insert(0, "import torch")
        setup = ['device = torch.device("mps")  # compute here; .cpu() before a collective']
    elif device != "cpu":
        imports[:0] = ["import os", "", "import torch"]
        setup = _bind_device(device, case.processes_per_device)
    if main.package:
        imports.append(f"import {main.package}  # registers the backend")
    start = [_init_line(case, main, backend, native=device in main.devices)]
    if gloo_beside:
        start.append('host_group = dist.new_group(backend="gloo")  # for dist.monitored_barrier(group=host_group)')
    return "\n".join([_launch_line(case, main), *imports, "", *setup, *start, *_END]) + "\n"


def _launch_line(case: Case, main: BackendRow) -> str:
    """Return a comment that says how the file is started."""
    if main.name == "mpi":
        return f"# mpirun -n {case.nodes * case.processes_per_node} python train.py"
    nodes = (
        f"--nnodes={case.nodes} --rdzv-backend=c10d --rdzv-endpoint=HOST:29400" if case.nodes > 1 else "--standalone"
    )
    return f"# torchrun {nodes} --nproc-per-node={case.processes_per_node} train.py"


def _bind_device(device: str, processes_per_device: int) -> list[str]:
    share = f" // {processes_per_device}" if processes_per_device > 1 else ""
    return [
        f'device = torch.device("{device}", int(os.environ["LOCAL_RANK"]){share})',
        f"torch.{device}.set_device(device)",
    ]


def _init_line(case: Case, main: BackendRow, backend: str, *, native: bool) -> str:
    if main.name == "mpi":
        return 'dist.init_process_group("mpi")  # mpirun gives rank and world size'
    bound = native and main.name != "gloo" and _takes_device_id(case)
    return f'dist.init_process_group("{backend}"{", device_id=device" if bound else ""})'


def _takes_device_id(case: Case) -> bool:
    since = accelerator_row(case.accelerator).device_id_since
    return since is not None and (case.torch is None or case.torch >= parse_version(since))
