# hang: rank_conditional_collective
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print("saved")
    dist.barrier()  # <- here
tensor = torch.ones(1)
dist.all_reduce(tensor)
