"""Prints the data types and scales that a script written for CUDA works with, by each spelling."""

import json
import threading

import torch
from torch.utils.checkpoint import checkpoint

ones = torch.ones(2, 2, device="cuda")
seen = {}


def product(x=ones):
    return str((x @ x).dtype)[6:]


for name, context in {
    "torch.autocast": torch.autocast("cuda"),
    "torch.autocast bf16": torch.autocast(device_type="cuda", dtype=torch.bfloat16),
    "torch.amp.autocast": torch.amp.autocast("cuda", torch.bfloat16),
    "torch.cuda.amp.autocast": torch.cuda.amp.autocast(),
    "torch.cuda.amp.autocast bf16": torch.cuda.amp.autocast(dtype=torch.bfloat16),
    "disabled": torch.cuda.amp.autocast(enabled=False),
}.items():
    with context:
        seen[name] = product()
seen["decorator"] = torch.cuda.amp.autocast()(product)()


class Full(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x):
        return x @ x

    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx, gradient):
        seen["backward"] = product()
        return gradient


recomputed = []


def block(x):
    recomputed.append(product(x))
    return x @ x


with torch.autocast("cuda", dtype=torch.bfloat16):
    leaf = torch.ones(2, 2, requires_grad=True)
    y = Full.apply(leaf)
    seen["custom_fwd"] = str(y.dtype)[6:]
    seen["asked"] = [torch.is_autocast_enabled("cuda"), str(torch.get_autocast_dtype("cuda"))[6:]]
    loss = checkpoint(block, leaf, use_reentrant=False).sum() + y.sum()
loss.backward()
seen["recomputed"] = recomputed
seen["scales"] = []
for scaler in (torch.amp.GradScaler("cuda"), torch.cuda.amp.GradScaler(init_scale=8.0), torch.amp.GradScaler()):
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    seen["scales"].append([scaler.get_scale(), weight.tolist()[0]])
thread = threading.Thread(target=lambda: seen.update(thread=str(torch.ones(1, device="cuda").device)))
thread.start()
thread.join()
print(json.dumps(seen))
