"""Scripts written for CUDA run unchanged on CPU ranks, with CUDA's numerics, and what cannot run is named."""

import json
from pathlib import Path

import pytest

from fsdp_mcp.verify.run import run_on_gloo

pytestmark = pytest.mark.ranks
SCRIPTS = Path(__file__).parent / "scripts"


def text(name: str) -> str:
    """Return a script."""
    return (SCRIPTS / name).read_text(encoding="utf-8")


def test_calls_of_every_kind_run_on_the_cpu() -> None:
    report = run_on_gloo(text("cuda_calls.py"), world_size=1)
    assert (report.ok, report.ranks[0].output.splitlines()[-1:]) == (True, ["all ran"]), report.render()


def test_autocast_and_scaling_have_the_data_types_and_scales_of_cuda() -> None:
    report = run_on_gloo(text("cuda_numerics.py"), world_size=1)
    assert report.ok, report.render()
    assert json.loads(report.ranks[0].output.splitlines()[-1]) == {
        "torch.autocast": "float16",
        "torch.autocast bf16": "bfloat16",
        "torch.amp.autocast": "bfloat16",
        "torch.cuda.amp.autocast": "float16",
        "torch.cuda.amp.autocast bf16": "bfloat16",
        "disabled": "float32",
        "decorator": "float16",
        "custom_fwd": "float32",
        "backward": "float32",
        "asked": [True, "bfloat16"],
        "recomputed": ["bfloat16", "bfloat16"],
        "scales": [[65536.0, 0.5], [8.0, 0.5], [65536.0, 0.5]],
        "thread": "cpu",
    }
    assert {'autocast("cuda") -> "cpu" with torch.float16', 'GradScaler("cuda") -> "cpu"'} <= {
        use.what for use in report.mapped
    }


def test_what_has_no_meaning_on_a_cpu_is_named_with_its_line() -> None:
    code = """import torch

try:
    from flash_attn import flash_attn_func
except ImportError:
    flash_attn_func = None
device = torch.device("cuda")
x = torch.ones(1, device=device)
assert (device.type, str(torch.accelerator.current_accelerator())) == ("cuda", "cuda")
if x.is_cuda or x.device.type == "cuda":
    print("on a GPU")
peak = torch.cuda.max_memory_allocated()
torch.cuda.CUDAGraph()
"""
    report = run_on_gloo(code, world_size=1)
    assert [(use.what, use.line) for use in report.unsupported] == [
        ('a tensor is on "cpu" where its device is compared with a GPU', 10),
        ("import flash_attn: its kernels need a GPU", 4),
        ("Tensor.is_cuda is False", 10),
        ("torch.cuda.max_memory_allocated reads 0", 12),
        ("torch.cuda.CUDAGraph", 13),
    ]
    assert (report.ok, report.first_failure and report.first_failure.line) == (False, 13)


def test_mapping_holds_in_workers_and_in_spawned_ranks() -> None:
    report = run_on_gloo(text("cuda_in_other_processes.py"), world_size=1)
    assert report.ok, report.render()
    assert report.ranks[0].output.splitlines() == ["loaded [[0, 0], [1, 1]]", "trained on 2"]
    assert 'backend "nccl" -> "gloo" in init_process_group' in {use.what for use in report.mapped}


def test_synchronised_batch_norm_sees_the_batch_of_all_ranks() -> None:
    code = """
import torch, torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
torch.manual_seed(0)
x = torch.randn(4, 3, 5, device="cuda")
alone, together = nn.BatchNorm1d(3), nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3)).cuda()
together = nn.parallel.DistributedDataParallel(together, device_ids=[0])
mine = x[dist.get_rank() :: 2].requires_grad_()
whole = x.clone().requires_grad_()
out, expected = together(mine), alone(whole)
(out**3).sum().backward()
(expected**3).sum().backward()
for got, wanted in (
    (out, expected[dist.get_rank() :: 2]),
    (mine.grad, whole.grad[dist.get_rank() :: 2]),
    (together.module.running_var, alone.running_var),
    (together.module.weight.grad * 2, alone.weight.grad),
):
    torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)
"""
    report = run_on_gloo(code)
    assert report.ok, report.render()


def test_what_gloo_or_a_cpu_refuses_by_itself_runs_on_two_ranks() -> None:
    code = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _coalescing_manager
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2).cuda(), device_ids=[0])
model.register_comm_hook(None, bf16_compress_hook)
model(torch.ones(2, 2, device="cuda")).sum().backward()
assert dist.get_world_size(dist.split_group(split_ranks=[[0], [1]])) == 1
tensors = [torch.ones(1, device="cuda") for _ in range(2)]
with _coalescing_manager(device=torch.device("cuda"), async_ops=True) as waited:
    for tensor in tensors:
        dist.all_reduce(tensor)
waited.wait()
query = torch.randn(1, 2, 4, 8, device="cuda")
dist.broadcast(query, 0)
sharded = distribute_tensor(query, init_device_mesh("cuda", (2,)), [Shard(1)])
attention = nn.functional.scaled_dot_product_attention
torch.testing.assert_close(attention(sharded, sharded, sharded).full_tensor(), attention(query, query, query))
print([tensor.item() for tensor in tensors])
"""
    report = run_on_gloo(code)
    assert report.ok, report.render()
    assert report.ranks[0].output.splitlines()[-1] == "[2.0, 2.0]"


def test_a_shard_that_random_values_fill_alike_on_every_rank_is_told() -> None:
    code = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cuda", (2,))
with torch.device("meta"):
    model = torch.nn.Linear(4, 4, bias=False)
fully_shard(model, mesh=mesh)
model.to_empty(device="cuda")
torch.manual_seed(0)
model.reset_parameters()
print(model.weight.to_local().sum().item())
"""
    report = run_on_gloo(code)
    assert report.ok, report.render()
    assert report.ranks[0].output == report.ranks[1].output
    told = "random values of a DTensor: on the CPU every rank draws the same for its shard"
    assert [use.line for use in report.mapped if use.what == told] == [12]


def test_saving_goes_on_while_training_talks_and_a_step_that_a_scaler_skips_is_no_nan() -> None:
    code = """
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

dist.init_process_group("cpu:gloo,cuda:nccl")
assert dist.new_subgroups()[0].size() == 2
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).cuda(), device_ids=[0])
saving = dcp.async_save({"model": model.module.state_dict()}, checkpoint_id="one")
for fused in (False, True):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=fused)
    scaler = torch.amp.GradScaler("cuda")
    for step in range(10):
        loss = (model(torch.ones(2, 4, device="cuda")) * (1e36 if step == 1 else 1)).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
saving.result()
"""
    report = run_on_gloo(code)
    assert report.ok, report.render()
    assert report.numbers is not None
    found = report.numbers
    assert (found.steps, found.skipped_steps, found.first_nan, found.losses[0].count) == (18, 2, None, 20)
    assert "async_save has a group of its own" in {use.what for use in report.mapped}
