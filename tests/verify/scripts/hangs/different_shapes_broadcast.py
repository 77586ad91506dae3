# hang: different_shapes
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weights = torch.ones(10 if dist.get_rank() == 0 else 20)
dist.broadcast(weights, src=0)  # <- here
print("received")
