"""Says which parameter a tensor is, which part of it a rank holds, and which ranks must hold the same."""

from __future__ import annotations

import gc
import json
from typing import Any, NamedTuple

import torch

_INSIDE = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "OptimizedModule": "_orig_mod",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
}
"""Wrappers, and the name under which each holds what it wraps: left out of parameter names."""

SAMPLES = 32
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Piece(NamedTuple):
    """Part of a parameter that a rank holds.

    Args:
        name: of the parameter, without wrappers.
        shape: of the whole parameter.
        where: for each dimension the indices held, `[start, stop]` or `[[all of them]]`; or `["flat", start, stop]`.
        offset: where the piece starts in the local tensor, flattened; None when it is all of it.
        numel: elements of the piece.
        agree: ranks among which equal pieces must hold equal values, None where nothing says so.
        owner: whether this rank writes the piece when the whole is put together.
    """

    name: str
    shape: tuple[int, ...]
    where: list[Any]
    offset: int | None
    numel: int
    agree: tuple[int, ...] | None
    owner: bool

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the piece of the local tensor."""
        return value if self.offset is None else value.reshape(-1)[self.offset : self.offset + self.numel]


def local(value: Any) -> torch.Tensor:
    """Return what this rank holds of a tensor: without communication, values only."""
    value = getattr(value, "_local_tensor", value).detach()
    return value._values() if value.is_sparse else value


class Layout:
    """Names and pieces of the parameters that optimizers hold, as they lie when first seen."""

    def __init__(self, parameters: list[Any], rank: int) -> None:
        self._rank = rank
        self._modules = [value for value in gc.get_objects() if issubclass(type(value), torch.nn.Module)]
        self._wanted = {id(p) for p in parameters}
        self._names: dict[int, str] = {}
        self._owners: dict[int, str] = {}  # module to clean name
        self._beside: dict[int, tuple[int, ...]] = {}
        self._ddp = self._ranks_of_ddp()
        self._walk()
        flat = self._flat_parameters()
        self.pieces: dict[int, list[Piece]] = {}
        for number, parameter in enumerate(parameters):
            self._names.setdefault(id(parameter), f"parameter {number}")
            self.pieces[id(parameter)] = flat.get(id(parameter)) or self._piece(parameter)
        self.precisions = self._precisions(parameters)
        self._parameters = parameters  # so that no id is used again
        del self._modules

    def name(self, parameter: Any) -> str:
        """Return the name without wrappers."""
        pieces = self.pieces.get(id(parameter))
        return pieces[0].name if pieces and len(pieces) == 1 else self._names.get(id(parameter), "a parameter")

    def summary(self) -> dict[str, int]:
        """Return what the tolerance of a comparison depends on."""
        pieces = [piece for found in self.pieces.values() for piece in found]
        return {
            "tensors": len({piece.name for piece in pieces}),
            "largest_dimension": max((size for piece in pieces for size in piece.shape), default=1),
        }

    def checksums(self, pairs: list[tuple[Any, Any]]) -> list[list[Any]]:
        """Return key, name, sum of bits, sum, elements and samples of each piece that other ranks hold as well."""
        rows = []
        for parameter, value in pairs:
            for piece in self.pieces.get(id(parameter), []):
                held = piece.of(local(value))
                if piece.agree is None or len(piece.agree) < 2 or held.numel() != piece.numel or not piece.numel:
                    continue
                flat = held.contiguous().reshape(-1)
                bits = int(flat.view(_BITS[flat.element_size()]).sum(dtype=torch.int64)) if not flat.is_complex() else 0
                samples = [float(x) for x in flat[:: max(1, -(-piece.numel // SAMPLES))].to(torch.float64).tolist()]
                key = json.dumps([piece.name, piece.where, piece.agree])
                rows.append([key, piece.name, bits, float(flat.sum(dtype=torch.float64)), piece.numel, samples])
        return rows

    def _ranks_of_ddp(self) -> dict[int, tuple[int, ...]]:
        """Return the parameters that DDP keeps alike, with the ranks."""
        found = {}
        for module in self._modules:
            if type(module).__name__ != "DistributedDataParallel" or not hasattr(module, "process_group"):
                continue
            ignored = set(getattr(module, "parameters_to_ignore", ()))
            ranks = _ranks(module.process_group)
            for name, parameter in module.module.named_parameters():
                if name not in ignored:
                    found[id(parameter)] = ranks
        return found

    def _walk(self) -> None:
        """Name modules and parameters from the outermost modules that hold any we want."""
        children = {id(child) for module in self._modules for child in module._modules.values() if child is not None}
        roots = [module for module in self._modules if id(module) not in children]
        roots = [root for root in roots if any(id(p) in self._wanted for p in root.parameters())]
        proper = [root for root in roots if not self._hidden(root)] or roots
        kinds = [type(_unwrapped(root)).__name__ for root in proper]
        for number, root in enumerate(proper):
            same = kinds[:number].count(kinds[number])
            prefix = "" if len(proper) == 1 else f"{kinds[number]}{same or ''}."
            beside = _ranks_that_shard(root)
            self._name(root, prefix)
            for parameter in root.parameters():
                if beside:
                    self._beside.setdefault(id(parameter), beside)

    def _hidden(self, root: Any) -> bool:
        """Return whether a root only lists the parameters of another module, as `replicate` does."""
        return type(_unwrapped(root)).__name__ in ("ParameterList", "ParameterDict")

    def _name(self, module: Any, prefix: str) -> None:
        self._owners[id(module)] = prefix
        for name, parameter in module._parameters.items():
            if parameter is not None:
                self._names.setdefault(id(parameter), prefix + name)
        inner = _INSIDE.get(_kind(module))
        for name, child in module._modules.items():
            if child is not None and id(child) not in self._owners:
                self._name(child, prefix if name == inner else f"{prefix}{name}.")

    def _piece(self, parameter: Any) -> list[Piece]:
        """Return the part that this rank holds of a DTensor or a plain tensor."""
        name, shape = self._names[id(parameter)], tuple(parameter.shape)
        if hasattr(parameter, "placements") and hasattr(parameter, "device_mesh"):
            return _dtensor_piece(name, parameter)
        agree = self._ddp.get(id(parameter)) or self._beside.get(id(parameter))
        everything = [[0, size] for size in shape]
        owner = not agree or self._rank == agree[0]
        return [Piece(name, shape, everything, None, parameter.numel(), agree, owner)]

    def _flat_parameters(self) -> dict[int, list[Piece]]:
        """Return the pieces of what FullyShardedDataParallel holds, by parameter."""
        found: dict[int, list[Piece]] = {}
        for module in self._modules:
            handle = getattr(module, "_handle", None) if _kind(module) == "FullyShardedDataParallel" else None
            if handle is None:
                continue
            flat = handle.flat_param
            between = getattr(module, "_inter_node_pg", None)
            agree = _ranks(between) if between is not None else None
            if not handle.uses_sharded_strategy:
                agree = _ranks(module.process_group)
            owner = agree is None or self._rank == agree[0]
            originals = getattr(flat, "_params", None) or [None] * len(flat._shapes)
            for info, shape, shard, original in zip(  # noqa: B905, Python 3.8
                flat._param_infos, flat._shapes, flat._shard_param_infos, originals
            ):
                name = self._owners.get(id(info.module), "") + info.param_name
                piece = _flat_piece(name, tuple(shape), shard, agree, owner)
                if not handle.uses_sharded_strategy:
                    piece = piece._replace(
                        where=["flat", 0, torch.Size(shape).numel()], numel=torch.Size(shape).numel()
                    )
                if original is not None:
                    found[id(original)] = [piece._replace(offset=None)]
                else:
                    found.setdefault(id(flat), []).append(piece)
        return found

    def _precisions(self, parameters: list[Any]) -> set[str]:
        """Return the data types that products are computed in, as far as the parameters and FSDP's policies tell."""
        found = {str(p.dtype) for p in parameters}
        for module in self._modules:
            policy = getattr(module, "mixed_precision", None) if _kind(module) == "FullyShardedDataParallel" else None
            if hasattr(module, "_get_fsdp_state"):
                groups = getattr(module._get_fsdp_state(), "_fsdp_param_group", None)
                policy = getattr(groups, "mp_policy", None)
            for dtype in (getattr(policy, "param_dtype", None), getattr(policy, "reduce_dtype", None)):
                if dtype is not None:
                    found.add(str(dtype))
        return found


