"""C++ types without a docstring are described in own words, and nothing that torch describes is overwritten."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from fsdp_mcp.api.cpp_types import CppType, with_members_described, with_types_described
from fsdp_mcp.api.extract import TorchApi
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import ApiSymbol


def _symbols(*symbols: ApiSymbol) -> dict[str, ApiSymbol]:
    described = with_members_described(with_types_described(symbols))
    return {symbol.qualified_name: symbol for symbol in described}


def _binary(name: str, *, summary: str | None = None) -> ApiSymbol:
    home = f"torch._C._distributed_c10d.{name}"
    return ApiSymbol(
        name=name.rpartition(".")[2],
        qualified_name=f"torch.distributed.{name}",
        kind="attribute",
        home=home,
        summary=summary,
        text=summary,
    )


def test_a_type_is_described_with_its_members_and_where_that_was_read() -> None:
    text = _symbols(_binary("AllreduceOptions"))["torch.distributed.AllreduceOptions"].text
    assert text is not None
    assert text.startswith("Options of ProcessGroup.allreduce.\n\n- `timeout`: ")
    assert text.endswith("blob/v2.13.0/torch/csrc/distributed/c10d/Types.hpp).")


def test_a_member_is_described_as_under_its_type() -> None:
    found = _symbols(_binary("AllreduceOptions.reduceOp"), _binary("ProcessGroupGloo.rank"))
    assert [symbol.summary for symbol in found.values()] == [
        "The reduction, SUM unless set.",
        "Own rank within the group.",
    ]


def test_what_torch_says_stays() -> None:
    assert (
        _symbols(_binary("AllreduceOptions", summary="Theirs."))["torch.distributed.AllreduceOptions"].text == "Theirs."
    )


def test_a_python_class_of_that_name_is_left_alone() -> None:
    symbol = _binary("AllreduceOptions").model_copy(update={"home": "torch.distributed.mine"})
    assert [found.text for found in _symbols(symbol).values()] == [None]


def test_every_row_and_member_is_a_symbol_of_torch(torch_api: TorchApi) -> None:
    names = {raw.symbol.qualified_name for raw in torch_api.symbols}
    for row in load_facts("cpp_types", CppType):
        assert any(fnmatchcase(name, row.name) for name in names), row.name
        for member in row.members:
            assert any(fnmatchcase(name, f"{row.name}.{member}") for name in names), f"{row.name}.{member}"


def test_headers_in_the_wheel_exist(torch_dir: Path) -> None:
    files = {row.file for row in load_facts("cpp_types", CppType) if row.file.endswith((".h", ".hpp"))}
    assert [file for file in files if not (torch_dir / "include" / file).is_file()] == []
