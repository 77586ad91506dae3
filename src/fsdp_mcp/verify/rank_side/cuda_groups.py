"""Process groups, meshes and the wrappers of models: Gloo in place of NCCL, the CPU in place of the GPU."""

from __future__ import annotations

import importlib
import os
import sys
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from .cuda_patch import changed, cpu_for, is_cuda, is_device, wrap
from .cuda_record import Record


def map_distributed(record: Record) -> None:
    """Put the mappings in place."""
    _map_groups(record)
    _map_calls_on_groups(record)
    _map_meshes(record)
    _map_data_parallel(record)
    _map_batch_norm(record)
    _map_fsdp(record)
    if not hasattr(dist, "ProcessGroupNCCL"):
        stand_in = type("ProcessGroupNCCL", (), {"Options": _NcclOptions})
        dist.ProcessGroupNCCL = dist.distributed_c10d.ProcessGroupNCCL = stand_in


class _NcclOptions(SimpleNamespace):
    """Options that Gloo has no use for: whatever is set is kept and read by no one."""

    def __init__(self, *_: Any, **options: Any) -> None:
        super().__init__(**{"config": SimpleNamespace(), "is_high_priority_stream": False, **options})


def _map_groups(record: Record) -> None:
    """Use Gloo in place of NCCL."""

    asked: list[str] = []

    def with_gloo(original: Any, *args: Any, **kwargs: Any) -> Any:
        name = original.__name__

        def gloo(backend: Any) -> Any:
            if backend is None or "nccl" not in str(backend).lower():
                return backend
            asked.append(str(backend).lower())
            record.mapped(f'backend "{backend}" -> "gloo" in {name}')
            return "gloo"

        def left_out(what: str) -> Any:
            return lambda value: None if value is None else record.mapped(f"{what} left out in {name}")

        changes = {"backend": gloo, "device_id": left_out("device_id"), "pg_options": left_out("pg_options")}
        args, kwargs = changed(original, args, kwargs, **changes)
        return original(*args, **kwargs)

    def subgroups(original: Any, group_size: Any = None, *args: Any, **kwargs: Any) -> Any:
        if group_size is None:  # torch asks CUDA how many devices a node has
            group_size = int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
            record.mapped("new_subgroups has a group for each node")
        return original(group_size, *args, **kwargs)

    for name in ("init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration"):
        wrap(dist.distributed_c10d, name, with_gloo, copies_below="torch.distributed")
    wrap(dist.distributed_c10d, "new_subgroups", subgroups, copies_below="torch.distributed")

    _map_async_save(record, asked)


