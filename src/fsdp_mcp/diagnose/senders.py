"""Learns which rank a process, a container or a host is, from the lines in which it says so."""

from __future__ import annotations

import re

from fsdp_mcp.diagnose.prefix import Origin

_SAYS = re.compile(r"\[(?:PG [^\]]*?)?[Rr]ank[ :]? ?(\d+)\]|^(?:\[?[A-Z]+\]?:? )?[Rr]ank (\d+)\b(?! and)")
_PID = re.compile(r"pid=(\d+)")


class Senders:
    """What is known of who writes. A sender that speaks of several ranks is none of them."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], set[int]] = {}
        self._by_pid: dict[str, int] = {}

    def rank(self, origin: Origin) -> int | None:
        """Return the rank of the process, or of the host where each has one process, as far as it is known."""
        told = self._told.get((origin.host, origin.process))
        if told is not None and len(told) == 1:
            return next(iter(told))
        pid = _PID.search(origin.process)
        return self._by_pid.get(pid[1]) if pid else None

    def tell(self, origin: Origin, rank: int) -> None:
        """Note that a line of this origin is of that rank."""
        for key in ((origin.host, origin.process), (origin.host, "")):
            if key != ("", ""):
                self._told.setdefault(key, set()).add(rank)

    def tell_pid(self, pid: str, rank: int) -> None:
        """Note the rank of a process by its number."""
        self._by_pid[pid] = rank

    def listen(self, origin: Origin, text: str) -> int | None:
        """Return the rank that a line without one says it is of, and remember it."""
        said = _SAYS.search(text) if "ank" in text else None
        if said is None:
            return None
        rank = int(said[1] or said[2])
        self.tell(origin, rank)
        return rank
