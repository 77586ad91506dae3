# hang: rank_conditional_collective
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.ones(1)
for _ in range(3):
    dist.all_reduce(loss)
    if rank == 0:
        dist.all_reduce(loss)  # <- here
dist.destroy_process_group()
