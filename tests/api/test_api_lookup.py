"""lookup_api answers for the installed torch and for any release, and says where a name went."""

from __future__ import annotations

import pytest

from fsdp_mcp.api.answer import shortened, wrapped
from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.api.lookup import lookup_api
from fsdp_mcp.api.unlisted import Unlisted
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.errors import BadArgument, UnknownName
from fsdp_mcp.tokens import estimate_tokens

_NOTHING = Catalogue(None, {}, {})


def test_the_installed_torch_is_described_with_its_history(catalogue: Catalogue) -> None:
    answer = lookup_api("fully_shard", catalogue=catalogue)
    assert (answer.qualified_name, answer.kind, answer.status, answer.since, answer.since_exact, answer.until) == (
        "torch.distributed.fsdp.fully_shard",
        "function",
        "available",
        "2.6",
        True,
        None,
    )
    assert answer.torch_version == catalogue.torch_version
    assert [item.name for item in answer.parameters][:3] == ["module", "mesh", "reshard_after_forward"]
    assert {item.name: item.since for item in answer.parameters}["ignored_params"] == "2.7"
    assert ("2.8", "default of `reshard_after_forward` changed: True -> None") in [
        (item.version, item.change) for item in answer.changes
    ]
    assert answer.page == "distributed.fsdp.fully_shard"
    assert answer.source is not None
    assert answer.source.startswith("torch/distributed/fsdp/")
    assert answer.warnings == ()


@pytest.mark.parametrize("name", ["fully_shard", "init_process_group", "FSDP", "DDP", "TCPStore", "dcp.save"])
def test_a_summary_is_short_and_the_rest_is_a_call_away(catalogue: Catalogue, name: str) -> None:
    sizes = [
        estimate_tokens(lookup_api(name, detail=detail, catalogue=catalogue).render())
        for detail in ("signature", "summary", "full")
    ]
    assert sizes == sorted(sizes)
    assert sizes[1] < 1000


def test_an_old_path_of_a_moved_object_leads_to_it(catalogue: Catalogue) -> None:
    answer = lookup_api("torch.distributed._composable.fsdp.fully_shard", catalogue=catalogue)
    assert answer.qualified_name == "torch.distributed.fsdp.fully_shard"
    assert answer.warnings == (
        "torch.distributed._composable.fsdp.fully_shard is another path to it, there since 2.3.",
    )


def test_a_name_that_the_asked_release_lacks_is_refused_with_its_counterpart(catalogue: Catalogue) -> None:
    answer = lookup_api("fully_shard", torch_version="2.5", catalogue=catalogue)
    assert (answer.status, answer.since, answer.replaced_by, answer.torch_version) == (
        "not_yet",
        "2.6",
        "torch.distributed._composable.fsdp.fully_shard",
        "2.5",
    )
    assert (answer.summary, answer.text) == (None, None)
    assert answer.signature is not None
    assert "shard_placement_fn" not in answer.signature
    assert "does not have torch.distributed.fsdp.fully_shard yet" in answer.render()


def test_another_release_is_answered_from_the_history(catalogue: Catalogue) -> None:
    answer = lookup_api("dist.barrier", torch_version="2.11.0", catalogue=catalogue)
    assert (answer.status, answer.torch_version) == ("available", "2.11")
    assert [item.name for item in answer.parameters] == ["group", "async_op", "device_ids"]
    assert (answer.summary, answer.text, answer.source) == (None, None, None)
    assert answer.warnings == (
        f"About torch 2.11, while torch {catalogue.torch_version} is installed:"
        " signature and history only, no docstring.",
    )


def test_a_removed_name_says_until_when_and_what_instead(catalogue: Catalogue) -> None:
    answer = lookup_api("PairwiseParallel", catalogue=catalogue)
    assert (answer.status, answer.until, answer.replaced_by) == (
        "removed",
        "2.1",
        "torch.distributed.tensor.parallel.ColwiseParallel",
    )


