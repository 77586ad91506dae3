"""The history says which release has what, and what changed from one to the next."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from fsdp_mcp.api.changes import Correction, tell
from fsdp_mcp.api.history import History, load_history, oldest_torch
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.errors import BadArgument, UnknownName


def _history(*records: Mapping[str, object]) -> History:
    releases = {"2.0": "2.0.1", "2.1": "2.1.0", "2.2": "2.2.0", "2.3": "2.3.0"}
    lines = [json.dumps({"releases": releases}, separators=(",", ":"))]
    return History([*lines, *(json.dumps(record, separators=(",", ":")) for record in records)])


def _function(name: str, *signatures: Sequence[object], **more: object) -> Mapping[str, object]:
    return {"name": name, "kind": "function", "signatures": list(signatures), **more}


def _changes(history: History, path: str) -> list[tuple[str, str]]:
    return [(item.version, item.change) for item in tell(history, path, history.newest).changes]


def test_parameters_that_come_go_and_change_are_told_annotations_are_not() -> None:
    history = _history(
        _function(
            "torch.f",
            ["2.0", "f(a, b: int = 1, c=2)"],
            ["2.1", "f(a, b: 'int | None' = 1, c=2)"],
            ["2.2", "f(b: int = 1, a=None, *, d)"],
        )
    )
    assert _changes(history, "torch.f") == [
        ("2.2", "parameter `d` added"),
        ("2.2", "parameter `c` removed"),
        ("2.2", "default of `a` changed: required -> None"),
        ("2.2", "parameters reordered: (a, b) -> (b, a)"),
    ]


def test_a_default_that_a_stub_leaves_open_is_no_change() -> None:
    history = _history(_function("torch.f", ["2.0", "f(wait=FOREVER)"], ["2.1", "f(wait=...)"], ["2.2", "f(wait=0)"]))
    assert _changes(history, "torch.f") == []


def test_an_option_that_was_hidden_in_kwargs_is_not_new_when_it_gets_a_name() -> None:
    history = _history(
        _function("torch.f", ["2.0", "f(x, **kwargs)", ["keep=True"]], ["2.2", "f(x, keep: bool = True, **kwargs)"])
    )
    assert _changes(history, "torch.f") == []
    assert history.first("torch.f#param-keep") == 0


def test_a_name_that_left_all_is_not_removed() -> None:
    history = _history(_function("torch.f", ["2.0", "f()"], unlisted=[["2.1", True]]))
    story = tell(history, "torch.f", history.newest)
    assert (story.status, story.until) == ("available", None)
    assert [item.change for item in story.changes] == ["left `__all__`; still importable"]


def test_a_move_keeps_the_history_and_names_both_paths() -> None:
    history = _history(
        _function("torch.new.f", ["2.2", "f(a, c=1)"]),
        {**_function("torch._old.f", ["2.1", "f(a, b=1)"], ["2.2", None]), "leads_to": [["2.2", "torch.new.f"]]},
    )
    assert _changes(history, "torch.new.f") == [
        ("2.1", "added as torch._old.f"),
        ("2.2", "moved here from torch._old.f"),
        ("2.2", "parameter `c=1` added"),
        ("2.2", "parameter `b` removed"),
    ]
    early = tell(history, "torch.new.f", history.index("2.1"))
    assert (early.status, early.since, early.replaced_by) == ("not_yet", "2.2", "torch._old.f")
    assert history.resolve("torch._old.f", history.newest) == "torch.new.f"


def test_a_removed_name_leads_to_the_object_that_resembles_it() -> None:
    history = _history(
        _function("torch.a.f", ["2.0", "f(x, y)"], ["2.1", None]),
        _function("torch.b.f", ["2.1", "f(x, y, z=1)"]),
        _function("torch.a.g", ["2.0", "g(x, y)"], ["2.1", None]),
        _function("torch.b.g", ["2.1", "g(one, two, three)"]),
    )
    moved, removed = tell(history, "torch.a.f", 3), tell(history, "torch.a.g", 3)
    assert (moved.status, moved.until, moved.replaced_by) == ("moved", "2.0", "torch.b.f")
    assert (removed.status, removed.until, removed.replaced_by) == ("removed", "2.0", None)


def test_a_deprecation_names_what_its_text_names() -> None:
    history = _history(
        _function("torch.old", ["2.0", "old()"], deprecated=[["2.2", "Please use `fresh` instead."]]),
        _function("torch.fresh", ["2.1", "fresh()"]),
    )
    story = tell(history, "torch.old", history.newest)
    assert (story.status, story.replaced_by) == ("deprecated", "torch.fresh")
    assert tell(history, "torch.old", 1).status == "available"


def test_members_of_a_base_belong_to_the_class_too() -> None:
    history = _history(
        {"name": "torch.Base", "kind": "class", "signatures": [["2.0", "Base()"]]},
        {"name": "torch.Base.go", "kind": "method", "signatures": [["2.1", "go(x)"]]},
        {
            "name": "torch.Child",
            "kind": "class",
            "signatures": [["2.0", "Child()"]],
            "bases": [["2.0", ["torch.Base"]]],
        },
        {"name": "torch.Child.go", "kind": "method", "signatures": [["2.0", "go(x)"], ["2.1", None]]},
    )
    assert history.first("torch.Child.go") == 0
    assert history.resolve("torch.Child.go", 1) == "torch.Base.go"
    assert _changes(history, "torch.Child") == []
    assert _changes(history, "torch.Base") == [("2.1", "gained go")]


def test_a_stub_gives_an_upper_bound_and_the_library_the_exact_release() -> None:
    member = {"kind": "method", "stub": True, "signatures": [["2.2", "get_many()"]]}
    history = _history(
        {"name": "torch.S", "kind": "class", "stub": True, "signatures": [["2.0", ""]]},
        {"name": "torch.S.get_many", **member, "binary": "2.1"},
        {"name": "torch.S.look", **member},
    )
    exact, late = tell(history, "torch.S.get_many", 3), tell(history, "torch.S.look", 3)
    assert (exact.since, exact.since_exact) == ("2.1", True)
    assert (late.since, late.since_exact) == ("2.2", False)


def test_a_gap_begins_the_life_of_a_name_anew() -> None:
    history = _history(_function("torch.f", ["2.0", "f(a)"], ["2.1", None], ["2.2", "f(b)"]))
    assert history.first("torch.f") == 2
    assert _changes(history, "torch.f") == [("2.1", "removed"), ("2.2", "there again")]


@pytest.mark.parametrize("version", ["1.13", "2.99", "two", ""])
def test_releases_that_are_not_recorded_are_refused(version: str) -> None:
    with pytest.raises(BadArgument, match=r"expected a release from 2\.0 to"):
        load_history().index(version)


@pytest.mark.parametrize(
    ("names", "oldest"),
    [
        ([], "2.0"),
        (["torch.distributed.fsdp.fully_shard"], "2.6"),
        (["torch.distributed._composable.fsdp.fully_shard"], "2.3"),
        (["torch.distributed.fsdp.fully_shard#param-dp_mesh_dims"], "2.12"),
        (["torch.distributed.fsdp.fully_shard", "torch.distributed.barrier#param-timeout"], "2.12"),
        (["torch.distributed.fsdp.FSDPModule.unshard"], "2.6"),
        (["torch.distributed.tensor.parallel.SequenceParallel"], "2.3"),
        (["torch.distributed.checkpoint.state_dict.get_state_dict"], "2.2"),
        (["torch.distributed.TCPStore.set", "torch.nn.utils.clip_grad_norm_"], "2.0"),
        (["torch.utils.checkpoint.checkpoint#param-preserve_rng_state"], "2.0"),
        (["torch.distributed.device_mesh.init_device_mesh"], "2.2"),
    ],
)
def test_the_oldest_torch_has_every_name(names: list[str], oldest: str) -> None:
    assert oldest_torch(names) == oldest


def test_unknown_names_have_no_oldest_torch() -> None:
    with pytest.raises(UnknownName, match=r"Closest: torch\.distributed\.fsdp\.fully_shard"):
        oldest_torch(["torch.distributed.fsdp.fully_shart"])
    with pytest.raises(UnknownName):
        oldest_torch(["torch.distributed.fsdp.fully_shard#param-nothing"])


def test_the_table_agrees_with_the_installed_torch(torch_api: object, torch_version: str) -> None:
    from fsdp_mcp.api.extract import TorchApi

    assert isinstance(torch_api, TorchApi)
    history = load_history()
    at = history.index(torch_version)
    ours = {raw.symbol.qualified_name: raw.symbol.signature for raw in torch_api.symbols}
    recorded = {name: record.signature(at) for name in ours if (record := history.record(name)) is not None}
    told = {name: signature for name, signature in recorded.items() if signature}
    assert [name for name in ours if not history.exists(name, at)] == []
    assert {name: ours[name] for name in told} == told


def test_corrections_speak_of_names_that_the_table_knows() -> None:
    history = load_history()
    rows = load_facts("api_corrections", Correction)
    known = set(history.releases)
    assert [row.name for row in rows if history.last(row.name) is None] == []
    assert [row for row in rows if row.version is not None and row.version not in known] == []
    private = [row.replaced_by for row in rows if row.replaced_by and "._fsspec" not in row.replaced_by]
    assert [name for name in private if history.last(name) != history.newest] == []
