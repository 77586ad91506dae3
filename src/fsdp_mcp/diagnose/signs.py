"""Compares what ranks and hosts said: what follows from many lines together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import Field

from fsdp_mcp.corpus import load_facts
from fsdp_mcp.diagnose.answer import spans
from fsdp_mcp.diagnose.flight_recorder import compare
from fsdp_mcp.diagnose.page import FailurePage, Sign
from fsdp_mcp.diagnose.scan import Event, Place, Raised, Scan
from fsdp_mcp.diagnose.stacks import Stack, groups_of
from fsdp_mcp.models import Value

_COMPARED_HOSTS = {
    "net_plugin": Sign.NET_PLUGIN_DIFFERS,
    "nccl_version": Sign.NCCL_VERSION_DIFFERS,
}


class SignFound(NamedTuple):
    """A sign, the lines it rests on, and its particulars for the page's sentences."""

    sign: Sign
    places: Sequence[Place]
    parts: dict[str, str]


class CollectiveKind(Value):
    """A row of facts/log_collectives.yaml: what the name of an operation in a message says."""

    op: str
    sharding: bool = Field(description="Whether it gathers or scatters shards, as FSDP does")
    source: str


class DefaultTimeout(Value):
    """A row of facts/default_timeouts.yaml."""

    backend: str
    milliseconds: int
    source: str


def find_signs(scan: Scan, pages: Sequence[FailurePage]) -> dict[Sign, SignFound]:
    """Return what the lines of several ranks or hosts say together."""
    found = [*_recorded(scan), *_stood(scan), *_timed_out(scan), *_behind(scan), *_hosts(scan), *_raised(scan, pages)]
    return {each.sign: each for each in found}


_MOST_RANKS = 1 << 17
"""A greater number in a log is no rank: a cut line, or a number that stands where ranks do."""


def world(scan: Scan) -> int | None:
    """Return the number of ranks, where the log says it or enough ranks are seen."""
    told = [int(event.parts["size"]) for event in scan.of("", "world")]
    seen = [rank + 1 for rank in scan.ranks if rank is not None] + [dump.rank + 1 for dump in scan.dumps]
    seen += [event.place.rank + 1 for event in scan.of("", "timed_out") if event.place.rank is not None]
    return max((size for size in (*told, *seen) if size <= _MOST_RANKS), default=None)


def _recorded(scan: Scan) -> Iterator[SignFound]:
    """Compare the flight-recorder dumps."""
    compared = compare(scan.dumps)
    if compared is None:
        return
    places = [
        Place(scan.lines + record.number, record.number, dump.file, dump.rank, "", None, str(record))
        for dump, record in compared.records
    ]
    yield SignFound(compared.sign, places, compared.parts)


def _stood(scan: Scan) -> Iterator[SignFound]:
    """Compare where the processes of py-spy dumps stand."""
    groups = list(groups_of(scan.stacks))
    if len(scan.stacks) < 2 or not any(stack.collective for stack in scan.stacks):
        return
    told = "; ".join(f"{where} ({len(stacks)}: {_processes(stacks)})" for where, stacks in groups)
    places = [
        Place(
            scan.lines + number,
            stacks[0].line,
            stacks[0].file,
            stacks[0].rank,
            "",
            None,
            f"process {stacks[0].process}: {where}",
        )
        for number, (where, stacks) in enumerate(groups)
    ]
    yield SignFound(Sign.STACKS_DIFFER if len(groups) > 1 else Sign.STACKS_AGREE, places, {"stacks": told})


def _processes(stacks: Sequence[Stack]) -> str:
    """Name the ranks of processes where they are known, else the first few process numbers."""
    ranks = spans(stack.rank for stack in stacks)
    return f"rank {ranks}" if ranks else "process " + ", ".join(stack.process for stack in stacks[:4])


def _timed_out(scan: Scan) -> Iterator[SignFound]:
    """Compare the collectives in which ranks timed out: the first one of each rank."""
    first: dict[int | None, Event] = {}
    for event in scan.of("", "timed_out"):
        first.setdefault(event.place.rank, event)
    events = list(first.values())
    if not events:
        return
    places = [event.place for event in events]
    parts = {"ranks": spans(place.rank for place in places), **events[0].parts}
    if len(events) > 1:
        yield SignFound(_agreement(events), places, parts | _odd_one_out(events))
    yield from (SignFound(sign, places, parts | more) for sign, more in _kinds(events))
    size = world(scan)
    missing = sorted(set(range(size or 0)) - {place.rank for place in places if place.rank is not None})
    if missing and len(events) > 1:
        yield SignFound(Sign.RANKS_MISSING, places, {**parts, "missing": spans(missing)})


def _agreement(events: Sequence[Event]) -> Sign:
    calls = {(event.parts["seq"], event.parts["op"]) for event in events}
    sizes = {(event.parts.get("numel"), event.parts.get("shape")) for event in events}
    if len(calls) > 1:
        return Sign.TIMED_OUT_APART
    return Sign.SIZES_DIFFER if len(sizes) > 1 else Sign.TIMED_OUT_TOGETHER


