"""Simulates one rank of a large world, and reads what it reported."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from fsdp_mcp.errors import BadArgument
from fsdp_mcp.lab import Program
from fsdp_mcp.simulated import (
    SimulatedBytes,
    SimulatedCollective,
    SimulatedMesh,
    SimulatedParameter,
    SimulatedRank,
    Simulation,
)
from fsdp_mcp.verify.launch import Facts
from fsdp_mcp.verify.rank_side.collective_log import Call, read_steps

MOST_RANKS = 4096
_MAKES_GROUP = ("init_process_group", "new_group")
_MOST_NOTE = 300
_KEYS = ("world_size", "rank")


def simulated_rank(given: dict[str, int] | int, nodes: int) -> SimulatedRank:
    """Return which rank to simulate: a world size alone means its rank 0."""
    wanted = {"world_size": given} if isinstance(given, int) else given
    example = 'Give a world size such as 64, or {"world_size": 64, "rank": 3}.'
    if "world_size" not in wanted or not set(wanted) <= set(_KEYS):
        raise BadArgument(f"simulate: got {wanted!r}, expected world_size and rank. {example}")
    world_size, rank = wanted["world_size"], wanted.get("rank", 0)
    if not 1 <= world_size <= MOST_RANKS:
        raise BadArgument(f"simulate: got world_size {world_size:,}, expected 1 to {MOST_RANKS:,}. {example}")
    if not 0 <= rank < world_size:
        raise BadArgument(f"simulate: got rank {rank}, expected 0 to {world_size - 1} in a world of {world_size}.")
    if world_size % nodes:
        raise BadArgument(f"nodes={nodes} does not divide the simulated world of {world_size}. Give a divisor.")
    return SimulatedRank(world_size, rank)


def with_real_tensors(program: Program) -> Program:
    """Return the same simulation with tensors that have values."""
    assert program.simulated is not None
    return replace(program, simulated=replace(program.simulated, tensors="real"))


def with_note(simulation: Simulation, note: str) -> Simulation:
    """Return a simulation with a note put first."""
    return simulation.model_copy(update={"notes": (note[:_MOST_NOTE], *simulation.notes)})


def failed_for_want_of_values(facts: Facts) -> bool:
    """Return whether torch refused something because a fake tensor has no values."""
    error = facts.ranks[0]["error"]
    return bool(error and error.get("by_simulation"))


def read(facts: Facts, which: SimulatedRank) -> Simulation:
    """Return what the simulated rank reported; the folder of the run still has to be there."""
    reports = facts.folders.scratch / "reports"
    found = _report(reports / "simulation0")
    rows = [row for row in found.get("parameters", []) if isinstance(row, dict)]
    meshes = [row for row in found.get("meshes", []) if isinstance(row, dict)]
    parameters = tuple(SimulatedParameter.model_validate(row) for row in rows)
    return Simulation(
        world_size=which.world_size,
        rank=which.rank,
        tensors=which.tensors,
        steps=int(found.get("steps", 0)),
        mesh=tuple(_mesh(row, facts) for row in meshes),
        parameters=parameters,
        bytes=SimulatedBytes(
            parameters=sum(one.local_bytes for one in parameters),
            gradients=found.get("gradient_bytes"),
            optimizer_state=found.get("state_bytes"),
            whole_parameters=sum(one.bytes for one in parameters),
        ),
        collectives=_collectives(reports / "collectives0", meshes, int(found.get("steps", 0))),
        notes=tuple(str(note) for note in found.get("notes", ())),
    )


def _report(path: Path) -> dict[str, Any]:
    """Return what the rank wrote, {} when it was ended before it could."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _mesh(row: dict[str, Any], facts: Facts) -> SimulatedMesh:
    file = row["file"]
    for root in facts.folders.roots:
        with contextlib.suppress(ValueError):
            file = Path(file).relative_to(root).as_posix() if file else None
            break
    return SimulatedMesh.model_validate({**{key: row[key] for key in row if key != "groups"}, "file": file})


def _collectives(log: Path, meshes: list[dict[str, Any]], made: int) -> tuple[SimulatedCollective, ...]:
    """Return the calls before training, and those of the step that is made most often; all where none was made."""
    setup, *steps = read_steps(log)
    if not made:
        setup, steps = [call for part in (setup, *steps) for call in part], []
    names = _dimension_names(meshes)
    ended = steps[:-1]  # what comes after the last step is none
    counted = [Counter(_key(call, names) for call in step if call.kind not in _MAKES_GROUP) for step in ended]
    counted = [step for step in counted if step]
    usual = Counter(frozenset(step.items()) for step in reversed(counted)).most_common(1)  # of equals, the latest
    rows = [("setup", Counter(_key(call, names) for call in setup if call.kind not in _MAKES_GROUP))]
    rows += [("step", Counter(dict(usual[0][0])))] if usual else []
    return tuple(made for phase, calls in rows for made in _totals(phase, calls))


_Key = tuple[str, int, str | None, int]


def _key(call: Call, names: dict[tuple[int, ...], str]) -> _Key:
    return call.kind, len(call.ranks), names.get(call.ranks), call.size


def _totals(phase: Any, calls: Counter[_Key]) -> list[SimulatedCollective]:
    sums: dict[tuple[str, int, str | None], list[int]] = {}
    for (kind, group_size, name, size), count in calls.items():
        entry = sums.setdefault((kind, group_size, name), [0, 0])
        entry[0] += count
        entry[1] += count * size
    return [
        SimulatedCollective(
            phase=phase, kind=kind, group_size=group_size, mesh_dimension=name, count=count, bytes=total
        )
        for (kind, group_size, name), (count, total) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]


def _dimension_names(meshes: list[dict[str, Any]]) -> dict[tuple[int, ...], str]:
    """Return the name of the mesh dimension that a group of ranks belongs to."""
    found: dict[tuple[int, ...], str] = {}
    for mesh in meshes:
        for name, ranks in zip(mesh["names"], mesh["groups"], strict=False):
            found.setdefault(tuple(sorted(ranks)), name)
    return found
