# hang: different_shapes
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
lengths = [3, 5]
mine = torch.ones(lengths[dist.get_rank()])
outputs = [torch.empty(length) for length in lengths]
dist.all_gather(outputs, mine)  # <- here
