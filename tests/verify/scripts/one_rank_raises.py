"""One rank raises and destroys its group on the way out, so that the other fails too."""

import torch
import torch.distributed as dist


def step(rank):
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    if rank == 1:
        raise ValueError("bad batch")
    dist.all_reduce(tensor)


dist.init_process_group("gloo")
try:
    step(dist.get_rank())
finally:
    dist.destroy_process_group()