def test_two_functions_of_one_name_are_kept_apart(catalogue: Catalogue) -> None:
    answer = lookup_api("torch.distributed._composable.fully_shard", catalogue=catalogue)
    assert (answer.status, answer.until, answer.replaced_by) == (
        "removed",
        "2.5",
        "torch.distributed.fsdp.fully_shard",
    )


def test_a_deprecated_name_says_so_and_names_its_successor(catalogue: Catalogue) -> None:
    answer = lookup_api("torch.nn.utils.clip_grad_norm", catalogue=catalogue)
    assert (answer.status, answer.replaced_by) == ("deprecated", "torch.nn.utils.clip_grad_norm_")
    fsdp1 = lookup_api("FSDP", catalogue=catalogue)
    assert (fsdp1.status, fsdp1.replaced_by) == ("deprecated", "torch.distributed.fsdp.fully_shard")
    assert lookup_api("FSDP", torch_version="2.2", catalogue=catalogue).status == "available"


def test_an_ambiguous_name_means_the_most_public_and_mentions_the_others(catalogue: Catalogue) -> None:
    answer = lookup_api("all_reduce", catalogue=catalogue)
    assert answer.qualified_name == "torch.distributed.all_reduce"
    assert any("torch.distributed.nn.all_reduce" in warning for warning in answer.warnings)


def test_what_depends_on_the_build_is_marked(catalogue: Catalogue) -> None:
    answer = lookup_api("ProcessGroupNCCL", catalogue=catalogue)
    assert any("build" in warning for warning in answer.warnings)


def test_an_inherited_member_names_its_owner(catalogue: Catalogue) -> None:
    answer = lookup_api("TCPStore.set", catalogue=catalogue)
    assert answer.qualified_name == "torch.distributed.Store.set"
    assert "Defined by torch.distributed.Store." in answer.warnings


@pytest.mark.parametrize("name", ["fully_sharded", "torch.distributed.fsdp.fully_sharded", "`fully_sharded`"])
def test_an_unknown_name_is_refused_with_the_closest(catalogue: Catalogue, name: str) -> None:
    with pytest.raises(UnknownName) as caught:
        lookup_api(name, catalogue=catalogue)
    assert str(caught.value).startswith(
        f"No API named {name!r} in torch {catalogue.torch_version}. Closest: torch.distributed.fsdp.fully_shard, "
    )
    assert str(caught.value).endswith("Call lookup_api with one of them.")


@pytest.mark.parametrize("name", ["zzzzzzzz", " ", ".", "()", "名前", "a" * 300, "torch..distributed", "#param-x"])
def test_nonsense_is_refused_with_a_next_step(catalogue: Catalogue, name: str) -> None:
    with pytest.raises(UnknownName, match=r"search_docs|lookup_api"):
        lookup_api(name, catalogue=catalogue)


@pytest.mark.parametrize(
    "name", ["fully_shard.mp_policy", "fsdp://api/torch.distributed.fsdp.fully_shard#param-mp_policy"]
)
def test_a_parameter_leads_to_what_takes_it(catalogue: Catalogue, name: str) -> None:
    answer = lookup_api(name, catalogue=catalogue)
    assert answer.qualified_name == "torch.distributed.fsdp.fully_shard"
    assert answer.warnings == ("`mp_policy` is a parameter of torch.distributed.fsdp.fully_shard.",)


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        (
            "new_group.sort_ranks",
            "2.11",
            "In torch 2.11 torch.distributed.new_group has no parameter `sort_ranks`; it came with 2.12.",
        ),
        (
            "parallelize_module.tp_mesh_dim",
            None,
            "In torch 2.13 torch.distributed.tensor.parallel.parallelize_module no longer has "
            "the parameter `tp_mesh_dim`; "
            'torch 2.2 was the last. Give a 1-D mesh: slice a larger one by name, mesh["tp"].',
        ),
        (
            "FSDP.ignored_parameters",
            "2.4",
            "In torch 2.4 torch.distributed.fsdp.FullyShardedDataParallel no longer has "
            "the parameter `ignored_parameters`; "
            "torch 2.0 was the last. Use instead: `ignored_states`.",
        ),
        (
            "FSDP.device_mesh",
            "2.1",
            "In torch 2.1 torch.distributed.fsdp.FullyShardedDataParallel has no parameter `device_mesh`; "
            "it came with 2.2.",
        ),
        (
            "torch.distributed._composable.fully_shard.process_group",
            None,
            "`process_group` is a parameter of torch.distributed._composable.fully_shard in torch 2.0 to 2.5.",
        ),
        (
            "fully_shard(model, reshard_after_forward=True)",
            None,
            "`reshard_after_forward` is a parameter of torch.distributed.fsdp.fully_shard. "
            "2.8: default of `reshard_after_forward` changed: True -> None.",
        ),
    ],
)
def test_a_parameter_that_a_release_lacks_is_told_by_the_releases_that_have_it(
    catalogue: Catalogue, name: str, version: str | None, told: str
) -> None:
    assert lookup_api(name, torch_version=version, catalogue=catalogue).warnings[0] == told


