"""Reads flight-recorder dumps without executing anything in them, and compares what the ranks recorded.

The files are pickles or JSON: https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html and
https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html describe them.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from fsdp_mcp.diagnose.answer import spans
from fsdp_mcp.diagnose.page import Sign
from fsdp_mcp.errors import FsdpMcpError

_MOST_BYTES = 256 << 20
_PICKLE = b"\x80"
_PLAIN = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "MEMOIZE", "NONE", "NEWTRUE", "NEWFALSE"),
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET"),
        *("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE", "LIST", "DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("APPEND", "APPENDS", "SETITEM", "SETITEMS", "DUP"),
    )
)
"""Instructions that build numbers, texts, lists, tuples and dictionaries; all others could name code."""
_SAME_SIZES = re.compile(r"all_?reduce|broadcast|all_?gather|reduce_scatter|^reduce$")
_NOT_SIZED = re.compile(r"barrier|all_?to_?all|coalesced")
_RANK = re.compile(r"(\d+)(?:\.\w+)*$")


class BrokenDump(FsdpMcpError):
    """A file that is no flight-recorder dump, or holds more than plain data."""


class Recorded(NamedTuple):
    """One collective that a rank called."""

    group: str
    sequence: int
    kind: str
    sizes: str
    dtypes: str
    done: bool
    created: int
    place: str
    """The user's innermost file and line, or an empty string."""
    number: int
    """Of the record in the dump, from 1."""

    def __str__(self) -> str:
        """Say it in one line."""
        state = "completed" if self.done else "not completed"
        where = f" at {self.place}" if self.place else ""
        return f"{self.kind} number {self.sequence} of group {self.group}, {self.sizes} {self.dtypes}{where}: {state}"


class Dump(NamedTuple):
    """What one rank recorded."""

    rank: int
    file: str
    records: Sequence[Recorded]
    members: Mapping[str, frozenset[int]]
    """Ranks of each group, as far as the dump tells."""


class Compared(NamedTuple):
    """What the dumps of several ranks say together."""

    sign: Sign
    records: Sequence[tuple[Dump, Recorded]]
    parts: dict[str, str]


# --- reading -------------------------------------------------------------------------------------------------------


def is_dump(path: Path) -> bool:
    """Return whether a file looks like a dump: a pickle, or JSON with the recorder's keys."""
    with path.open("rb") as stream:
        start = stream.read(256)
    return start.startswith(_PICKLE) or (start.startswith(b"{") and b'"comm_lib_version"' in start)


def read_dump(path: Path, *, position: int = 0) -> Dump:
    """Return what a dump holds; its rank is the number at the end of the file's name, else `position`.

    Raises:
        BrokenDump: the file is too large, cut off, no dump, or holds more than plain data.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise BrokenDump(f"{path.name}: larger than {_MOST_BYTES >> 20} MB, so it is not read.")
    data = path.read_bytes()
    try:
        content = plain_data(data) if data.startswith(_PICKLE) else json.loads(data)
        records = [_recorded(entry, number) for number, entry in enumerate(content["entries"], start=1)]
        members = {name: _members(group) for name, group in content.get("pg_config", {}).items() if name}
    except BrokenDump as error:
        raise BrokenDump(f"{path.name}: {error}") from error
    except Exception as error:  # whatever a damaged file makes the reader stumble over
        raise BrokenDump(f"{path.name}: no flight-recorder dump ({type(error).__name__}: {error}).") from error
    named = _RANK.search(path.name)
    rank = int(named[1]) if named else position
    return Dump(rank, str(path), records, {name: ranks for name, ranks in members.items() if ranks})


def plain_data(data: bytes) -> Any:
    """Unpickle numbers, texts, lists, tuples and dictionaries, and refuse everything else before building anything.

    Raises:
        BrokenDump: an instruction would call code, or asks for more memory than the data can fill.
    """
    for count, (operation, argument, _) in enumerate(pickletools.genops(data), start=1):
        if operation.name not in _PLAIN:
            raise BrokenDump(f"holds {operation.name}, which could run code, so it is not read.")
        if operation.name.endswith("PUT") and int(argument or 0) > count:
            raise BrokenDump("asks for more memory than it can fill, so it is not read.")
    return _PlainUnpickler(io.BytesIO(data)).load()


class _PlainUnpickler(pickle.Unpickler):
    """Finds no class and no function, should an instruction have been overlooked."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse."""
        raise BrokenDump(f"names {module}.{name}, so it is not read.")


def _recorded(entry: Mapping[str, Any], number: int) -> Recorded:
    name, description = (*entry.get("process_group", ()), "", "")[:2]
    kind = str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"])
    return Recorded(
        group=str(description if description not in ("", "undefined") else name or entry.get("pg_id", "")),
        sequence=_sequence(entry),
        kind=kind,
        sizes=str(entry["input_sizes"]),
        dtypes="/".join(dict.fromkeys(str(each) for each in entry.get("input_dtypes") or ())),
        done=bool(entry.get("retired")) or entry.get("state") == "completed",
        created=int(entry.get("time_created_ns") or 0),
        place=_place(entry.get("frames") or ()),
        number=number,
    )


