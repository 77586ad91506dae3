# hang: rank_conditional_collective
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    found = [None, None]
    dist.all_gather_object(found, {"loss": 1.0})  # <- here
dist.destroy_process_group()
