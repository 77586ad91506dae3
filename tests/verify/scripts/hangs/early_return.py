# hang: peer_exited
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
r = dist.get_rank()


def train():
    for step in range(4):
        if r == 1 and step == 2:
            return
        dist.all_reduce(torch.ones(1))  # <- here


train()
