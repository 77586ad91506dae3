# hang: rank_conditional_collective
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def is_main_process() -> bool:
    return dist.get_rank() == 0


dist.init_process_group("gloo")
model = fully_shard(torch.nn.Linear(8, 8))
if is_main_process():
    full = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}  # <- here
    torch.save(full, "model.pt")
dist.barrier()
