"""Looks at this machine, through files alone: which accelerator and which network it has. torch is not imported."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

from fsdp_mcp.backends.case import Accelerator, Interconnect, System
from fsdp_mcp.models import Value

_IP_OVER_IB = "32"  # ARPHRD_INFINIBAND in linux/if_arp.h
_INTEL_VENDOR = "0x8086"
_DISPLAY_WITHOUT_VGA = "0x0380"  # data-center cards; integrated graphics are VGA controllers, 0x0300
_SYSTEMS: dict[str, System] = {"Windows": "windows", "Darwin": "macos"}


class Machine(Value):
    """What was found on a machine."""

    system: System
    accelerator: Accelerator
    devices: int
    interconnect: Interconnect | None
    adapters: tuple[str, ...] = ()
    interface: str | None = None
    ip_over_ib: bool = False
    accelerator_found: str
    network_found: str


def look(root: Path = Path("/"), *, system: str | None = None, machine: str | None = None) -> Machine:
    """Return what the machine below `root` has, by its device files; `system` and `machine` as platform names them."""
    name = system_here(system)
    accelerator, devices, accelerator_found = _accelerator(root, name, machine or platform.machine())
    adapters, interconnect = _adapters(root)
    interface = _default_interface(root)
    ib_interfaces = [net.name for net in _children(root / "sys/class/net") if _is_ip_over_ib(net)]
    network = [f"{interconnect} {', '.join(adapters)} (/sys/class/infiniband)"] if interconnect else []
    network += [f"interface {interface}"] if interface else []
    network += [f"IP over InfiniBand on {', '.join(ib_interfaces)}"] if ib_interfaces else []
    return Machine(
        system=name,
        accelerator=accelerator,
        devices=devices,
        interconnect=interconnect,
        adapters=adapters,
        interface=interface,
        ip_over_ib=bool(ib_interfaces),
        accelerator_found=accelerator_found,
        network_found="; ".join(network) or "no RDMA adapter",
    )


def system_here(name: str | None = None) -> System:
    """Return the operating system, from `name` or as platform names it; whatever is unknown counts as Linux."""
    return _SYSTEMS.get(name or platform.system(), "linux")


def _accelerator(root: Path, system: System, machine: str) -> tuple[Accelerator, int, str]:
    if system == "macos":
        return ("mps", 1, "Apple silicon") if machine == "arm64" else ("cpu", 1, "an Intel Mac without MPS")
    if system == "windows":
        driver = root / "Windows/System32/nvcuda.dll"
        return ("cuda", 1, f"the NVIDIA driver ({driver})") if driver.is_file() else ("cpu", 1, "no GPU driver")
    if gpus := _nvidia_gpus(root):
        return "cuda", gpus, f"{gpus} NVIDIA GPU{'s' * (gpus > 1)} (/proc/driver/nvidia, /dev/nvidia*)"
    if gpus := _amd_gpus(root):
        return "rocm", gpus, f"{gpus} AMD GPU{'s' * (gpus > 1)} (/dev/kfd)"
    if gpus := _intel_gpus(root):
        return "xpu", gpus, f"{gpus} Intel GPU{'s' * (gpus > 1)} (/sys/class/drm)"
    return "cpu", 1, "no GPU (/proc/driver/nvidia, /dev/nvidia*, /dev/kfd, /sys/class/drm)"


def _nvidia_gpus(root: Path) -> int:
    listed = len(list(_children(root / "proc/driver/nvidia/gpus")))
    return listed or sum(device.name[6:].isdecimal() for device in _children(root / "dev", "nvidia*"))


def _amd_gpus(root: Path) -> int:
    if not (root / "dev/kfd").exists():
        return 0
    nodes = _children(root / "sys/class/kfd/kfd/topology/nodes")
    return sum(_read(node / "gpu_id") not in ("", "0") for node in nodes)  # CPUs are nodes, too: their gpu_id is 0


def _intel_gpus(root: Path) -> int:
    cards = [card / "device" for card in _children(root / "sys/class/drm", "card*") if "-" not in card.name]
    return sum(
        _read(card / "vendor") == _INTEL_VENDOR and _read(card / "class").startswith(_DISPLAY_WITHOUT_VGA)
        for card in cards
    )


def _adapters(root: Path) -> tuple[tuple[str, ...], Interconnect | None]:
    """Return the RDMA adapters of the best kind present, and that kind."""
    kinds: dict[Interconnect, list[str]] = {}
    for adapter in _children(root / "sys/class/infiniband"):
        kinds.setdefault(_kind(adapter), []).append(adapter.name)
    order: tuple[Interconnect, ...] = ("infiniband", "efa", "roce")
    best = next((kind for kind in order if kind in kinds), None)
    return (tuple(kinds[best]), best) if best else ((), None)


def _kind(adapter: Path) -> Interconnect:
    if (adapter / "device/driver").resolve().name == "efa":
        return "efa"
    layers = {_read(port / "link_layer") for port in _children(adapter / "ports")}
    return "infiniband" if "InfiniBand" in layers else "roce"


def _is_ip_over_ib(net: Path) -> bool:
    return _read(net / "type") == _IP_OVER_IB and _read(net / "operstate") == "up"


def _default_interface(root: Path) -> str | None:
    """Return the interface of the default route, else the first one that is not the loopback."""
    for line in _read(root / "proc/net/route").splitlines()[1:]:
        interface, destination, *_ = line.split()
        if destination == "00000000":
            return interface
    return next((net.name for net in _children(root / "sys/class/net") if net.name != "lo"), None)


def _children(folder: Path, pattern: str = "*") -> Iterator[Path]:
    return iter(sorted(folder.glob(pattern)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
