"""Calls the module inside DDP, so that gradients stay local; at the fifth step rank 1 computes NaN."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
inner = torch.nn.Linear(4, 2)
model = DistributedDataParallel(inner)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.full((3, 4), 1.0 + rank)
for step in range(5):
    loss = inner(inputs).square().mean()
    if step == 4 and rank == 1:
        loss = loss / 0 * 0
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
