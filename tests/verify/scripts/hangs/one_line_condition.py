# hang: rank_conditional_collective
import torch
import torch.distributed as dist


def setup():
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


r, size = setup()
for step in range(3):
    loss = torch.tensor(float(r * step))
    loss > 1 and dist.all_reduce(loss)  # <- here
    dist.barrier()
