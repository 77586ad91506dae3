"""Looks at what a simulated rank holds: meshes, shards of parameters, bytes of gradients and optimizer state."""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from .cuda_patch import wrap
from .numbers_layout import Layout, Piece

MOST_PARAMETERS = 20_000


class _Names(Layout):
    """Names of parameters alone."""

    def _piece(self, parameter: Any) -> list[Piece]:
        return []


class Inspector:
    """Collects what is reported of one rank."""

    def __init__(self, is_users: Callable[[str], bool]) -> None:
        self.optimizers: list[Any] = []
        self._is_users = is_users
        self._meshes: list[dict[str, Any]] = []
        self._gradient_bytes: int | None = None
        self._state_bytes: int | None = None
        self._rows: list[dict[str, Any]] | None = None

    def watch_meshes(self) -> None:
        """Remember every device mesh that is made, and the user's line."""

        def made(original: Any, mesh: Any, *args: Any, **kwargs: Any) -> None:
            original(mesh, *args, **kwargs)
            with no_dispatch(), contextlib.suppress(AttributeError, RuntimeError, ValueError):
                self._note_mesh(mesh)  # which fails for a mesh without groups

        wrap(torch.distributed.device_mesh.DeviceMesh, "__init__", made)

    def _note_mesh(self, mesh: Any) -> None:
        """Describe a mesh while its groups are there; one with the shape and groups of another is left out."""
        coordinate = mesh.get_coordinate()
        file, line = self._users_line()
        row = {
            "shape": [int(size) for size in mesh.mesh.shape],
            "names": list(mesh.mesh_dim_names or ()),
            "part": getattr(mesh, "_root_mesh", None) not in (None, mesh),
            "coordinate": list(coordinate) if coordinate is not None else None,
            "groups": [_ranks_along(mesh, dimension) for dimension in range(mesh.mesh.dim())],
            "file": file,
            "line": line,
        }
        if all(row["shape"] != known["shape"] or row["groups"] != known["groups"] for known in self._meshes):
            self._meshes.append(row)

    def _users_line(self) -> tuple[str | None, int | None]:
        frame = sys._getframe(1)
        while frame is not None:
            if self._is_users(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return None, None

    def gradients(self) -> None:
        """Take the bytes of all gradients as they are now."""
        self._gradient_bytes = sum(_bytes(p.grad) for p in self._trained() if p.grad is not None)

    def state(self) -> None:
        """Take the bytes of the optimizers' state as they are now."""
        held = itertools.chain.from_iterable(entry.values() for o in self.optimizers for entry in o.state.values())
        self._state_bytes = sum(_bytes(value) for value in held if isinstance(value, torch.Tensor))
        self.parameters()

    def parameters(self) -> None:
        """Describe the parameters as they are now."""
        self._rows = self._parameters()

    def _trained(self) -> list[Any]:
        found = {id(p): p for o in self.optimizers for group in o.param_groups for p in group["params"]}
        return list(found.values())

    def found(self) -> dict[str, Any]:
        """Return what is known now."""
        rows = self._rows if self._rows is not None else self._parameters()
        return {
            "meshes": self._meshes,
            "parameters": rows[:MOST_PARAMETERS],
            "gradient_bytes": self._gradient_bytes,
            "state_bytes": self._state_bytes,
        }

    def _parameters(self) -> list[dict[str, Any]]:
        """Return a row for each parameter of every module alive, or of the optimizers where they hold others."""
        parameters = {id(p): p for p in self._trained()}
        for module in [value for value in gc.get_objects() if issubclass(type(value), torch.nn.Module)]:
            for parameter in module._parameters.values():
                if parameter is not None:
                    parameters.setdefault(id(parameter), parameter)
        held = list(parameters.values())
        initialised = torch.distributed.is_initialized()
        layout = _Names(held, torch.distributed.get_rank() if initialised else 0) if held else None
        return [_row(layout, p) for p in held] if layout else []


def _ranks_along(mesh: Any, dimension: int) -> list[int]:
    """Return the global ranks of this rank's group along a dimension; [] where it is in none."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return []
    at = tuple(slice(None) if number == dimension else index for number, index in enumerate(coordinate))
    return [int(rank) for rank in mesh.mesh[at].tolist()]


def _bytes(tensor: Any) -> int:
    held = getattr(tensor, "_local_tensor", tensor)
    return int(held.numel()) * int(held.element_size())


def _whole_shape(layout: Layout, parameter: Any) -> list[int]:
    """Return the shape of the whole parameter; FSDP1 holds a flat part of one or of several that it put together."""
    flat = layout.pieces.get(id(parameter), [])
    if len(flat) == 1:
        return list(flat[0].shape)
    return [sum(torch.Size(piece.shape).numel() for piece in flat)] if flat else list(parameter.shape)


def _row(layout: Layout, parameter: Any) -> dict[str, Any]:
    """Describe one parameter and the part of it that this rank holds."""
    shape = _whole_shape(layout, parameter)
    held = getattr(parameter, "_local_tensor", parameter)
    placements = getattr(parameter, "placements", None)
    return {
        "name": layout.name(parameter),
        "shape": shape,
        "dtype": str(parameter.dtype).replace("torch.", ""),
        "placements": [str(placement) for placement in placements] if placements is not None else [],
        "over": [int(size) for size in parameter.device_mesh.shape] if placements is not None else [],
        "local_shape": list(held.shape),
        "bytes": torch.Size(shape).numel() * int(parameter.element_size()),
        "local_bytes": _bytes(parameter),
        "uneven": _uneven(parameter) if placements is not None else [],
    }


def _uneven(parameter: Any) -> list[dict[str, Any]]:
    """Return, for each dimension that is not cut evenly, how many ranks hold how many of its indices."""
    shards: dict[int, list[tuple[bool, int]]] = {}
    for number, placement in enumerate(parameter.placements):
        if placement.is_shard() or hasattr(placement, "split_factor"):
            strided = hasattr(placement, "split_factor")
            shards.setdefault(placement.dim, []).append((not strided, parameter.device_mesh.size(number)))
    rows = []
    for dimension, parts in shards.items():
        sizes = Counter({int(parameter.shape[dimension]): 1})
        # A strided shard was cut first though it stands last: the dimensions of tensor parallelism before FSDP's.
        for _, count in sorted(parts, key=lambda part: not part[0]):
            sizes = _cut_again(sizes, count)
        if len(sizes) > 1:
            held = [[size, ranks] for size, ranks in sorted(sizes.items(), reverse=True)]
            rows.append(
                {
                    "dimension": dimension,
                    "size": int(parameter.shape[dimension]),
                    "held": held,
                    "in_order": len(parts) == 1,
                }
            )
    return rows


def _cut_again(sizes: Counter[int], parts: int) -> Counter[int]:
    """Return the sizes, and how many ranks hold each, after every piece has been cut once more."""
    cut: Counter[int] = Counter()
    for size, ranks in sizes.items():
        for piece, times in _cut(size, parts).items():
            cut[piece] += ranks * times
    return cut


def _cut(size: int, parts: int) -> Counter[int]:
    """Return how many parts have which size, as torch.chunk cuts, with empty parts at the end."""
    chunk = -(-size // parts)
    if not chunk:
        return Counter({0: parts})
    full, rest = divmod(size, chunk)
    cut = Counter({chunk: full, rest: 1 if rest else 0, 0: parts - full - (1 if rest else 0)})
    return +cut
