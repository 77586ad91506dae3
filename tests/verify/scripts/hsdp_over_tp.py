"""HSDP over tensor parallelism of a model far larger than memory, built on the meta device, as written for GPUs."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH = 16_384

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, dist.get_world_size() // 16, 8), mesh_dim_names=("replicate", "shard", "tp"))
with torch.device("meta"):
    blocks = [
        torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))
        for _ in range(2)
    ]
    model = torch.nn.Sequential(torch.nn.Embedding(50_257, WIDTH), *blocks)
for block in blocks:
    parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(block, mesh=mesh["replicate", "shard"])
fully_shard(model, mesh=mesh["replicate", "shard"])
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    loss = model(torch.randint(0, 50_257, (1, 128), device="cuda")).square().mean()
    if torch.isnan(loss):
        raise SystemExit("diverged")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.3f}")
