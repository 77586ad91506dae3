"""Records each collective of a rank before it starts, at the one place that all of them pass: the dispatcher of c10d.

Python functions of torch.distributed, functional collectives, DTensor, FSDP and the C++ reducer of DDP all call the
operators of c10d; a kernel put before those of the devices writes a line and goes on. Groups are made
without such an operator, so the functions that make them are wrapped as well.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .after_torch import when_torch_is_imported
from .collective_log import Call, Place, Writer

_MOST_PLACES = 8
"""Of the user's lines on the stack, innermost first: enough to see where two ranks part."""

_C10D = "torch.distributed.distributed_c10d"


Noted = Literal["calls", "calls and groups"]


def activate(path: Path, is_users: Callable[[str], bool], noted: Noted = "calls and groups") -> None:
    """Record into `path` from now on; in a process without torch, from when the script imports it.

    Args:
        path: of the log.
        is_users: whether a file is the user's.
        noted: whether to note as well which groups are made: each takes a line with the ranks of the world.
    """
    when_torch_is_imported(lambda: _Recorder(path, is_users).install(noted))


def joined_path(path: Path) -> Path:
    """Return where a rank whose log is `path` leaves a byte for each group that it has made."""
    return path.with_name(f"{path.name}-joined")


def wait_for_joining(own: Path, others: Sequence[Path]) -> None:
    """Wait until the other ranks have joined the groups that this rank made a moment ago.

    A rank that ends at once breaks the connections that others are still making; a process started by a launcher takes
    longer to end than they need.
    """
    try:
        made = joined_path(own).stat()
    except OSError:
        return
    while time.time() < made.st_mtime + _JOINING_SECONDS:
        if all(_size(joined_path(other)) >= made.st_size for other in others):
            return
        time.sleep(0.01)


_JOINING_SECONDS = 2.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class _Operator(NamedTuple):
    """How to read the arguments of an operator.

    Args:
        kind: the function of torch.distributed that users know it by.
        group: position of the group.
        compared: position of the tensors whose size all ranks have to agree on, None where they need not.
        other: position of the tensors at the other side.
        root: position of the source or destination rank, which all ranks have to agree on.
        peer: position of the rank at the other end.
        tag: position of the tag.
        splits: whether it says how many rows go to and come from each rank, at the two positions after the group.
    """

    kind: str
    group: int = 1
    compared: int | None = 0
    other: int | None = None
    root: int | None = None
    peer: int | None = None
    tag: int | None = None
    splits: bool = False


_OPERATORS = {
    "allreduce_": _Operator("all_reduce"),
    "allreduce_coalesced_": _Operator("all_reduce_coalesced"),
    "broadcast_": _Operator("broadcast", root=2),
    "reduce_": _Operator("reduce", root=3),
    "allgather_": _Operator("all_gather", 2, 1, 0),
    "_allgather_base_": _Operator("all_gather_into_tensor", 2, 1, 0),
    "allgather_coalesced_": _Operator("all_gather_coalesced", 2, 1, 0),
    "allgather_into_tensor_coalesced_": _Operator("all_gather_into_tensor_coalesced", 2, 1, 0),
    "reduce_scatter_": _Operator("reduce_scatter", 2, 1, 0),
    "_reduce_scatter_base_": _Operator("reduce_scatter_tensor", 2, 1, 0),
    "reduce_scatter_tensor_coalesced_": _Operator("reduce_scatter_tensor_coalesced", 2, 1, 0),
    "gather_": _Operator("gather", 2, 1, 0, root=3),
    "scatter_": _Operator("scatter", 2, 0, 1, root=3),
    "alltoall_base_": _Operator("all_to_all_single", 2, None, 0, splits=True),
    "alltoall_": _Operator("all_to_all", 2, None, 0),
    "barrier": _Operator("barrier", compared=None),
    "monitored_barrier_": _Operator("monitored_barrier", compared=None),
    "send": _Operator("send", peer=2, tag=3),
    "recv_": _Operator("recv", peer=2, tag=3),
    "recv_any_source_": _Operator("recv", tag=2),
}


