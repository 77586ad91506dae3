"""The ranks wait in different collectives for ever."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1)
if dist.get_rank() == 0:
    dist.all_reduce(tensor)
else:
    dist.recv(tensor, src=0)