def _map_async_save(record: Record, asked: list[str]) -> None:
    """Save in a group of its own: on GPUs the collectives of a save go through Gloo, and training's through NCCL.

    Both in one group of Gloo, from two threads, would be paired with each other.
    """
    of_saves: dict[Any, Any] = {}

    def async_save(original: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("process_group") is None and dist.is_initialized() and asked:
            if asked[0] == "nccl":
                record.unsupported('async_save fails on GPUs unless the backend is "cpu:gloo,cuda:nccl"')
            world = dist.group.WORLD
            if world not in of_saves:
                record.mapped("async_save has a group of its own")
                of_saves[world] = dist.new_group()
            kwargs = {**kwargs, "process_group": of_saves[world]}
        return original(*args, **kwargs)

    saver = sys.modules.get("torch.distributed.checkpoint.state_dict_saver")  # loaded where the script names it
    if saver is not None:
        wrap(saver, "async_save", async_save, copies_below="torch.distributed.checkpoint")


def _map_calls_on_groups(record: Record) -> None:
    """Leave out the devices of calls that take one, and make by hand what Gloo has not."""

    def barrier(original: Any, *args: Any, **kwargs: Any) -> Any:
        def left_out(devices: Any) -> None:
            if devices is not None:
                record.mapped("device_ids left out in barrier")

        args, kwargs = changed(original, args, kwargs, device_ids=left_out)
        return original(*args, **kwargs)

    def coalescing(original: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = changed(original, args, kwargs, device=lambda _: None)
        return original(*args, **kwargs)

    def objects(original: Any, *args: Any, **kwargs: Any) -> Any:
        def cpu(device: Any) -> Any:
            return torch.device("cpu") if is_device(device) else device

        args, kwargs = changed(original, args, kwargs, device=cpu)
        return original(*args, **kwargs)

    def split(original: Any, parent_pg: Any = None, split_ranks: Any = None, *_: Any, **kwargs: Any) -> Any:
        record.mapped("split_group makes new groups of Gloo")
        members = dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
        groups = [(ranks, dist.new_group([members[rank] for rank in ranks])) for ranks in split_ranks]
        return next((group for ranks, group in groups if members.index(dist.get_rank()) in ranks), None)

    for name, wrapper in (
        ("barrier", barrier),
        ("_coalescing_manager", coalescing),
        ("split_group", split),
        *((name, objects) for name in ("broadcast_object_list", "send_object_list", "recv_object_list")),
    ):
        wrap(dist.distributed_c10d, name, wrapper, copies_below="torch.distributed")


def _map_meshes(record: Record) -> None:
    """Make meshes of the CPU."""

    def cpu(device_type: Any) -> Any:
        if is_cuda(device_type):
            record.mapped('device mesh of "cuda" -> "cpu"')
        return cpu_for(device_type)

    def mesh(original: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = changed(original, args, kwargs, device_type=cpu)
        return original(*args, **kwargs)

    def supported(original: Any, mesh: Any) -> Any:
        found = original(mesh)
        if not found:
            record.mapped("random values of a DTensor: on the CPU every rank draws the same for its shard")
        return found

    device_mesh = importlib.import_module("torch.distributed.device_mesh")
    random = sys.modules.get("torch.distributed.tensor._random")
    wrap(random, "is_rng_supported_mesh", supported, copies_below="torch.distributed.tensor")
    wrap(device_mesh, "init_device_mesh", mesh, copies_below="torch.distributed")
    wrap(device_mesh.DeviceMesh, "__init__", mesh)


def _map_data_parallel(record: Record) -> None:
    """Put DistributedDataParallel on the CPU; DataParallel runs its module there, once."""

    def distributed(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        def left_out(what: str) -> Any:
            return lambda value: None if value is None else record.mapped(f"{what} left out in DistributedDataParallel")

        changes = {"device_ids": left_out("device_ids"), "output_device": left_out("output_device")}
        args, kwargs = changed(original, (self, *args), kwargs, **changes)
        original(*args, **kwargs)

    def check_hook(original: Any, self: Any, hook: Any) -> None:
        if getattr(hook, "__name__", "").startswith("bf16"):  # torch asks for NCCL; Gloo can as well
            record.mapped("communication hook in bfloat16 over Gloo")
        else:
            original(self, hook)

    def data_parallel(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        record.mapped("DataParallel runs its module once, on the CPU")
        original(self, *args, **kwargs)

    def functional(original: Any, module: Any, inputs: Any, *_: Any, module_kwargs: Any = None, **__: Any) -> Any:
        record.mapped("data_parallel runs the module once, on the CPU")
        return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))

    wrap(torch.nn.parallel.DistributedDataParallel, "__init__", distributed)
    wrap(torch.nn.parallel.DistributedDataParallel, "_check_comm_hook", check_hook)
    wrap(torch.nn.parallel.DataParallel, "__init__", data_parallel)
    wrap(torch.nn.parallel, "data_parallel", functional, copies_below="torch.nn")


def _map_batch_norm(record: Record) -> None:
    """Synchronise batch norm over Gloo: torch's own does so on GPUs only."""
    plain = torch.nn.modules.batchnorm._BatchNorm

    def forward(original: Any, self: Any, input: Any) -> Any:
        group = self.process_group or None
        if not (self.training and dist.is_initialized()):
            return original(self, input)
        record.mapped("SyncBatchNorm synchronised over Gloo")
        if dist.get_world_size(group) == 1:
            return plain.forward(self, input)
        return _normalised(self, input, group)

    wrap(torch.nn.SyncBatchNorm, "forward", forward)
    wrap(torch.nn.parallel.DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda *_: None)


def _normalised(self: Any, values: Any, group: Any) -> Any:
    """Return batch norm with the mean and variance over all ranks, through which gradients flow."""
    all_reduce = importlib.import_module("torch.distributed.nn.functional").all_reduce
    dims = [0, *range(2, values.dim())]
    x = values.float()
    size = x.new_full((1,), x.numel() / x.shape[1])
    sums = all_reduce(torch.cat([x.sum(dims), (x * x).sum(dims), size]), group=group)
    count, width = sums[-1].detach(), x.shape[1]
    mean = sums[:width] / count
    variance = sums[width:-1] / count - mean * mean
    if self.track_running_stats:
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            part = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), part)
            self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var.dtype), part)
    shape = [1, width, *[1] * (x.dim() - 2)]
    y = (x - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
    if self.affine:
        y = y * self.weight.view(shape) + self.bias.view(shape)
    return y.to(values.dtype)


def _map_fsdp(record: Record) -> None:
    """Put FSDP1 and offloaded parameters on the CPU."""

    def fsdp1(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        record.mapped("device_id of FullyShardedDataParallel is the CPU")
        wanted: dict[str, Any] = {}

        def taken(name: str, instead: Any) -> Any:
            return lambda value: (wanted.setdefault(name, value), instead)[1]

        cpu = torch.device("cpu")  # FSDP1 refuses to choose the CPU by itself
        kwargs = kwargs if len(args) > _DEVICE_ID_AT else {"device_id": cpu, **kwargs}
        changes = {"device_id": lambda _: cpu, "sync_module_states": taken("sync", False)}
        args, kwargs = changed(original, (self, *args), kwargs, **changes)
        if wanted.get("sync"):
            record.mapped("sync_module_states done by a broadcast on the CPU")
            _broadcast_states(args[1] if len(args) > 1 else kwargs["module"], kwargs.get("process_group"))
        original(*args, **kwargs)

    def offload(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        if args[:1] == (True,) or kwargs.get("pin_memory", not args):
            record.mapped("pin_memory=False in CPUOffloadPolicy")
        original(self, pin_memory=False)

    fsdp = sys.modules.get("torch.distributed.fsdp")
    prototype = sys.modules.get("torch.distributed._composable.fsdp")  # Remove when torch < 2.6 is unsupported.
    for home, name, wrapper in (
        (fsdp, "FullyShardedDataParallel", fsdp1),
        (fsdp, "CPUOffloadPolicy", offload),
        (prototype if not hasattr(fsdp, "CPUOffloadPolicy") else None, "CPUOffloadPolicy", offload),
    ):
        if hasattr(home, name):
            wrap(getattr(home, name), "__init__", wrapper)


_DEVICE_ID_AT = 9
"""How many arguments of FullyShardedDataParallel come between the module and `device_id`."""


def _broadcast_states(module: Any, group: Any) -> None:
    """Give every rank of the group the parameters and buffers of its first rank, as FSDP1 does on GPUs."""
    if isinstance(group, tuple):  # hybrid sharding: (shard group, replicate group) cover all ranks together
        group = None
    source = dist.get_global_rank(group, 0) if group is not None else 0
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if not tensor.is_meta:
                dist.broadcast(tensor.detach(), src=source, group=group)
