"""An FSDP2 script as people write them for GPUs: it names CUDA everywhere and runs unchanged on the CPU."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

dist.init_process_group(backend="cpu:gloo,cuda:nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank % torch.cuda.device_count())
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
with torch.device("meta"):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device=torch.cuda.current_device())
torch.manual_seed(rank)
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.1)
offloaded = torch.nn.Linear(8, 8)
fully_shard(offloaded, mesh=mesh, offload_policy=CPUOffloadPolicy())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stream = torch.cuda.Stream()
losses = []
for _ in range(3):
    with torch.cuda.stream(stream):
        inputs = torch.ones(4, 8, device=f"cuda:{rank}")
    stream.wait_stream(torch.cuda.current_stream())
    loss = offloaded(model(inputs).float()).pow(2).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(f"falls={losses[-1] < losses[0]} mesh={mesh.device_type} is_cuda={inputs.is_cuda}")
dist.destroy_process_group()
