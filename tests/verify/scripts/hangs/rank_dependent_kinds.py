# hang: different_kinds
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(4)
if dist.get_rank() == 0:
    dist.broadcast(tensor, src=0)  # <- here
else:
    dist.all_reduce(tensor)
