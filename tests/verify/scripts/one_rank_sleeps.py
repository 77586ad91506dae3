"""One rank waits for another that sleeps."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1)
if dist.get_rank() == 0:
    dist.all_reduce(tensor)
else:
    time.sleep(1000)
