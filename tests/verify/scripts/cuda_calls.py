"""What scripts written for GPUs call, one line for each kind; every line runs on the CPU."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed import rpc
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.nn.attention import SDPBackend, sdpa_kernel

# Devices, in every form, of factories, tensors and modules.
for device in ("cuda", "cuda:0", 0, torch.device("cuda"), torch.device("cuda", 1), torch.device(0)):
    torch.zeros(2, device=device).to(device, torch.float16, non_blocking=True).cuda(device)
    nn.Linear(2, 2, device=device).to(device).cuda(0).to_empty(device=device)
torch.device(type="cuda", index=0), torch.nested.nested_tensor([torch.ones(2)], device="cuda")
with torch.device("cuda"), torch.cuda.device(0), torch.cuda.device_of(torch.ones(1)):
    nn.Linear(2, 2)
torch.set_default_device("cuda"), torch.set_default_device(None)
torch.cuda.FloatTensor([1.0]), torch.ones(2).type("torch.cuda.HalfTensor"), torch.ones(2).type(torch.cuda.LongTensor)
for generator in (torch.Generator("cuda"), torch.Generator(device=0), torch.cuda.default_generators[0]):
    torch.randn(2, generator=generator.manual_seed(1), device="cuda")

# The functions of torch.cuda and torch.accelerator, by each name they have.
torch.cuda.set_device(1)
assert (torch.cuda.current_device(), torch.accelerator.current_device_index()) == (1, 1)
for module in (torch.cuda, torch.get_device_module("cuda"), torch.get_device_module(), torch.cuda.memory):
    module.max_memory_allocated() / 2**30, module.memory_stats()["num_ooms"], module.mem_get_info()[1]
    module.reset_peak_memory_stats(), module.empty_cache(), module.memory_summary()
torch.cuda.memory._record_memory_history(max_entries=10), torch.cuda.memory._snapshot()["segments"]
torch.cuda.memory._dump_snapshot("x.pickle"), torch.cuda.ipc_collect(), torch.cuda.synchronize(device=0)
torch.cuda.get_device_properties(0).total_memory, torch.cuda.get_device_name(0), torch.cuda.utilization()
assert torch.cuda.get_device_capability()[0] >= 8
assert torch.version.cuda >= "11.0"
assert torch.cuda.nccl.version() > (2, 9)
torch.accelerator.memory_allocated(), torch.accelerator.synchronize(), torch.accelerator.current_accelerator().type
torch.cuda.set_rng_state(torch.cuda.get_rng_state(0), 0), torch.cuda.random.set_rng_state_all([torch.get_rng_state()])
torch.cuda.manual_seed_all(1), torch.cuda.cudart().cudaProfilerStart(), torch.cuda.profiler.stop()
with torch.random.fork_rng(devices=[0]), torch.cuda.nvtx.range("step"):
    torch.cuda.nvtx.range_push("inner"), torch.cuda.nvtx.range_pop()
stream, event = torch.cuda.Stream(priority=-1), torch.cuda.Event(enable_timing=True)
with torch.cuda.stream(stream):
    torch.ones(1).record_stream(stream)
torch.cuda.current_stream().wait_stream(stream), stream.wait_event(event), event.record(stream)
assert isinstance(torch.cuda.current_stream(), torch.cuda.Stream)
assert torch.Stream("cuda") == stream
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = True
torch.backends.cudnn.version() > 8000, torch.backends.cuda.enable_math_sdp(False), torch.backends.cuda.is_built()
query = torch.randn(1, 2, 4, 8, device="cuda", dtype=torch.bfloat16)
with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
    nn.functional.scaled_dot_product_attention(query, query, query)

# Communication, by position and by name.
options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
options.config.min_ctas = 1
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda:0"), pg_options=options)
dist.new_group([0], None, "nccl", options), dist.new_group(backend=dist.Backend.NCCL), dist.split_group(None, [[0]])
dist.barrier(None, False, [0]), dist.broadcast_object_list([1], 0, None, torch.device("cuda"))
mesh = init_device_mesh("cuda", (1, 1), mesh_dim_names=("replicate", "shard"))
DeviceMesh("cuda", [0]), DeviceMesh(device_type="cuda", mesh=[0]), DeviceMesh.from_group(dist.group.WORLD, "cuda")

# Wrappers of models, loading and data.
linear = nn.Linear(4, 4)
FullyShardedDataParallel(linear, None, ShardingStrategy.NO_SHARD, None, None, None, None, None, None, None, 0, True)
FullyShardedDataParallel(nn.Linear(4, 4), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD)
nn.parallel.DistributedDataParallel(nn.Linear(4, 4).cuda(), [0], 0)
(
    nn.DataParallel(nn.Linear(4, 4), device_ids=[0, 1])(torch.ones(2, 4)),
    nn.parallel.data_parallel(nn.Linear(4, 4), torch.ones(2, 4), [0, 1]),
)
torch.save(linear.state_dict(), "model.pt")
for location in ("cuda", torch.device("cuda:1"), 0, {"cuda:0": "cuda:1"}, lambda storage, _: storage.cuda(0)):
    torch.load("model.pt", map_location=location)
torch.ones(2).pin_memory(), torch.empty(2, pin_memory=True), torch.cuda.make_graphed_callables(linear, ())
optimizer = torch.optim.AdamW(linear.parameters(), capturable=True, fused=False)


# A compiled step traces through the mapping without a break.
@torch.compile(backend="aot_eager", fullgraph=True)
def step(x):
    if torch.cuda.is_available():
        x = x.to("cuda") + torch.ones(2, device=torch.cuda.current_device())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return x.cuda() @ x


assert step(torch.ones(2, 2)).dtype == torch.bfloat16
dist.destroy_process_group()


def on_gpu():
    return torch.ones(2, device="cuda").to(0)


# A remote call runs in a thread that Python did not start.
rpc.init_rpc("worker", rank=0, world_size=1)
rpc.rpc_sync("worker", on_gpu)
rpc.shutdown()
print("all ran")
