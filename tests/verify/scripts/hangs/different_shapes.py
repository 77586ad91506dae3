# hang: different_shapes
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(100 + dist.get_rank())
dist.all_reduce(tensor)  # <- here
print("sum", tensor.sum().item())
