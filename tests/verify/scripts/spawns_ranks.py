"""Starts its ranks itself, with a fixed address, as many tutorials do."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "29511"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    tensor = torch.tensor([rank + 1.0])
    dist.all_reduce(tensor)
    print(f"{rank} sees {tensor.item()}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
