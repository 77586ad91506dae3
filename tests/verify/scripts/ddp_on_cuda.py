"""A DDP script as people write them for GPUs: it names CUDA everywhere and runs unchanged on the CPU."""

import os
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

if not torch.cuda.is_available():
    raise SystemExit("this script needs GPUs")

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
dist.init_process_group("nccl", device_id=device)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 4)

    def block(self, x):
        return self.inner(x) + torch.ones(16, device="cuda")

    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=False).relu())


torch.cuda.manual_seed_all(0)
generator = torch.Generator(device="cuda")
generator.manual_seed(dist.get_rank())
model = DistributedDataParallel(Net().cuda(local_rank), device_ids=[local_rank], output_device=local_rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cuda")
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
inputs = torch.randn(8, 16, generator=generator, device=device, pin_memory=False)
targets = torch.randint(0, 4, (8,)).pin_memory().cuda(non_blocking=True)
start.record()
for _ in range(3):
    with torch.autocast("cuda"):
        logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits, targets.to(local_rank))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
end.record()
torch.cuda.synchronize()
start.elapsed_time(end)


def in_a_thread(made):
    made.append(torch.zeros(1, device="cuda"))


made = []
thread = threading.Thread(target=in_a_thread, args=(made,))
thread.start()
thread.join()
peak = torch.cuda.max_memory_allocated()
with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
    half = model(inputs)
torch.save(model.state_dict(), f"{local_rank}.pt")
model.load_state_dict(torch.load(f"{local_rank}.pt", map_location={"cuda:0": f"cuda:{local_rank}"}))
dist.barrier(device_ids=[local_rank])
print(f"dtype={logits.dtype} half={half.dtype} scale={scaler.get_scale()} threads={len(made)} peak={peak}")
dist.destroy_process_group()
