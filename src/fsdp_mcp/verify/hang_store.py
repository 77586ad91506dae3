"""Tells ranks that look for the store of their group where no process holds one: they wait all together."""

from __future__ import annotations

from collections.abc import Sequence

from fsdp_mcp.lab import RankReport, Waiting
from fsdp_mcp.verify.launch import Facts
from fsdp_mcp.verify.rank_side.collective_watch import threads

_MEETING = "torch/distributed/rendezvous.py"


def looking_for_a_store(facts: Facts, reports: Sequence[RankReport]) -> tuple[Waiting, ...]:
    """Return the ranks, all of them, if each was still looking for the store when time ran out; else nothing."""
    ranks = tuple(range(len(reports)))
    found = []
    for fact, rank in zip(facts.ranks, reports, strict=True):
        main, stacks = threads(fact["stack"])
        innermost = stacks.get(main, [])[:1]
        meets = fact["ended_by"] == "timeout" and any(frame.file.endswith(_MEETING) for frame in innermost)
        if not meets or rank.stuck_at is None:
            return ()
        place = rank.stuck_at.model_dump(include={"file", "line", "code"})
        collective = rank.collective or "init_process_group"
        found.append(Waiting(rank=rank.rank, collective=collective, group=ranks, shape=(), sequence=1, **place))
    return tuple(found)