class _Recorder:
    """Writes down the calls of this process."""

    def __init__(self, path: Path, is_users: Callable[[str], bool]) -> None:
        self._path = path
        self._writer = Writer(path)
        self._is_users = is_users
        self._users_code: dict[types.CodeType, bool] = {}
        self._lines: dict[tuple[Any, ...], bytes] = {}
        self._times_initialised = 0

    def install(self, noted: Noted) -> None:
        """Replace the CPU kernels of the operators and the functions that make groups."""
        import torch
        import torch.distributed

        if not torch.distributed.is_available():
            return
        c10d = sys.modules[_C10D]
        self._unbox = torch._C._distributed_c10d.ProcessGroup.unbox
        self._ranks_of = c10d.get_process_group_ranks
        self._world_of = c10d._world
        if noted == "calls and groups":
            self._wrap_group_makers(c10d)
        # The key that every call passes before the kernel of its device. Calling on through the dispatcher gives up the
        # GIL; a kernel called while holding it may wait for ever, for a thread of Gloo that wants the GIL.
        key = torch._C.DispatchKey.BackendSelect
        below = torch._C._dispatch_keyset_full_after(key)
        self._library = torch.library.Library("c10d", "IMPL")
        for name, operator in _OPERATORS.items():
            packet = getattr(torch.ops.c10d, name, None)
            if packet is not None:
                self._library.impl(
                    name, self._kernel(packet.default.redispatch, below, operator), key.name, with_keyset=True
                )

    def _kernel(self, redispatch: Callable[..., Any], below: Any, operator: _Operator) -> Callable[..., Any]:
        def recorded(keys: Any, *args: Any) -> Any:
            self._note(operator, args)
            return redispatch(keys & below, *args)

        return recorded

    def _note(self, operator: _Operator, args: tuple[Any, ...]) -> None:
        group = self._unbox(args[operator.group]).group_name
        tensors = args[operator.compared] if operator.compared is not None else ()
        shapes = tuple(tensor.shape for tensor in _flat(tensors))
        numbers = tuple(args[at] for at in (operator.root, operator.peer, operator.tag) if at is not None)
        # The first argument is a tensor in every operator; its type stands for those of all.
        dtype = next((tensor.dtype for tensor in _flat(args[0])), None)
        if operator.splits:
            numbers = (*numbers, *map(tuple, args[3:5]))
        key = (operator.kind, group, self._times_initialised, shapes, dtype, numbers, self._stack())
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = self._writer.describe(self._described(operator, args, group, shapes))
        self._writer.note(line)

    def _stack(self) -> tuple[Any, ...]:
        """Return code and line of the user's frames, innermost first."""
        known = self._users_code
        found: list[Any] = []
        frame: types.FrameType | None = sys._getframe(3)
        while frame is not None:
            code = frame.f_code
            users = known.get(code)
            if users is None:
                users = known[code] = self._is_users(code.co_filename)
            if users:
                found += (code, frame.f_lineno)
                if len(found) == 2 * _MOST_PLACES:
                    break
            frame = frame.f_back
        return tuple(found)

    def _described(
        self, operator: _Operator, args: tuple[Any, ...], group: str, shapes: tuple[Sequence[int], ...]
    ) -> Call:
        ranks = self._ranks(args[operator.group])
        sides = [_flat(args[at]) for at in (operator.compared, operator.other) if at is not None]
        sizes = [sum(tensor.numel() * tensor.element_size() for tensor in side) for side in sides]
        first = next((tensor for side in sides for tensor in side), None)
        peer = args[operator.peer] if operator.peer is not None else None
        one_sided = operator.compared is None
        return Call(
            kind=operator.kind,
            group=f"{self._times_initialised}:{group}",
            ranks=ranks,
            shape=tuple(first.shape) if first is not None else (),
            elements=None if one_sided else sum(_product(shape) for shape in shapes),
            dtype=str(first.dtype).replace("torch.", "") if first is not None else "",
            size=max(sizes, default=0),
            detail=f"root {args[operator.root]}" if operator.root is not None else "",
            peer=ranks[peer] if peer is not None and peer < len(ranks) else None,
            tag=args[operator.tag] if operator.tag is not None else 0,
            places=self._places(),
            splits=_splits(args, len(ranks)) if operator.splits else (),
        )

    def _ranks(self, boxed: Any) -> tuple[int, ...]:
        """Return the global ranks of a group; of one that torch.distributed does not know, its own numbering."""
        group = self._unbox(boxed)
        known = self._world_of.pg_group_ranks.get(group)
        return tuple(sorted(known, key=known.get)) if known else tuple(range(group.size()))

    def _places(self) -> tuple[Place, ...]:
        pairs = iter(self._stack())
        return tuple(Place(code.co_filename, line, code.co_name) for code, line in zip(pairs, pairs))  # noqa: B905

    def _wrap_group_makers(self, c10d: types.ModuleType) -> None:
        """Note the calls that make groups: all ranks have to make them, and they wait for each other."""
        initialise, make = c10d.init_process_group, c10d._new_group_with_tag

        @functools.wraps(initialise)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            self._times_initialised += 1
            world = kwargs.get("world_size", -1)
            world = world if isinstance(world, int) and world > 0 else int(os.environ.get("WORLD_SIZE", "1"))
            self._note_group("init_process_group", tuple(range(world)), "")
            return self._joined(initialise(*args, **kwargs))

        @functools.wraps(make)
        def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            if c10d.is_initialized():
                world = tuple(range(c10d.get_world_size()))
                members = tuple(ranks) if ranks is not None else world
                local = kwargs.get("use_local_synchronization", args[4] if len(args) > 4 else False)
                callers = tuple(sorted(members)) if local else world
                self._note_group("new_group", callers, f"ranks {list(members)}")
            return self._joined(make(ranks, *args, **kwargs))

        for module in [found for name, found in list(sys.modules.items()) if name.startswith("torch.distributed")]:
            for original, wrapped in ((initialise, init_process_group), (make, new_group)):
                for attribute in (init_process_group.__name__, make.__name__):
                    if getattr(module, "__dict__", {}).get(attribute) is original:
                        setattr(module, attribute, wrapped)

    def _joined(self, made: Any) -> Any:
        with contextlib.suppress(OSError), joined_path(self._path).open("ab") as file:
            file.write(b"x")
        return made

    def _note_group(self, kind: str, callers: tuple[int, ...], detail: str) -> None:
        group = f"{self._times_initialised}:{kind}" + ("" if len(callers) == 1 else f" of {list(callers)}")
        call = Call(kind, group, callers, (), None, "", 0, detail, None, 0, self._places())
        self._writer.note(self._writer.describe(call))


def _flat(tensors: Any) -> list[Any]:
    """Return the tensors of one argument: one tensor, a list, or a list of lists."""
    if not isinstance(tensors, (list, tuple)):
        return [] if tensors is None else [tensors]
    if tensors and isinstance(tensors[0], (list, tuple)):
        return list(itertools.chain.from_iterable(tensors))
    return list(tensors)


def _splits(args: tuple[Any, ...], size: int) -> tuple[tuple[int, ...], ...]:
    """Return the rows that all_to_all_single sends to, and receives from, each rank."""
    output, given, _, received, sent = args[:5]
    return tuple(
        tuple(map(int, rows)) if rows else (tensor.shape[0] // size,) * size
        for tensor, rows in ((given, sent), (output, received))
    )


def _product(shape: Sequence[int]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count
