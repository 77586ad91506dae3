# hang: slow_or_stuck_elsewhere
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1)
if dist.get_rank() == 0:
    time.sleep(1000)
dist.all_reduce(tensor)  # <- here
