"""The tool recommend_backend: complete the case from this machine, refuse nonsense, let the tables decide."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fsdp_mcp.api.history import load_history
from fsdp_mcp.backends import machine
from fsdp_mcp.backends.advice import BackendAdvice
from fsdp_mcp.backends.case import (
    Accelerator,
    Case,
    Interconnect,
    System,
    VariantRow,
    accelerator_row,
    interconnect_row,
    parse_version,
)
from fsdp_mcp.backends.decide import Wanted, decide
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.errors import BadArgument, EnvironmentProblem, did_you_mean
from fsdp_mcp.target import find_target


def recommend_backend(
    accelerator: Accelerator | None = None,
    interconnect: Interconnect | None = None,
    *,
    os: System = "linux",
    nodes: int = 1,
    devices_per_node: int = 8,
    processes_per_device: int = 1,
    ip_over_ib: bool | None = None,
    collectives: Annotated[list[str], Field(description="e.g. cpu:all_reduce, on CPU tensors")] = [],  # noqa: B006
    torch_version: str | None = None,
) -> BackendAdvice:
    """Recommend a torch.distributed backend and how to start it; without arguments, for this machine.

    Also says which collectives run where. CPU offload and async checkpoints call collectives on CPU tensors.
    """
    system = _system(accelerator, os)
    looked = machine.look() if accelerator is None or (interconnect is None and nodes > 1) else None
    found = looked if looked and looked.system == system else None
    case = Case(
        accelerator=accelerator or _found_accelerator(found, system),
        system=system,
        interconnect=interconnect or (found.interconnect if found and nodes > 1 else None),
        nodes=_at_least_one("nodes", nodes, "one machine"),
        devices_per_node=_devices(devices_per_node, accelerator, found),
        processes_per_device=_at_least_one("processes_per_device", processes_per_device, "a device for each process"),
        ip_over_ib=True if ip_over_ib is None and interconnect is None and found and found.ip_over_ib else ip_over_ib,
        torch=_torch(torch_version),
    )
    _refuse_nonsense(case, interconnect_given=interconnect is not None)
    advice = decide(case, [_parse_collective(text) for text in collectives], found)
    here = _look_reasons(case, accelerator, interconnect, found)
    return advice.model_copy(update={"reasons": (*here, *advice.reasons)})


def _system(accelerator: Accelerator | None, given: System) -> System:
    """Return the system asked about: the default stands for this machine, or for macOS when MPS is named."""
    if given != "linux":
        return given
    if accelerator is None:
        return machine.system_here()
    systems = accelerator_row(accelerator).systems
    return systems[0] if len(systems) == 1 else given


def _found_accelerator(found: machine.Machine | None, system: System) -> Accelerator:
    if found is None:
        raise BadArgument(f"accelerator: not given, and this machine does not run {system}. Name cuda, mps or cpu.")
    return found.accelerator


def _devices(given: int, accelerator: Accelerator | None, found: machine.Machine | None) -> int:
    """Return the devices a machine has: no more GPUs than were found, and one on a Mac."""
    _at_least_one("devices_per_node", given, "one device or CPU process a machine")
    if accelerator is None and found and found.accelerator != "cpu":
        return min(given, found.devices)
    return 1 if accelerator == "mps" else given


def _at_least_one(name: str, number: int, one: str) -> int:
    if number < 1:
        raise BadArgument(f"{name}: got {number}, expected at least 1. Use {name}=1 for {one}.")
    return number


def _torch(given: str | None) -> tuple[int, ...] | None:
    """Return the version to answer for: the given one, else that of the torch in use, else none.

    Raises:
        BadArgument: the given one is no version, or older than the history of torch's API goes back.
    """
    if given is not None:
        wanted, oldest = parse_version(given), load_history().releases[0]
        if wanted < parse_version(oldest):
            raise BadArgument(f"torch_version: got {given!r}, expected {oldest} or later.")
        return wanted
    try:
        version = find_target().torch_version
    except EnvironmentProblem:
        return None
    try:
        return parse_version(version) if version else None
    except BadArgument:  # a nightly such as 2.15.0a0 counts as the newest
        return None


def _refuse_nonsense(case: Case, *, interconnect_given: bool) -> None:
    """Refuse what cannot exist, saying what is wrong and what would be right."""
    accelerator = accelerator_row(case.accelerator)
    if case.system not in accelerator.systems:
        raise BadArgument(
            f"accelerator={case.accelerator!r} with os={case.system!r}: {accelerator.wrong}. Use {accelerator.right}."
        )
    if case.interconnect is None or not interconnect_given:
        return
    link = interconnect_row(case.interconnect)
    if case.system not in link.systems or case.accelerator not in link.accelerators:
        raise BadArgument(
            f"interconnect={case.interconnect!r} with accelerator={case.accelerator!r} and os={case.system!r}:"
            f" {link.wrong}. Use {link.right}."
        )


def _look_reasons(
    case: Case, accelerator: Accelerator | None, interconnect: Interconnect | None, found: machine.Machine | None
) -> list[str]:
    """Say what was found on this machine, and what was taken from it."""
    if found is None:
        return []
    what = [found.accelerator_found] if accelerator is None else []
    what += [found.network_found] if interconnect is None and case.nodes > 1 else []
    taken = " Name accelerator and interconnect if the job runs elsewhere." if case.nodes > 1 else ""
    return [f"This machine: {'; '.join(what)}.{taken}"] if what else []


def _parse_collective(text: str) -> Wanted:
    device, _, name = text.rpartition(":")
    known = {row.name: row.name for row in load_facts("collective_variants", VariantRow)}
    known |= {variant: row.name for row in load_facts("collective_variants", VariantRow) for variant in row.variants}
    if name not in known or device not in ("", "cpu"):
        bare = ", ".join(dict.fromkeys(known.values()))
        raise BadArgument(
            f"collectives: got {text!r}. {did_you_mean(name, known)}Accepted: {bare}, each also as cpu:NAME."
        )
    return Wanted(known[name], device == "cpu")
