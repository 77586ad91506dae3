# hang: uneven_inputs
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
for step in range(5):
    try:
        if step == 3 and dist.get_rank() == 1:
            raise ValueError("bad batch")
        model(torch.ones(2, 4)).sum().backward()  # <- here
    except ValueError:
        continue
dist.barrier()
