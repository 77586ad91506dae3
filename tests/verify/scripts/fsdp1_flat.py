"""FullyShardedDataParallel with flat parameters that no rank boundary fits."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.LayerNorm(9), torch.nn.GELU(), torch.nn.Linear(9, 3))
policy = ModuleWrapPolicy({torch.nn.Linear})
model = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(8, 7, generator=torch.Generator().manual_seed(dist.get_rank()))
for _ in range(3):
    for half in inputs.chunk(2):
        model(half).square().mean().backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
