"""A catalogue finds its symbols by every name they go by, and comes back from its file as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.models import ApiSymbol


def _symbol(name: str, **fields: object) -> ApiSymbol:
    return ApiSymbol.model_validate(
        {"name": name.rpartition(".")[2], "qualified_name": name, "kind": "function", **fields}
    )


def _small() -> Catalogue:
    return Catalogue.of(
        [
            _symbol("torch.distributed.reduce", other_paths=["torch.distributed.c.reduce"], home="torch.d._c.reduce"),
            _symbol("torch.distributed.nn.reduce"),
            _symbol("torch.distributed.Store", kind="class"),
            _symbol("torch.distributed.Store.set", kind="method"),
            _symbol("torch.distributed.TCPStore", kind="class", bases=["torch.distributed.Store"]),
        ],
        torch_version="2.13.0",
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("torch.distributed.reduce", ["torch.distributed.reduce"]),
        ("torch.distributed.c.reduce", ["torch.distributed.reduce"]),
        ("torch.d._c.reduce", ["torch.distributed.reduce"]),
        ("dist.reduce", ["torch.distributed.reduce"]),
        ("reduce", ["torch.distributed.reduce", "torch.distributed.nn.reduce"]),
        ("TCPStore.set", ["torch.distributed.Store.set"]),
        ("torch.distributed.TCPStore.set", ["torch.distributed.Store.set"]),
        ("tcp_store", []),
        ("educe", []),
        ("", []),
        ("torch.distributed.TCPStore.nothing", []),
    ],
)
def test_names_find_what_they_mean(name: str, found: list[str]) -> None:
    assert [symbol.qualified_name for symbol in _small().find(name)] == found


def test_another_spelling_is_found_apart() -> None:
    assert [symbol.qualified_name for symbol in _small().find_alike("tcp_store")] == ["torch.distributed.TCPStore"]


def test_a_file_holds_the_whole_catalogue(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "deep" / "catalogue.json"
    catalogue.save(path)
    loaded = Catalogue.load(path)
    assert loaded is not None
    assert (loaded.torch_version, loaded.names()) == (catalogue.torch_version, catalogue.names())
    assert list(loaded) == list(catalogue)
    assert [item.name for item in path.parent.iterdir()] == ["catalogue.json"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": -1}', "\x00"])
def test_a_foreign_or_damaged_file_is_no_catalogue(tmp_path: Path, text: str) -> None:
    path = tmp_path / "catalogue.json"
    path.write_text(text, encoding="utf-8")
    assert Catalogue.load(path) is None


def test_a_missing_file_is_no_catalogue(tmp_path: Path) -> None:
    assert Catalogue.load(tmp_path / "none.json") is None


def test_misspelt_names_have_close_ones(catalogue: Catalogue) -> None:
    assert catalogue.closest("fully_sharded")[0] == "torch.distributed.fsdp.fully_shard"
    assert "torch.distributed.all_reduce" in catalogue.closest("dist.all_redcue")
    assert catalogue.closest("qqqqqqqq") == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("fully_shard", "torch.distributed.fsdp.fully_shard"),
        ("torch.distributed._composable.fsdp.fully_shard", "torch.distributed.fsdp.fully_shard"),
        ("dist.all_reduce", "torch.distributed.all_reduce"),
        ("DTensor.full_tensor", "torch.distributed.tensor.DTensor.full_tensor"),
        ("FSDPModule.unshard", "torch.distributed.fsdp.FSDPModule.unshard"),
        ("dcp.save", "torch.distributed.checkpoint.save"),
        ("DDP", "torch.nn.parallel.DistributedDataParallel"),
        ("checkpoint", "torch.utils.checkpoint.checkpoint"),
        ("--nproc_per_node", "torchrun --nproc-per-node"),
        ("torchrun --nnodes", "torchrun --nnodes"),
        ("Join", "torch.distributed.algorithms.Join"),
        ("Partial", "torch.distributed.tensor.Partial"),
    ],
)
def test_names_of_the_installed_torch_are_found(catalogue: Catalogue, name: str, found: str) -> None:
    assert catalogue.find(name)[0].qualified_name == found
