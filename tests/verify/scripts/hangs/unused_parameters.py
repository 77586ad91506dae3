# hang: rank_conditional_collective
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
one, two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
model = two if dist.get_rank() else one
model(torch.ones(1, 4)).sum().backward()
if model is one:
    gathered = [torch.empty(4, 4) for _ in range(2)]
    dist.all_gather(gathered, model.weight.grad)  # <- here
dist.all_reduce(model.bias.grad)
