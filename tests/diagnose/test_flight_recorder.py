"""Flight-recorder dumps: matched across ranks, and never executed."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_mcp import call
from fsdp_mcp.diagnose.diagnose_log import diagnose_log
from fsdp_mcp.diagnose.flight_recorder import BrokenDump, plain_data

ENTRY = {
    "process_group": ("0", "default_pg"),
    "p2p_seq_id": 0,
    "input_dtypes": ["Float"],
    "is_p2p": False,
    "frames": [
        {"name": "all_reduce", "filename": "/opt/venv/lib/python3.11/site-packages/torch/x.py", "line": 1},
        {"name": "step", "filename": "/job/train.py", "line": 31},
    ],
}


def entry(number: int, kind: str = "all_reduce", sizes: Any = ((4,),), *, done: bool = False) -> dict[str, Any]:
    state = {"state": "completed" if done else "scheduled", "retired": done, "time_created_ns": number}
    return {**ENTRY, **state, "collective_seq_id": number, "profiling_name": f"nccl:{kind}", "input_sizes": sizes}


def dump(folder: Path, rank: int, *entries: dict[str, Any], ranks: str = "[0, 1]") -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}, "default_pg": {"ranks": ranks}}
    content = {"version": "2.10", "comm_lib_version": "2.26", "pg_config": config, "entries": list(entries)}
    (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))


DONE = entry(1, done=True)
CASES = {
    "recorder-ranks-missing": ([DONE, entry(2)], [DONE], "Rank 1 never called all_reduce number 2", 1),
    "recorder-calls-differ": (
        [DONE, entry(2)],
        [DONE, entry(2, "broadcast")],
        "broadcast on rank 1 (train.py:31)",
        None,
    ),
    "recorder-sizes-differ": ([DONE, entry(2)], [DONE, entry(2, sizes=[[5]])], "[[5]] Float on rank 1", None),
    "recorder-no-dump": ([DONE, entry(2)], None, "There is no dump of rank 1", 1),
    "recorder-all-wait": ([DONE, entry(2)], [DONE, entry(2)], "All ranks are in all_reduce number 2", None),
}


@pytest.mark.parametrize("page", CASES)
def test_ranks_are_compared(tmp_path: Path, page: str) -> None:
    first, second, said, rank = CASES[page]
    dump(tmp_path, 0, *first)
    if second is not None:
        dump(tmp_path, 1, *second)
    call.enter(call.Caller(roots=(tmp_path,)))
    finding = diagnose_log(path=".").findings[0]
    assert (finding.id, finding.rank, said in finding.cause) == (page, rank, True)


def test_dumps_in_which_all_is_done_show_no_failure(tmp_path: Path) -> None:
    dump(tmp_path, 0, DONE)
    dump(tmp_path, 1, DONE)
    call.enter(call.Caller(roots=(tmp_path,)))
    assert diagnose_log(path="nccl_trace_*").verdict == "none"


def test_a_dump_may_be_json(tmp_path: Path) -> None:
    for rank, kind in enumerate(("all_reduce", "broadcast")):
        content = {"comm_lib_version": "", "entries": [entry(1, kind)], "pg_config": {}, "version": "2.10"}
        (tmp_path / f"trace_{rank}.json").write_text(json.dumps(content), encoding="utf-8")
    call.enter(call.Caller(roots=(tmp_path,)))
    assert diagnose_log(path=".").findings[0].id == "recorder-calls-differ"


class Executed:
    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


MALICIOUS = {
    "a call": pickle.dumps({"entries": [Executed()]}, protocol=2),
    "a call of protocol 4": pickle.dumps({"entries": [Executed()]}, protocol=4),
    "a class": pickle.dumps({"entries": [Executed]}, protocol=2),
    "a persistent id": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "an extension": b"\x80\x02\x82\x01.",
    "a huge memo": b"\x80\x02}r" + struct.pack("<I", 2**31 - 1) + b".",
}


@pytest.mark.parametrize("name", MALICIOUS)
def test_a_dump_that_holds_more_than_data_is_not_read(tmp_path: Path, name: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nccl_trace_rank_0").write_bytes(MALICIOUS[name])
    call.enter(call.Caller(roots=(tmp_path,)))
    with pytest.raises(BrokenDump, match=r"nccl_trace_rank_0: (holds|asks)"):
        diagnose_log(path="nccl_trace_rank_0")
    assert not (tmp_path / "executed").exists()


def test_among_others_a_damaged_dump_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    dump(tmp_path, 0, DONE, entry(2))
    dump(tmp_path, 1, DONE, entry(2))
    (tmp_path / "nccl_trace_rank_2").write_bytes(pickle.dumps(CASES)[:40])
    call.enter(call.Caller(roots=(tmp_path,)))
    found = diagnose_log(path=".")
    assert found.findings[0].id == "recorder-all-wait"
    assert "Not read: nccl_trace_rank_2" in found.summary


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_comes_back_as_it_was(value: Any, protocol: int) -> None:
    assert plain_data(pickle.dumps(value, protocol=protocol)) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_data_or_refused(data: bytes) -> None:
    with contextlib.suppress(BrokenDump, ValueError, EOFError, LookupError, TypeError, pickle.UnpicklingError):
        plain_data(b"\x80\x02" + data)
