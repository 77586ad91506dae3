"""Bounds of a run, and how they are set on a process. Every bound is per run unless its name says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

ADDRESS_SPACE_BYTES_PER_RANK = 8 << 30
"""On top of what a process with torch imported maps. A CPU rank that trains a small model peaks near 0.9 GiB in all;
8 GiB leaves room for thread stacks, allocator arenas and a compiler, and stops a runaway allocation at once."""

FILE_BYTES = 2 << 30
"""Largest single file a rank may write: checkpoints of models that fit a CPU run are far smaller."""

SCRATCH_BYTES = 4 << 30
"""Largest sum of all files below the scratch folder."""

OPEN_FILES_PER_RANK = 4096
"""Enough for data loaders and sharded checkpoints, below what exhausts the machine."""

PROCESSES = 256
"""All processes of a run: 16 ranks with 8 data loader workers each and compile workers stay below it."""

MEMORY_SHARE = 0.85
"""Share of the memory that was free at the start which all ranks together may use."""

FAILURE_GRACE_SECONDS = 2.0
"""How long the other ranks get to notice a failure and report it before they are ended."""

WAITING_REASONS = ("timeout", "failure", "mismatch", "deadlock")
"""Reasons to end the ranks that still run other than a limit that one of them broke."""

OUTPUT_TAIL_BYTES = 16_000
"""Kept of a rank's output: 4,000 characters of up to four bytes."""


def apply_to_this_process(address_space_bytes: int) -> None:
    """Bound address space, file size, descriptors and core dumps of this process and its children."""
    if resource is None:
        return
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES_PER_RANK)
    if hasattr(resource, "RLIMIT_AS") and address_space_bytes:
        _lower(resource.RLIMIT_AS, address_space_bytes)


def _lower(kind: int, bound: int) -> None:
    """Set both limits of `kind` to `bound`, or leave them where they are already lower."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        bound = min(bound, hard)
    try:
        resource.setrlimit(kind, (bound, bound))
    except (OSError, ValueError):  # macOS refuses some of them
        return


def address_space_bound() -> int:
    """Return the address space that a rank forked from this process may use, 0 where that is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return 0
    return int(pages * os.sysconf("SC_PAGE_SIZE")) + ADDRESS_SPACE_BYTES_PER_RANK


def free_memory_bytes() -> float:
    """Return the bytes that programs can still get on this machine, infinity where that is not known."""
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    except OSError:
        return float("inf")
    return int(rows["MemAvailable"].split()[0]) * 1024