def _odd_one_out(events: Sequence[Event]) -> dict[str, str]:
    """Return the rank whose collective differs from the one that all others agree on, if there is such a rank."""
    calls: dict[tuple[str | None, ...], list[Event]] = {}
    for event in events:
        calls.setdefault(tuple(event.parts.get(name) for name in ("seq", "op", "numel", "shape")), []).append(event)
    alone = [each[0].place.rank for each in calls.values() if len(each) == 1]
    if len(calls) == 2 and len(events) > 2 and len(alone) == 1 and alone[0] is not None:
        return {"rank": str(alone[0])}
    return {}


def _behind(scan: Scan) -> Iterator[SignFound]:
    """Find ranks that had not enqueued the collective that others were stuck in."""
    stuck = {event.place.rank: event for event in (*scan.of("", "stuck"), *scan.of("", "timed_out"))}
    last = {event.place.rank: event for event in scan.of("", "progress")}
    if not stuck:
        return
    number = min(int(event.parts["seq"]) for event in stuck.values())
    behind = {rank: event for rank, event in last.items() if int(event.parts["enqueued"]) < number}
    if not behind or None in behind or behind.keys() & stuck.keys():
        return
    rank, event = min(behind.items(), key=lambda item: int(item[1].parts["enqueued"]))
    waiting = next(iter(stuck.values()))
    parts = {"rank": str(rank), "behind": spans(behind), "enqueued": event.parts["enqueued"], "seq": str(number)}
    yield SignFound(Sign.RANKS_BEHIND, [event.place, waiting.place], parts)


def _kinds(events: Sequence[Event]) -> Iterator[tuple[Sign, dict[str, str]]]:
    """Yield what the collectives are, with particulars."""
    names = {row.op for row in load_facts("log_collectives", CollectiveKind) if row.sharding}
    sharding = [event for event in events if event.parts["op"] in names]
    small = [event for event in events if event.parts.get("numel") == "1" or event.parts.get("shape") == "1"]
    shortest = min(row.milliseconds for row in load_facts("default_timeouts", DefaultTimeout))
    if all(int(event.parts["seq"]) <= 1 for event in events):
        yield Sign.FIRST_COLLECTIVE, {}
    if sharding and small and len(sharding) + len(small) == len(events):
        gathering = spans(event.place.rank for event in sharding)
        yield Sign.GATHER_AGAINST_BARRIER, {"gathering": gathering, "waiting": spans(e.place.rank for e in small)}
    if all(int(event.parts["timeout_ms"]) < shortest for event in events):
        yield Sign.SHORT_TIMEOUT, {}


def _hosts(scan: Scan) -> Iterator[SignFound]:
    """Compare what the hosts report for the same thing."""
    for kind, sign in _COMPARED_HOSTS.items():
        by_value: dict[str, Place] = {}
        hosts: dict[str, set[str]] = {}
        for event in scan.of("", kind):
            by_value.setdefault(event.parts["value"], event.place)
            hosts.setdefault(event.parts["value"], set()).add(event.place.host)
        if len(by_value) > 1 and len(set.union(*hosts.values())) > 1 and not set.intersection(*hosts.values()):
            told = "; ".join(f"{value} on {', '.join(sorted(names))}" for value, names in hosts.items())
            yield SignFound(sign, list(by_value.values()), {"values": told})


def _raised(scan: Scan, pages: Sequence[FailurePage]) -> Iterator[SignFound]:
    """Tell an exception of some ranks, which the others then wait for, from one that every rank has."""
    consequences = {page.id for page in pages if page.role == "consequence" and scan.holds(page)}
    lines = {(event.place.file, event.place.line) for name in consequences for event in scan.of(name, "match")}
    own = [each for each in scan.raised() if (each.place.file, each.place.line) not in lines]
    if not own:
        return
    if refused := next((each for each in own if each.function and each.message), None):
        yield SignFound(Sign.RAISED_BY_DISTRIBUTED, [refused.place], _particulars(refused))
    ranks = {each.place.rank for each in own}
    places = [each.place for each in own]
    sign = Sign.ONE_RANK_RAISED if lines and _some_did_not(ranks, scan) else Sign.ALL_RANKS_RAISED
    yield SignFound(sign, places[:3], _particulars(own[0]))


def _some_did_not(ranks: set[int | None], scan: Scan) -> bool:
    size = world(scan)
    return None not in ranks and size is not None and len(ranks) < size


def _particulars(raised: Raised) -> dict[str, str]:
    parts = {
        "error": raised.error,
        "message": raised.message,
        "file": raised.file,
        "line": raised.line,
        "function": raised.function,
    }
    rank = {} if raised.place.rank is None else {"rank": str(raised.place.rank)}
    return {name: value for name, value in {**parts, **rank}.items() if value}
