"""FSDP2 over tensor parallelism: each data-parallel rank takes its share of one batch; runs in one process as well."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
size = 2 if dist.get_world_size() == 4 else 1
mesh = init_device_mesh("cpu", (size, size), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.LayerNorm(12), torch.nn.Linear(12, 16), torch.nn.Dropout(), torch.nn.Linear(16, 5))
parallelize_module(model, mesh["tp"], {"1": ColwiseParallel(), "3": RowwiseParallel()})
fully_shard(model[1], mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs = torch.randn(16, 12, generator=torch.Generator().manual_seed(1))
mine = inputs.chunk(size)[mesh["dp"].get_local_rank()]
for _ in range(4):
    model(mine).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