def test_what_no_release_takes_is_refused_with_what_the_api_takes(catalogue: Catalogue) -> None:
    with pytest.raises(UnknownName) as caught:
        lookup_api("fully_shard.no_sync", catalogue=catalogue)
    assert [
        part
        for part in ("'no_sync'", "reshard_after_forward", "FullyShardedDataParallel.no_sync")
        if part not in str(caught.value)
    ] == []


def test_a_property_that_is_a_parameter_too_is_told_as_both(catalogue: Catalogue) -> None:
    answer = lookup_api("DDP.broadcast_buffers", catalogue=catalogue)
    assert answer.kind == "property"
    assert answer.warnings[0].startswith(
        "`broadcast_buffers` is a parameter of torch.nn.parallel.DistributedDataParallel. "
        "2.13: default of `broadcast_buffers` changed: True -> None; 2.13: `broadcast_buffers` is deprecated and warns"
    )


def test_the_changes_shown_are_those_around_the_release_asked_about(catalogue: Catalogue) -> None:
    text = lookup_api("torch.utils.checkpoint.checkpoint", torch_version="2.1", catalogue=catalogue).render()
    assert "- 2.1: default of `use_reentrant` changed: True -> None" in text
    assert "- 2.14:" not in text


def test_a_binding_that_its_stub_does_not_name_yet_is_available(catalogue: Catalogue) -> None:
    answer = lookup_api("Store.multi_get", torch_version="2.5", catalogue=catalogue)
    assert (answer.status, answer.since, answer.warnings[0]) == (
        "available",
        "2.1",
        "The stub of torch 2.5 does not name it yet: the signature is from a later one.",
    )


@pytest.mark.parametrize(
    ("name", "version", "instead"),
    [
        ("all_gather_single", "2.12", "torch.distributed.all_gather_into_tensor"),
        ("dcp.save", "2.1", "torch.distributed.checkpoint.save_state_dict"),
        ("torch.distributed.reduce_op", None, "torch.distributed.ReduceOp"),
        ("torch.distributed.pipeline.sync", None, "torch.distributed.pipelining"),
    ],
)
def test_what_serves_in_that_release_is_named(
    catalogue: Catalogue, name: str, version: str | None, instead: str
) -> None:
    assert lookup_api(name, torch_version=version, catalogue=catalogue).replaced_by == instead


@pytest.mark.parametrize(
    ("name", "version", "status", "instead"),
    [
        ("torch.distributed._all_gather_base", "2.3", "available", "torch.distributed.all_gather_into_tensor"),
        ("dist._all_gather_base", "2.4", "deprecated", "torch.distributed.all_gather_into_tensor"),
        ("DeviceMesh._flatten", "2.4", "not_yet", None),
        ("DeviceMesh._flatten", None, "available", None),
        ("Store.append", None, "available", None),
    ],
)
def test_names_that_no_file_lists_are_answered_from_the_table(
    catalogue: Catalogue, name: str, version: str | None, status: str, instead: str | None
) -> None:
    answer = lookup_api(name, torch_version=version, catalogue=catalogue)
    assert (answer.status, answer.replaced_by) == (status, instead)


