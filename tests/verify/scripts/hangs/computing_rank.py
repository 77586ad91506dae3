# hang: slow_or_stuck_elsewhere
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(8)
while dist.get_rank() == 0:
    tensor = tensor.tanh()
dist.all_reduce(tensor)  # <- here
