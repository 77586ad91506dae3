"""Runs each collective on two ranks after init_process_group, and reports which gave the right result.

The text goes into the code that recommend_backend writes; it stands alone as `dist` is imported there.
"""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist

rank, other = dist.get_rank(), 1 - dist.get_rank()
mine = torch.tensor([rank, 10.0 + rank])


def empty():
    return torch.full((2,), -1.0)


def send():
    dist.send(mine, other) if rank == 0 else dist.recv(empty(), 0)
    return True


def recv():
    got = empty()
    dist.send(mine, other) if rank == 0 else dist.recv(got, 0)
    return rank == 0 or got.tolist() == [0.0, 10.0]


def broadcast():
    got = mine.clone()
    dist.broadcast(got, src=1)
    return got.tolist() == [1.0, 11.0]


def all_reduce(op=dist.ReduceOp.SUM, expected=(1.0, 21.0)):
    got = mine.clone()
    dist.all_reduce(got, op)
    return tuple(got.tolist()) == expected


def average():
    return all_reduce(dist.ReduceOp.AVG, (0.5, 10.5))


def premultiplied():
    return all_reduce(dist.ReduceOp.PREMUL_SUM(2.0), (2.0, 42.0))


def reduce():
    got = mine.clone()
    dist.reduce(got, dst=0)
    return rank == 1 or got.tolist() == [1.0, 21.0]


def all_gather():
    got = [empty(), empty()]
    dist.all_gather(got, mine)
    return torch.stack(got).tolist() == [[0.0, 10.0], [1.0, 11.0]]


def gather():
    got = [empty(), empty()] if rank == 0 else None
    dist.gather(mine, got, dst=0)
    return rank == 1 or torch.stack(got).tolist() == [[0.0, 10.0], [1.0, 11.0]]


def scatter():
    got = empty()
    dist.scatter(got, [torch.zeros(2), torch.ones(2)] if rank == 0 else None, src=0)
    return got.tolist() == [rank, rank]


def reduce_scatter():
    got = torch.zeros(1)
    dist.reduce_scatter(got, list(mine.split(1)))
    return got.item() == (1.0, 21.0)[rank]


def all_to_all():
    got = [torch.zeros(1), torch.zeros(1)]
    dist.all_to_all(got, list(mine.split(1)))
    return torch.cat(got).tolist() == [10.0 * rank, 10.0 * rank + 1]


def barrier():
    dist.barrier()
    return True


def monitored_barrier(group=None):
    dist.monitored_barrier(group=group)
    return True


def monitored_barrier_of_a_mixed_group():
    return monitored_barrier(dist.new_group(backend="cpu:gloo,cuda:gloo"))


def outcome(call):
    try:
        right = call()
    except (RuntimeError, ValueError):
        return "no"
    return "yes" if right else "wrong"


calls = [send, recv, broadcast, all_reduce, reduce, all_gather, gather, scatter, reduce_scatter, all_to_all, barrier]
results = {call.__name__: outcome(call) for call in [*calls, monitored_barrier]}
results["monitored_barrier of a mixed group"] = outcome(monitored_barrier_of_a_mixed_group)
results |= {"AVG": outcome(average), "PREMUL_SUM": outcome(premultiplied)}
every = [None, None]
dist.all_gather_object(every, results)
agreed = {name: value if every[other][name] == value else "ranks differ" for name, value in results.items()}
defaults = {device: dist.get_default_backend_for_device(device) for device in ("cuda", "xpu", "mps", "cpu")}
if rank == 0:
    Path(os.environ["REPORT"]).write_text(json.dumps({"collectives": agreed, "defaults": defaults}), encoding="utf-8")
