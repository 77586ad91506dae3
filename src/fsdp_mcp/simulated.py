"""What the simulation of one rank of a large world tells."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from fsdp_mcp.models import Value

Tensors = Literal["fake", "real"]


@dataclass(frozen=True)
class SimulatedRank:
    """Which rank of which world to simulate.

    Args:
        world_size: 1 to 4,096.
        rank: below world_size.
        tensors: fake ones have shapes and no values; real ones hold what one process alone computes.
    """

    world_size: int
    rank: int
    tensors: Tensors = "fake"


class SimulatedMesh(Value):
    """A device mesh that the rank made."""

    shape: tuple[int, ...]
    names: tuple[str, ...] = Field(description="Of its dimensions, [] where there are none")
    part: bool = Field(description="Whether it is cut out of another mesh")
    coordinate: tuple[int, ...] | None = Field(description="Of the rank, null where it is not part of the mesh")
    file: str | None = None
    line: int | None = None


class UnevenDimension(Value):
    """A dimension of a parameter whose shards differ in size."""

    dimension: int
    size: int
    held: tuple[tuple[int, int], ...] = Field(description="Pairs: indices held, by how many of the ranks that share it")
    in_order: bool = Field(description="Whether the ranks of the group hold them in this order, the first ranks first")


class SimulatedParameter(Value):
    """A parameter and the part of it that the rank holds."""

    name: str = Field(description="Without the names of wrappers")
    shape: tuple[int, ...] = Field(description="Of the whole parameter")
    dtype: str
    placements: tuple[str, ...] = Field(description="For each dimension of its mesh, [] where it is no DTensor")
    over: tuple[int, ...] = Field(description="Shape of its mesh")
    local_shape: tuple[int, ...]
    bytes: int = Field(description="Of the whole parameter")
    local_bytes: int
    uneven: tuple[UnevenDimension, ...] = ()


class SimulatedBytes(Value):
    """What the rank holds."""

    parameters: int
    gradients: int | None = Field(description="At the first optimizer step; null when there was none")
    optimizer_state: int | None = Field(description="After an optimizer step; null when there was none")
    whole_parameters: int = Field(description="Of the model on one rank, unsharded")


class SimulatedCollective(Value):
    """One kind of collective, send or receive on groups of one size."""

    phase: Literal["setup", "step"] = Field(description="step: one steady step; setup: all before the first")
    kind: str
    group_size: int
    mesh_dimension: str | None = Field(description="Name of the dimension whose group it is")
    count: int
    bytes: int = Field(description="Of the larger side, all calls together")


class Simulation(Value):
    """One rank on fake process groups: shapes, bytes and calls. It computes nothing and proves no result right."""

    world_size: int
    rank: int
    tensors: Tensors
    steps: int = Field(description="Of the optimizer that were simulated")
    mesh: tuple[SimulatedMesh, ...]
    parameters: tuple[SimulatedParameter, ...]
    bytes: SimulatedBytes
    collectives: tuple[SimulatedCollective, ...]
    notes: tuple[str, ...] = Field(description="What was done otherwise than in a real run")

    def title(self) -> str:
        """Say what was simulated."""
        return f"simulation of rank {self.rank} of {self.world_size} with {self.tensors} tensors"

    def lines(self) -> list[str]:
        """Return mesh, bytes, largest parameters, collectives of a step, uneven shards and notes."""
        lines = [self._meshes(), self._bytes(), *self._largest(), *self._collectives(), *self._uneven()]
        notes = "; ".join(note if len(note) <= _MOST_NOTE else f"{note[:_MOST_NOTE]}..." for note in self.notes[:4])
        return [line for line in (*lines, notes and f"Notes: {notes}") if line]

    def _meshes(self) -> str:
        shown = dict.fromkeys(self._mesh(mesh) for mesh in self.mesh if not mesh.part)
        return f"Mesh: {'; '.join(list(shown)[:_SHOWN_MESHES])}" if shown else "No device mesh was made."

    def _mesh(self, mesh: SimulatedMesh) -> str:
        """Describe a mesh, with the ranks that it leaves out."""
        names = mesh.names or tuple(f"dimension {number}" for number in range(len(mesh.shape)))
        shape = " x ".join(f"{name} {length}" for name, length in zip(names, mesh.shape, strict=False))
        ranks = math.prod(mesh.shape)
        missing = (
            f", **{self.world_size - ranks} of {self.world_size} ranks left out**" if self.leaves_out(mesh) else ""
        )
        return f"{shape}{missing} ({mesh.file}:{mesh.line})" if mesh.file else f"{shape}{missing}"

    def leaves_out(self, mesh: SimulatedMesh) -> bool:
        """Return whether a mesh has fewer ranks than the world: its size does not fit."""
        return not mesh.part and math.prod(mesh.shape) < self.world_size

    def _bytes(self) -> str:
        held = self.bytes
        if not self.parameters:
            return "No parameters were found."
        parts = [f"parameters {size(held.parameters)} of {size(held.whole_parameters)}"]
        parts += [f"gradients {size(held.gradients)}"] if held.gradients is not None else []
        parts += [f"optimizer state {size(held.optimizer_state)}"] if held.optimizer_state is not None else []
        return f"Rank {self.rank} holds: {', '.join(parts)}"

    def _largest(self) -> list[str]:
        by_size = sorted(self.parameters, key=lambda one: -one.bytes)
        groups: dict[tuple[object, ...], list[SimulatedParameter]] = {}
        for one in by_size:
            groups.setdefault((one.shape, one.placements, one.local_shape), []).append(one)
        return [f"- {_parameter(alike)}" for alike in list(groups.values())[:_SHOWN_PARAMETERS]]

    def _collectives(self) -> list[str]:
        found = [one for one in self.collectives if (one.phase == "step") == (self.steps > 0)]
        what = "Each step" if self.steps else "No optimizer step was made. In all"
        if not found:
            return [f"{what}: no collective"]
        shown = sorted(found, key=lambda one: -one.bytes)
        more = len(shown) - _SHOWN_COLLECTIVES
        texts = [_collective(one) for one in shown[:_SHOWN_COLLECTIVES]] + ([f"{more} more"] if more > 0 else [])
        return [f"{what}: {'; '.join(texts)}"]

    def _uneven(self) -> list[str]:
        """Say which parameters are cut unevenly, those alike in one line."""
        groups: dict[str, list[str]] = {}
        for one in self.parameters:
            for uneven in one.uneven:
                groups.setdefault(_held(uneven), []).append(one.name)
        counted = Counter({text: len(names) for text, names in groups.items()})
        lines = [f"**Uneven**: {_few(groups[text])}: {text}" for text, _ in counted.most_common(_SHOWN_UNEVEN)]
        more = len(groups) - _SHOWN_UNEVEN
        return [*lines, *([f"**Uneven**: {more} more sizes"] if more > 0 else [])]


_SHOWN_MESHES = 3
_SHOWN_PARAMETERS = 3
_SHOWN_COLLECTIVES = 4
_SHOWN_UNEVEN = 2
_MOST_NOTE = 160


def size(count: int) -> str:
    """Return bytes in the largest unit that leaves a number of at least 1."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def _parameter(alike: list[SimulatedParameter]) -> str:
    one = alike[0]
    more = f" and {len(alike) - 1} alike" if len(alike) > 1 else ""
    where = f" {', '.join(one.placements)}" if one.placements else ""
    return f"{one.name}{more}: {list(one.shape)} {one.dtype}{where} -> {list(one.local_shape)}, {size(one.local_bytes)}"


def _collective(one: SimulatedCollective) -> str:
    who = f" ({one.mesh_dimension})" if one.mesh_dimension else ""
    return f"{one.count} {one.kind} over {one.group_size}{who}, {size(one.bytes)}"


def _held(uneven: UnevenDimension) -> str:
    parts = [f"{indices or 'nothing'} on {ranks}" for indices, ranks in uneven.held]
    if uneven.in_order:
        parts[-1] = parts[-1].replace(" on ", " on the last ")
    return f"dimension {uneven.dimension} of {uneven.size}: {', '.join(parts)} ranks"


def _few(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
