# hang: uneven_inputs
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4 if dist.get_rank() == 0 else 3):
    model(torch.ones(2, 8)).sum().backward()  # <- here
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
