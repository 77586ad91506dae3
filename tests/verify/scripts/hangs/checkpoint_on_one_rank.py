# hang: rank_conditional_collective
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = fully_shard(torch.nn.Linear(8, 8))
model(torch.ones(2, 8)).sum().backward()
if dist.get_rank() == 0:
    dcp.save({"model": model.state_dict()}, checkpoint_id="checkpoint")  # <- here
model(torch.ones(2, 8)).sum().backward()
