# hang: uneven_inputs
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.ones(2, 4)] * (5 if dist.get_rank() == 0 else 3)
for batch in batches:
    model(batch).sum().backward()  # <- here
    optimizer.step()
    optimizer.zero_grad()
total = torch.ones(1)
dist.all_reduce(total)
