"""Decides on a back end: the first rule that holds, and every note, variable and capability that goes with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fsdp_mcp.backends.advice import BackendAdvice, Capability, Variable
from fsdp_mcp.backends.case import (
    BackendRow,
    Case,
    CollectiveRow,
    NoteRow,
    RuleRow,
    Support,
    VariableRow,
    accelerator_row,
    backend_row,
    interconnect_row,
)
from fsdp_mcp.backends.machine import Machine
from fsdp_mcp.backends.start import start_code
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import Source

_MONITORED = "monitored_barrier"


@dataclass(frozen=True)
class Wanted:
    """A collective that the caller uses, and whether on CPU tensors."""

    name: str
    on_cpu: bool


def decide(case: Case, wanted: list[Wanted], found: Machine | None) -> BackendAdvice:
    """Return the advice for a complete case; `found` fills in the names of interfaces and adapters."""
    rule = next(row for row in load_facts("backend_rules", RuleRow) if row.when.holds(case))
    main = backend_row(rule.backend)
    device = accelerator_row(case.accelerator).device
    mixed = "cpu" not in main.devices and any(item.on_cpu for item in wanted)
    backend = f"cpu:gloo,{device}:{main.name}" if mixed else main.name
    beside = backend != "gloo" and any(item.name == _MONITORED for item in wanted)
    case = replace(case, backends=(main.name, "gloo") if mixed else (main.name,), cpu_tensors=mixed)
    notes = [row for row in load_facts("backend_notes", NoteRow) if row.when.holds(case)]
    variables = _variables(case)
    capabilities = _capabilities(main, device, mixed=mixed)
    warnings = [row.text for row in notes if row.kind == "warning"]
    warnings += [*_mismatches(case), *_gaps(capabilities, wanted, backend, device)]
    return BackendAdvice(
        backend=backend,
        device=device,
        fallback=rule.fallback,
        init_code=start_code(case, main, backend, gloo_beside=beside),
        environment=tuple(_fill(row, found) for row in variables),
        reasons=(rule.reason, *(row.text for row in notes if row.kind == "reason")),
        warnings=tuple(warnings),
        capabilities=capabilities,
        sources=_distinct([rule.source, *(row.source for row in [*notes, *variables])]),
    )


def _variables(case: Case) -> list[VariableRow]:
    """Return the first row that holds for each variable."""
    rows: dict[str, VariableRow] = {}
    for row in load_facts("network_variables", VariableRow):
        if row.when.holds(case):
            rows.setdefault(row.name, row)
    return list(rows.values())


def _fill(row: VariableRow, found: Machine | None) -> Variable:
    """Put the names that this machine has into the value, or the usual ones."""
    interface = (found.interface if found else None) or "eth0"
    adapters = ",".join(found.adapters if found else ()) or "mlx5_0"
    return Variable(name=row.name, value=row.value.format(interface=interface, adapters=adapters), why=row.why)


def _capabilities(main: BackendRow, device: str, *, mixed: bool) -> tuple[Capability, ...]:
    rows = [row for row in load_facts("collectives", CollectiveRow) if row.backend == main.name]
    gloo = {row.name: row for row in load_facts("collectives", CollectiveRow) if row.backend == "gloo"}
    return tuple(
        Capability(
            collective=row.name,
            cpu=gloo[row.name].cpu if mixed and row.name != _MONITORED else row.cpu,  # it wants a group of Gloo alone
            device=_device_support(row, main, device),
        )
        for row in rows
    )


def _device_support(row: CollectiveRow, main: BackendRow, device: str) -> Support:
    if device == "cpu":
        return row.cpu
    return row.device if device in main.devices else "no"


def _mismatches(case: Case) -> Iterator[str]:
    """Name arguments that say nothing about the case."""
    if case.nodes > 1 and case.interconnect and interconnect_row(case.interconnect).scope == "machine":
        yield (
            f"{case.interconnect} joins devices inside a machine. For the network between the {case.nodes} machines"
            " name infiniband, roce, efa or ethernet; Ethernet is assumed."
        )
    if case.nodes == 1 and case.machines == "several":
        yield f"nodes=1, but {case.interconnect} joins machines: the advice is for several; inside one it is not used."
    if case.ip_over_ib is not None and case.interconnect != "infiniband":
        yield "ip_over_ib counts with interconnect='infiniband' only; it was ignored."


def _gaps(capabilities: Iterable[Capability], wanted: Iterable[Wanted], backend: str, device: str) -> Iterator[str]:
    """Name each wanted collective that the choice does not run, with a way out."""
    by_name = {item.collective: item for item in capabilities}
    for item in dict.fromkeys(wanted):
        can = by_name[item.name]
        support = can.cpu if item.on_cpu else can.device
        where = "cpu" if item.on_cpu else device
        if item.name == _MONITORED and backend != "gloo":
            yield "monitored_barrier wants a group of Gloo alone: the code opens one beside; pass it as group."
        elif support == "no":
            way_out = "copy to the CPU and call it there" if not item.on_cpu and can.cpu == "yes" else "use Gloo for it"
            yield f"{item.name} on {where} tensors is not supported by {backend}: {way_out}."
        elif support == "experimental":
            yield f"{item.name} on {where} tensors depends on the build of {backend}."


def _distinct(sources: Iterable[Source]) -> tuple[Source, ...]:
    return tuple({source.url: source for source in sources}.values())
