# hang: different_order
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
pair = dist.new_group([0, 1])
one = torch.ones(2)
if dist.get_rank() == 0:
    dist.all_reduce(one)  # <- here
    dist.all_reduce(one, group=pair)
else:
    dist.all_reduce(one, group=pair)
    dist.all_reduce(one)
