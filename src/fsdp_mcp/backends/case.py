"""The case that is asked about, and the rows of the fact tables that are matched against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.errors import BadArgument
from fsdp_mcp.models import Source, Value

Accelerator = Literal["cuda", "rocm", "xpu", "mps", "cpu"]
Interconnect = Literal["infiniband", "roce", "efa", "ethernet", "nvlink", "pcie"]
System = Literal["linux", "windows", "macos"]
Support = Literal["yes", "no", "experimental"]
Count = Literal["one", "several"]


@dataclass(frozen=True)
class Case:
    """What a back end is wanted for; `backends` and `cpu_tensors` are filled in once they are known."""

    accelerator: Accelerator
    system: System
    interconnect: Interconnect | None
    nodes: int
    devices_per_node: int
    processes_per_device: int
    ip_over_ib: bool | None
    torch: tuple[int, ...] | None
    backends: tuple[str, ...] = ()
    cpu_tensors: bool = False

    @property
    def machines(self) -> Count:
        """Whether it is about one machine; who names a network asks about several, whatever `nodes` says."""
        link = interconnect_row(self.interconnect) if self.interconnect else None
        return "several" if self.nodes > 1 or (link and link.scope == "network") else "one"

    @property
    def processes_per_node(self) -> int:
        """How many processes a launcher starts on each machine."""
        return self.devices_per_node * self.processes_per_device


class When(Value):
    """Conditions on a case; one that is absent always holds."""

    accelerators: tuple[Accelerator, ...] = ()
    systems: tuple[System, ...] = ()
    interconnects: tuple[Interconnect, ...] = ()
    backends: tuple[str, ...] = Field(default=(), description="Any of them is in use")
    nodes: Count | None = None
    processes: Count | None = Field(default=None, description="Processes that share a device")
    ip_over_ib: bool | None = None
    ip_over_ib_unknown: bool | None = None
    cpu_tensors: bool | None = None
    torch_before: str | None = Field(default=None, description="Holds for a known torch that is older")

    def holds(self, case: Case) -> bool:
        """Return whether every condition is met."""
        return all(
            (
                not self.accelerators or case.accelerator in self.accelerators,
                not self.systems or case.system in self.systems,
                not self.interconnects or case.interconnect in self.interconnects,
                not self.backends or bool(set(self.backends) & set(case.backends)),
                self.nodes in (None, case.machines),
                self.processes in (None, "one" if case.processes_per_device == 1 else "several"),
                self.ip_over_ib in (None, case.ip_over_ib),
                self.ip_over_ib_unknown in (None, case.ip_over_ib is None),
                self.cpu_tensors in (None, case.cpu_tensors),
                self.torch_before is None or _older(case.torch, self.torch_before),
            )
        )


def _older(torch: tuple[int, ...] | None, version: str) -> bool:
    return torch is not None and torch < parse_version(version)


def parse_version(text: str) -> tuple[int, ...]:
    """Return `2.13.0+cpu` as (2, 13).

    Raises:
        BadArgument: it is not a version of the form X.Y or X.Y.Z.
    """
    parts = text.partition("+")[0].split(".")
    if not 2 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts):
        raise BadArgument(f"torch_version: got {text!r}, expected X.Y or X.Y.Z such as 2.13.")
    return tuple(int(part) for part in parts[:2])


class Fallback(Value):
    """What to use when the recommended back end does not work out."""

    backend: str
    when: str = Field(description="The case for it")


class BackendRow(Value):
    """A back end."""

    name: str
    library: str
    devices: tuple[str, ...]
    interface: str | None = None
    since: str | None = None
    form: str
    package: str | None = None
    summary: str
    source: Source


class AcceleratorRow(Value):
    """An accelerator, its torch device type and the systems it works on."""

    name: Accelerator
    title: str
    device: str
    systems: tuple[System, ...]
    device_id_since: str | None = None
    wrong: str = ""
    right: str = ""
    source: Source


class InterconnectRow(Value):
    """A link between devices or machines."""

    name: Interconnect
    title: str
    scope: Literal["machine", "network"]
    systems: tuple[System, ...]
    accelerators: tuple[Accelerator, ...]
    wrong: str = ""
    right: str = ""


class RuleRow(Value):
    """A rule that decides on a back end."""

    when: When
    backend: str
    fallback: Fallback | None = None
    reason: str
    source: Source


class NoteRow(Value):
    """Something else to know in a case."""

    when: When
    kind: Literal["reason", "warning"]
    text: str
    source: Source


class VariableRow(Value):
    """An environment variable that helps in a case."""

    name: str
    when: When
    value: str
    why: str
    source: Source


class CollectiveRow(Value):
    """Which tensors a back end takes for a collective."""

    backend: str
    name: str
    cpu: Support
    device: Support
    note: str | None = None
    source: Source


class VariantRow(Value):
    """The further names of a collective."""

    name: str
    variants: tuple[str, ...]


def accelerator_row(name: Accelerator) -> AcceleratorRow:
    """Return what is known of an accelerator."""
    rows: tuple[AcceleratorRow, ...] = load_facts("accelerators", AcceleratorRow)
    return next(row for row in rows if row.name == name)


def interconnect_row(name: Interconnect) -> InterconnectRow:
    """Return what is known of an interconnect."""
    rows: tuple[InterconnectRow, ...] = load_facts("interconnects", InterconnectRow)
    return next(row for row in rows if row.name == name)


def backend_row(name: str) -> BackendRow:
    """Return what is known of a back end."""
    rows: tuple[BackendRow, ...] = load_facts("backends", BackendRow)
    return next(row for row in rows if row.name == name)
