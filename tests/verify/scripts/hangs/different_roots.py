# hang: different_roots
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weights = torch.ones(10)
dist.broadcast(weights, src=dist.get_rank())  # <- here
dist.barrier()
