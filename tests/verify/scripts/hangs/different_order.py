# hang: different_order
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
small, large = torch.ones(2), torch.ones(2000)
if dist.get_rank() == 0:
    dist.all_reduce(small)  # <- here
    dist.broadcast(large, src=0)
else:
    dist.broadcast(large, src=0)
    dist.all_reduce(small)
