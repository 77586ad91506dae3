"""The search index gets an entry for each symbol, and one for each parameter of a long table."""

from __future__ import annotations

from collections import Counter

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.api.entries import index_entries
from fsdp_mcp.models import ApiParameter, ApiSymbol

_LONG = "It matters. " * 60


def _entries(*symbols: ApiSymbol) -> dict[str, tuple[str, str]]:
    entries = index_entries(symbols, torch_version="2.13.0")
    return {entry.uri.removeprefix("fsdp://api/"): (entry.title, entry.text) for entry in entries}


def test_a_long_table_is_cut_into_parameters_and_a_short_one_stays() -> None:
    long = ApiSymbol(
        name="shard",
        qualified_name="torch.shard",
        kind="function",
        parameters=(
            ApiParameter(name="mesh", type="Mesh", default="None", description=_LONG),
            ApiParameter(name="**kwargs", description="More."),
            ApiParameter(name="plain"),
        ),
    )
    short = ApiSymbol(
        name="wait",
        qualified_name="torch.wait",
        kind="function",
        text="Wait.",
        parameters=(ApiParameter(name="timeout", description="Seconds."),),
    )
    assert _entries(long, short) == {
        "torch.shard": ("torch.shard", ""),
        "torch.shard#param-mesh": ("torch.shard, parameter mesh", f"`mesh: Mesh = None`\n\n{_LONG}"),
        "torch.shard#param-kwargs": ("torch.shard, parameter kwargs", "`**kwargs`\n\nMore."),
        "torch.wait": ("torch.wait", "Wait.\n\n- `timeout`: Seconds."),
    }


def test_members_without_a_docstring_are_listed_by_their_class_only() -> None:
    group = ApiSymbol(name="Group", qualified_name="torch.Group", kind="class")
    bare = ApiSymbol(name="size", qualified_name="torch.Group.size", kind="method")
    told = ApiSymbol(
        name="rank", qualified_name="torch.Group.rank", kind="method", summary="The rank.", text="The rank."
    )
    assert _entries(group, bare, told) == {
        "torch.Group": ("torch.Group", "Members: size, rank."),
        "torch.Group.rank": ("torch.Group.rank", "The rank."),
    }


def test_a_bare_name_is_a_name_of_its_only_bearer() -> None:
    symbols = (
        ApiSymbol(name="A", qualified_name="torch.A", kind="class"),
        ApiSymbol(name="run", qualified_name="torch.A.run", kind="method", summary="x", text="x"),
        ApiSymbol(name="stop", qualified_name="torch.A.stop", kind="method", summary="x", text="x"),
        ApiSymbol(name="B", qualified_name="torch.B", kind="class", other_paths=("torch.b.B",)),
        ApiSymbol(name="run", qualified_name="torch.B.run", kind="method", summary="x", text="x"),
    )
    names = {entry.title: entry.names for entry in index_entries(symbols, torch_version="2.13.0")}
    assert names == {
        "torch.A": ("A",),
        "torch.A.run": ("A.run",),
        "torch.A.stop": ("A.stop", "stop"),
        "torch.B": ("torch.b.B", "B"),
        "torch.B.run": ("B.run",),
    }


def test_entries_of_the_installed_torch_are_unique_and_lead_to_the_official_page(catalogue: Catalogue) -> None:
    entries = list(index_entries(catalogue, torch_version="2.13.0"))
    assert [uri for uri, count in Counter(entry.uri for entry in entries).items() if count > 1] == []
    by_uri = {entry.uri: entry for entry in entries}
    shard = by_uri["fsdp://api/torch.distributed.fsdp.fully_shard#param-reshard_after_forward"]
    assert (shard.page, shard.symbol, shard.url) == (
        "distributed.fsdp.fully_shard",
        "torch.distributed.fsdp.fully_shard",
        "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.fully_shard",
    )
    mesh = by_uri["fsdp://api/torch.distributed.DeviceMesh"]
    assert mesh.url.endswith("distributed.html#torch.distributed.device_mesh.DeviceMesh")
    assert all(entry.url.startswith("https://docs.pytorch.org/docs/stable/") for entry in entries)
    option = by_uri["fsdp://torchrun/nproc-per-node"]
    assert (option.kind, option.page) == ("option", "elastic/run")
    assert 900 < len(entries) < 2000


def test_every_name_that_a_page_is_said_to_document_exists(catalogue: Catalogue) -> None:
    from fsdp_mcp.api.pages import PageRow
    from fsdp_mcp.corpus import load_facts

    rows = load_facts("symbol_pages", PageRow)
    missing = [name for row in rows for name in row.documents if catalogue.resolve(name) is None]
    assert missing == []
