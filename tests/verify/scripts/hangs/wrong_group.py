# hang: wrong_group
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
first = dist.new_group([0, 1])
rank = dist.get_rank()
tensor = torch.ones(4)
dist.all_reduce(tensor, group=first if rank != 1 else None)  # <- here