def _sequence(entry: Mapping[str, Any]) -> int:
    """Return the number of a call in its group; the dumps of torch 2.4 have one count for all kinds."""
    name = "p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"
    return int(entry[name] if name in entry else entry["seq_id"])


def _place(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return the innermost frame outside installed packages; frames come innermost first."""
    for frame in frames:
        file = str(frame.get("filename", ""))
        if file.endswith(".py") and "site-packages" not in file and "/lib/python" not in file:
            return f"{file.rsplit('/', 1)[-1]}:{frame.get('line')}"
    return ""


def _members(group: Mapping[str, Any]) -> frozenset[int]:
    return frozenset(int(rank) for rank in re.findall(r"\d+", str(group.get("ranks", ""))))


# --- comparing -----------------------------------------------------------------------------------------------------


def compare(dumps: Sequence[Dump]) -> Compared | None:
    """Return where the ranks part, in the group where that was first, or None when all collectives completed."""
    groups = dict.fromkeys(record.group for dump in dumps for record in dump.records)
    found = [stuck for group in groups for stuck in _stuck(group, dumps)]
    return min(found, key=lambda each: min(record.created for _, record in each.records), default=None)


def _stuck(group: str, dumps: Sequence[Dump]) -> Iterator[Compared]:
    """Yield what is wrong with the first collective of a group that is not done on all of its ranks."""
    calls = {dump.rank: _collectives(group, dump) for dump in dumps}
    by_rank = {dump.rank: dump for dump in dumps}
    members = next((dump.members[group] for dump in dumps if group in dump.members), None)
    ranks = members if members is not None else frozenset(rank for rank, each in calls.items() if each)
    sequence = _first_open(calls[rank] for rank in ranks if rank in calls)
    if sequence is None:
        return
    there = [(by_rank[rank], calls[rank][sequence]) for rank in sorted(ranks) if sequence in calls.get(rank, {})]
    missing = [rank for rank in sorted(ranks) if rank in calls and sequence not in calls[rank]]
    silent = [rank for rank in sorted(ranks) if rank not in calls]
    yield _explain(group, there, missing, silent, calls)


def _collectives(group: str, dump: Dump) -> dict[int, Recorded]:
    sent = ("send", "recv")
    return {
        record.sequence: record for record in dump.records if record.group == group and not record.kind.startswith(sent)
    }


def _first_open(calls: Iterable[dict[int, Recorded]]) -> int | None:
    """Return the number of the first collective that some rank called and did not complete."""
    return min((number for each in calls for number, record in each.items() if not record.done), default=None)


def _explain(
    group: str,
    there: Sequence[tuple[Dump, Recorded]],
    missing: Sequence[int],
    silent: Sequence[int],
    calls: Mapping[int, dict[int, Recorded]],
) -> Compared:
    first = there[0][1]
    waiting = spans(dump.rank for dump, _ in there)
    parts = {"kind": first.kind, "sequence": str(first.sequence), "group": group, "waiting": waiting}
    if missing:
        last = calls[missing[0]][max(calls[missing[0]])] if calls[missing[0]] else None
        parts |= {"missing": spans(missing), "rank": str(missing[0]), "last": str(last) if last else "nothing"}
        return Compared(Sign.RECORDER_RANKS_MISSING, there, parts)
    kinds = {record.kind: dump.rank for dump, record in there}
    if len(kinds) > 1:
        told = "; ".join(f"{record.kind} on rank {dump.rank} ({record.place})" for dump, record in _one_of_each(there))
        return Compared(Sign.RECORDER_CALLS_DIFFER, _one_of_each(there), {**parts, "calls": told})
    sized = _SAME_SIZES.search(first.kind) and not _NOT_SIZED.search(first.kind)
    if sized and len({(record.sizes, record.dtypes) for _, record in there}) > 1:
        told = "; ".join(f"{r.sizes} {r.dtypes} on rank {dump.rank}" for dump, r in _one_of_each(there))
        return Compared(Sign.RECORDER_SIZES_DIFFER, _one_of_each(there), {**parts, "sizes": told})
    if silent:
        return Compared(Sign.RECORDER_NO_DUMP, there, {**parts, "silent": spans(silent), "rank": str(silent[0])})
    return Compared(Sign.RECORDER_ALL_WAIT, there, parts)


def _one_of_each(there: Sequence[tuple[Dump, Recorded]]) -> list[tuple[Dump, Recorded]]:
    """Return the first rank of each variant."""
    seen: dict[tuple[str, str, str], tuple[Dump, Recorded]] = {}
    for dump, record in there:
        seen.setdefault((record.kind, record.sizes, record.dtypes), (dump, record))
    return list(seen.values())