def test_no_row_of_that_table_hides_what_the_catalogue_has(catalogue: Catalogue) -> None:
    assert [row.name for row in load_facts("api_unlisted", Unlisted) if catalogue.find(row.name)] == []


def test_a_path_that_is_not_known_leads_to_the_only_api_of_its_name(catalogue: Catalogue) -> None:
    answer = lookup_api("torch.distributed.fsdp._fully_shard.FSDPModule", catalogue=catalogue)
    assert answer.qualified_name == "torch.distributed.fsdp.FSDPModule"
    assert "not among the paths known here" in answer.warnings[0]


def test_an_option_of_torchrun_has_a_history_too(catalogue: Catalogue) -> None:
    answer = lookup_api("--monitor_interval", catalogue=catalogue)
    assert (answer.qualified_name, answer.kind, answer.page) == ("torchrun --monitor-interval", "option", "elastic/run")
    assert [item.version for item in answer.changes] == ["2.4"]
    early = lookup_api("--numa-binding", torch_version="2.6", catalogue=catalogue)
    assert (early.qualified_name, early.status, early.since) == ("torchrun --numa-binding", "not_yet", "2.9")


def test_a_class_and_a_module_list_what_they_hold(catalogue: Catalogue) -> None:
    module = lookup_api("torch.distributed.fsdp", catalogue=catalogue)
    assert (module.kind, "fully_shard" in module.members) == ("module", True)
    held = lookup_api("FSDPModule", catalogue=catalogue)
    assert "unshard" in held.members
    assert "Members: " in held.render()
    assert "Members: " not in lookup_api("MixedPrecisionPolicy", catalogue=catalogue).render()


def test_a_release_that_is_not_recorded_is_refused(catalogue: Catalogue) -> None:
    with pytest.raises(BadArgument, match=r"torch_version: got '1\.9', expected a release from 2\.0 to 2\.\d+\."):
        lookup_api("barrier", torch_version="1.9", catalogue=catalogue)


def test_without_a_torch_the_history_answers() -> None:
    answer = lookup_api("fully_shard", catalogue=_NOTHING)
    assert (answer.status, answer.text) == ("available", None)
    assert any("no torch is installed" in warning for warning in answer.warnings)


def test_a_torch_newer_than_the_table_is_answered_from_its_files(catalogue: Catalogue) -> None:
    newer = Catalogue.of(catalogue, torch_version="2.99.0")
    answer = lookup_api("fully_shard", catalogue=newer)
    assert (answer.status, answer.since, answer.torch_version) == ("available", "2.6", "2.99.0")


def test_every_symbol_of_the_installed_torch_can_be_looked_up_and_read(catalogue: Catalogue) -> None:
    for name in catalogue.names():
        answer = lookup_api(name, catalogue=catalogue)
        assert answer.qualified_name == name
        assert answer.status in ("available", "deprecated")
        assert answer.render().startswith(f"**{name}** ({answer.kind}, torch ")


def test_long_signatures_are_broken_between_parameters() -> None:
    signature = (
        "shard(module, *, mesh: dict[str, int] | None = None, hook: Callable[[int, str], None] = print,"
        " sizes=(1, 2)) -> tuple[int, str]"
    )
    assert wrapped(signature) == (
        "shard(\n    module,\n    *,\n    mesh: dict[str, int] | None = None,\n"
        "    hook: Callable[[int, str], None] = print,\n    sizes=(1, 2),\n) -> tuple[int, str]"
    )
    assert wrapped("f(a, b)") == "f(a, b)"


def test_shortened_text_ends_at_a_sentence_or_says_that_it_goes_on() -> None:
    assert shortened("One sentence. Another one that is long.", 20) == "One sentence."
    assert shortened("one two three four five", 12) == "one two …"
    assert shortened("short", 12) == "short"
