"""Prints what a rank sees, trains a little with FSDP2, and uses two OpenMP threads after the fork."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from model import WIDTH
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.set_num_threads(2)
(torch.ones(600, 600) @ torch.ones(600, 600)).sum().item()
model = fully_shard(torch.nn.Linear(WIDTH, WIDTH))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for _ in range(3):
    loss = model(torch.ones(2, WIDTH)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
dist.destroy_process_group()

names = (
    *("LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR"),
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
)
view = {name: os.environ.get(name) for name in names}
view["secret"] = os.environ.get("HF_TOKEN")
view["home_is_private"] = os.environ["HOME"] == str(Path(os.environ["TMPDIR"]).with_name("home"))
view["name"] = __name__
view["arguments"] = [Path(sys.argv[0]).name, *sys.argv[1:]]
view["file"] = Path("data/seen.txt").read_text()
view["width"] = WIDTH
view["falls"] = losses[-1] < losses[0]
view["threads"] = torch.get_num_threads()
print(json.dumps(view))
