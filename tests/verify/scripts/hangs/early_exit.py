# hang: peer_exited
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1)
for step in range(4):
    if step == 2 and tensor.device.type == "cpu" and dist.get_rank() == 1:
        sys.exit()
    dist.all_reduce(tensor)  # <- here
