"""Process groups of a simulated world: torch's fake back end, which answers at once and moves nothing."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg  # noqa: F401, registers the back end

from .cuda_patch import changed, wrap

Note = Callable[[str], None]


def replace_groups(world_size: int, rank: int, note: Note) -> None:
    """Make every process group one of the fake back end."""
    c10d = dist.distributed_c10d

    def initialise(original: Any, *args: Any, **kwargs: Any) -> Any:
        world, mine = _given(original, args, kwargs, "world_size"), _given(original, args, kwargs, "rank")
        return original(
            backend="fake",
            world_size=world if world >= 0 else int(os.environ.get("WORLD_SIZE", world_size)),
            rank=mine if mine >= 0 else int(os.environ.get("RANK", rank)),
            store=dist.HashStore(),
        )

    def make(original: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = changed(original, args, kwargs, backend=lambda _: None, backend_options=lambda _: None)
        return original(*args, **kwargs)

    wrap(c10d, "init_process_group", initialise, copies_below="torch.distributed")
    wrap(c10d, "_new_group_with_tag", make, copies_below="torch.distributed")
    wrap(c10d, "monitored_barrier", lambda original, *args, **kwargs: None, copies_below="torch.distributed")
    _replace_object_collectives(note)
    _reduce_buckets_of_ddp(note)
    _end_inputs_together(note)


def _end_inputs_together(note: Note) -> None:
    """Let all ranks of a Join run out of inputs with this one, which would wait for ever for them."""

    def counted(original: Any, *args: Any, **kwargs: Any) -> int:
        note("Join: all ranks have as many inputs as this one")
        original(*args, **kwargs)
        return 0

    wrap(importlib.import_module("torch.distributed.algorithms.join").Join, "_get_num_nonjoined_procs", counted)


def _reduce_buckets_of_ddp(note: Note) -> None:
    """Reduce the buckets of DDP by a hook: the future of a fake collective has no tensor, which DDP asks for."""

    def reduced(group: Any, bucket: Any) -> Any:
        dist.all_reduce(bucket.buffer(), group=group)
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def made(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if getattr(self, "reducer", None) is not None:
            dist._register_comm_hook(self.reducer, self.process_group, reduced)

    def registered(_: Any, self: Any, *__: Any, **___: Any) -> None:
        note("the communication hook of DDP left out: its all_reduce has the bytes of the whole bucket")

    wrap(torch.nn.parallel.DistributedDataParallel, "__init__", made)
    wrap(torch.nn.parallel.DistributedDataParallel, "register_comm_hook", registered)


def cut_lazily() -> None:
    """Let FSDP make the one shard that it takes of a parameter, instead of those of all ranks: minutes at 4,096."""
    common = sys.modules.get("torch.distributed.fsdp._fully_shard._fsdp_common")
    wrap(common, "_chunk_with_empty", lambda _, *args, **kwargs: _Chunks(*args, **kwargs), copies_below="torch")


class _Chunks:
    """What torch.chunk returns, with empty chunks up to the number asked for."""

    def __init__(self, tensor: Any, num_chunks: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, num_chunks, dim

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        length = self._tensor.shape[self._dim]
        size = -(-length // self._count)
        start = min(number * size, length)
        if start == length:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(size, length - start))


def _given(function: Any, args: Any, kwargs: Any, name: str) -> int:
    """Return a whole number given to a call, -1 when there is none."""
    found: list[Any] = []

    def keep(value: Any) -> Any:
        found.append(value)
        return value

    changed(function, args, kwargs, **{name: keep})
    return found[0] if found and isinstance(found[0], int) else -1


def _replace_object_collectives(note: Note) -> None:
    """Give what other ranks would send in objects: copies of this rank's own."""

    def all_gather_object(_: Any, object_list: Any, obj: Any, group: Any = None) -> None:
        note("all_gather_object: every rank's object is a copy of this rank's")
        object_list[:] = [obj] * len(object_list)

    def gather_object(_: Any, obj: Any, object_gather_list: Any = None, *__: Any, **___: Any) -> None:
        if object_gather_list is not None:
            note("gather_object: every rank's object is a copy of this rank's")
            object_gather_list[:] = [obj] * len(object_gather_list)

    def broadcast_object_list(_: Any, object_list: Any, *__: Any, **___: Any) -> None:
        if any(value is None for value in object_list):
            note("broadcast_object_list: leaves None where another rank sends; simulate that rank to go on from there")

    def scatter_object_list(_: Any, outputs: Any, inputs: Any = None, *__: Any, group: Any = None, **___: Any) -> None:
        outputs[0] = inputs[dist.get_rank(group)] if inputs else None

    def send_object_list(_: Any, *__: Any, **___: Any) -> None:
        return None

    def recv_object_list(_: Any, *__: Any, **___: Any) -> None:
        note("recv_object_list: leaves the list as it is; what other ranks send is not simulated")

    of_all = all_gather_object, gather_object, broadcast_object_list, scatter_object_list
    for wrapper in (*of_all, send_object_list, recv_object_list):
        wrap(dist.distributed_c10d, wrapper.__name__, wrapper, copies_below="torch.distributed")
