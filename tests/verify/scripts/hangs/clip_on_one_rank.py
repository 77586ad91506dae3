# hang: rank_conditional_collective
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = fully_shard(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 8)).sum().backward()
    if dist.get_rank() == 0:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- here
        print("norm", norm.full_tensor())
    optimizer.step()
    optimizer.zero_grad()
