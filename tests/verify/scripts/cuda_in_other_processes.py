"""Uses CUDA in a worker of a DataLoader and in processes that it spawns, at their top level too."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

assert torch.cuda.is_available()
top = torch.zeros(1, device="cuda")


class OnGpu(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.full((2,), index, device="cuda").tolist()  # a tensor would be shared by a path too long for tests


def train(rank, world_size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    model = DistributedDataParallel(torch.nn.Linear(2, 2).to(rank), device_ids=[rank])
    model(torch.ones(1, 2, device=rank)).sum().backward()
    if rank == 0:
        print("trained on", world_size)
    dist.destroy_process_group()


if __name__ == "__main__":
    for batch in DataLoader(OnGpu(), num_workers=1, batch_size=2, collate_fn=list):
        print("loaded", batch)
    mp.spawn(train, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