def _kind(module: Any) -> str:
    """Return the name of the wrapper class that a module is, else of its own class."""
    names = [kind.__name__ for kind in type(module).__mro__]
    return next((name for name in names if name in _INSIDE), names[0])


def _unwrapped(module: Any) -> Any:
    while _kind(module) in _INSIDE:
        inner = module._modules.get(_INSIDE[_kind(module)])
        if inner is None:
            break
        module = inner
    return module


def _ranks(group: Any) -> tuple[int, ...]:
    return tuple(sorted(torch.distributed.get_process_group_ranks(group)))


def _ranks_that_shard(root: Any) -> tuple[int, ...] | None:
    """Return the ranks over which a model is sharded: what lies plain beside its shards has to agree on them."""
    for parameter in root.parameters():
        if hasattr(parameter, "device_mesh"):
            return tuple(sorted(parameter.device_mesh.mesh.flatten().tolist()))
    for module in root.modules():
        if _kind(module) == "FullyShardedDataParallel":
            return _ranks(module.process_group)
    return None


def _flat_piece(name: str, shape: tuple[int, ...], shard: Any, agree: tuple[int, ...] | None, owner: bool) -> Piece:
    if not shard.in_shard:
        return Piece(name, shape, ["flat", 0, 0], 0, 0, agree, owner)
    start, stop = shard.intra_param_start_idx, shard.intra_param_end_idx + 1
    return Piece(name, shape, ["flat", start, stop], shard.offset_in_shard, shard.numel_in_shard, agree, owner)


