# hang: peer_exited
import torch
import torch.distributed as dist


def train() -> None:
    tensor = torch.ones(1)
    for step in range(4):
        if step == 2 and dist.get_rank() == 1:
            raise ValueError("bad batch")
        dist.all_reduce(tensor)  # <- here


dist.init_process_group("gloo")
try:
    train()
except ValueError as error:
    print("stopped:", error)
