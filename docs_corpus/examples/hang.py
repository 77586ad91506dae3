"""Hangs: rank 0 makes a collective that the other ranks do not make."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
loss = torch.ones(1, device="cuda")
if dist.get_rank() == 0:
    dist.all_reduce(loss)
dist.barrier()
