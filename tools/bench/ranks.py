"""How long run_on_gloo takes for two ranks of an FSDP2 script, against torchrun on the same script."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.bench.figure import Figure
from tools.bench.processes import OURS, StdioServer, environment

_BUDGET = 0.1
_SCRIPT = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
fully_shard(model[0], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    loss = model(torch.randn(16, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
dist.destroy_process_group()
"""


def measure_ranks(*, quick: bool) -> list[Figure]:
    """Return the times of the runs in one server: the first, which imports torch, the second and the third.

    Both take turns, so that they meet the machine in the same state, and the least time of each counts.
    """
    rounds = [(_time_torchrun(), *_time_ours(3)) for _ in range(1 if quick else 2)]
    torchrun, *ours = (min(times) for times in zip(*rounds, strict=True))
    against = "2 ranks, against torchrun on the same script"
    return [
        Figure(
            "run_on_gloo",
            name,
            seconds,
            "s",
            reference=torchrun,
            budget=_BUDGET if name == "third run" else None,
            note=against,
        )
        for name, seconds in zip(("first run, cold", "second run", "third run"), ours, strict=True)
    ]


def _time_ours(runs: int) -> list[float]:
    times = []
    with StdioServer((*OURS, "serve")) as server:
        server.handshake()
        for _ in range(runs):
            started = time.perf_counter()
            answer = server.call("run_on_gloo", {"code": _SCRIPT})
            times.append(time.perf_counter() - started)
            if not answer.startswith("**ok**"):
                raise RuntimeError(answer)
    return times


def _time_torchrun() -> float:
    with tempfile.TemporaryDirectory(prefix="fsdp-mcp-bench-") as folder:
        script = Path(folder) / "train.py"
        script.write_text(_SCRIPT, encoding="utf-8")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
        started = time.perf_counter()
        subprocess.run(
            command,
            env={**environment(), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return time.perf_counter() - started
