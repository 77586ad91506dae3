"""Every way to communicate, each done right, on four ranks."""

import datetime

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
mine, other, empty = torch.full((3,), rank), torch.empty(3, dtype=torch.long), torch.empty(3)

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
distribute_tensor(torch.ones(8, 8), mesh, [Shard(0), Shard(1)]).full_tensor()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
model(torch.ones(1, 4)).sum().backward()

exchange = [dist.P2POp(dist.isend, mine, (rank + 1) % ranks), dist.P2POp(dist.irecv, other, (rank - 1) % ranks)]
for work in dist.batch_isend_irecv(exchange):
    work.wait()
if rank == 0:
    dist.send(mine, 1, tag=4)
elif rank == 1:
    dist.recv(other, tag=4)  # from any rank

found = [None] * ranks
dist.all_gather_object(found, {"name": "x" * rank})
dist.broadcast_object_list([{"step": 1}] if rank == 0 else [None], src=0)
dist.scatter_object_list([None], [1, 2, 3, 4] if rank == 0 else None, src=0)
dist.gather_object(rank, found if rank == 0 else None, dst=0)

dist.all_to_all(list(torch.empty(4).split(1)), list(torch.ones(4).split(1)))
dist.reduce(torch.ones(3), dst=1)
dist.gather(empty, [torch.empty(3) for _ in range(ranks)] if rank == 1 else None, dst=1)
dist.scatter(empty, [torch.ones(3)] * ranks if rank == 2 else None, src=2)
if rank < 2:
    dist.all_reduce(mine, group=dist.new_group([0, 1], use_local_synchronization=True))
for each in range(ranks):
    dist.new_group([each])
with torch.inference_mode():
    dist.all_reduce(torch.ones(1))
functional.all_reduce(torch.ones(5), "sum", dist.group.WORLD).sum()
dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
dist.barrier()
dist.destroy_process_group()