def _dtensor_piece(name: str, parameter: Any) -> list[Piece]:
    """Return the part that this rank holds of a DTensor; [] when it cannot be told or holds partial sums."""
    mesh, coordinate = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    if coordinate is None or any(placement.is_partial() for placement in parameter.placements):
        return []
    held = [torch.arange(size) for size in parameter.shape]
    owner = True
    for dimension, placement in enumerate(parameter.placements):
        if placement.is_replicate():
            owner = owner and coordinate[dimension] == 0
        else:
            at = placement.dim
            held[at] = _shard(held[at], placement, mesh.size(dimension), coordinate[dimension])
    if tuple(len(indices) for indices in held) != tuple(parameter._local_tensor.shape):
        return []
    ranks = tuple(sorted(mesh.mesh.flatten().tolist()))
    where = [_short(indices) for indices in held]
    return [Piece(name, tuple(parameter.shape), where, None, parameter._local_tensor.numel(), ranks, owner)]


def _shard(indices: torch.Tensor, placement: Any, parts: int, part: int) -> torch.Tensor:
    """Return the indices of one shard, as torch.chunk cuts them; a strided shard takes one of each of its blocks."""
    blocks = torch.chunk(indices, int(getattr(placement, "split_factor", 1)))
    chosen = [torch.chunk(block, parts) for block in blocks]
    return torch.cat([chunks[part] for chunks in chosen if part < len(chunks)] or [indices[:0]])


def _short(indices: torch.Tensor) -> list[Any]:
    """Return `[start, stop]` for consecutive indices, else a list with the list of all."""
    if len(indices) == 0:
        return [0, 0]
    start, last = int(indices[0]), int(indices[-1])
    consecutive = last - start + 1 == len(indices)
    return [start, last + 1] if consecutive else [indices.tolist()]
