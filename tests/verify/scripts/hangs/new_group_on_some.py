# hang: rank_conditional_collective
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank in (0, 1):
    pair = dist.new_group([0, 1])  # <- here
    dist.all_reduce(torch.ones(1), group=pair)
everyone = dist.new_group()
dist.barrier(everyone)
