"""Each environment variable has a source, is named where the table says, and is found by any of its names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.api.env_vars import env_var_answer, env_var_entries, env_vars, find_env_var, misspelt_env_var
from fsdp_mcp.api.lookup import lookup_api
from fsdp_mcp.errors import UnknownName
from fsdp_mcp.tokens import estimate_tokens

_NO_TORCH = Catalogue(None, {}, {})
_READERS = ("getenv", "environ.get", "environ.pop", "_get_env_or_raise")
_READ_ELSEWHERE = {"TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP", "LOCAL_RANK", "TORCHELASTIC_ENABLE_FILE_TIMER"}
"""Three that the reader below must find: by `in os.environ`, by subscript, through a constant."""


def test_names_are_written_once() -> None:
    names = [name for row in env_vars() for name in (row.name, *row.aliases)]
    assert sorted(names) == sorted(set(names))
    assert len(env_vars()) > 150


def test_every_variable_has_a_source() -> None:
    assert [row.name for row in env_vars() if not row.source.url.startswith("https://")] == []


def test_every_file_of_torch_names_its_variable(torch_dir: Path) -> None:
    def named(name: str, file: str) -> bool:
        path = torch_dir.parent / file
        return path.is_file() and name in path.read_text(encoding="utf-8")

    assert [row.name for row in env_vars() if row.file and not named(row.name, row.file)] == []


def test_every_old_name_is_in_torch_or_in_nccl() -> None:
    old = [alias for row in env_vars() for alias in row.aliases]
    assert [alias for alias in old if not alias.startswith(("NCCL_", "TORCH_NCCL_", "PYTORCH_", "ENABLE_NCCL_"))] == []


def test_every_variable_that_the_distributed_python_code_reads_has_a_row(torch_dir: Path) -> None:
    read = {name for path in _sources(torch_dir) for name in _variables_read(path)}
    assert read >= _READ_ELSEWHERE
    assert {name for name in read if find_env_var(name) is None} == set()


def test_every_variable_of_the_nccl_header_has_a_row(torch_dir: Path) -> None:
    header = torch_dir / "include/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
    text = header.read_text(encoding="utf-8")
    named = {part for part in text.split('"') if part.isupper() and part.startswith(("TORCH_NCCL_", "NCCL_"))}
    assert len(named) > 20
    assert {name for name in named if find_env_var(name) is None} == set()


def _sources(torch_dir: Path) -> list[Path]:
    folders = (torch_dir / "distributed", torch_dir / "nn" / "parallel")
    return [*(path for folder in folders for path in folder.rglob("*.py")), torch_dir / "utils" / "checkpoint.py"]


def _variables_read(path: Path) -> Iterator[str]:
    """Yield the names that a file looks up in the environment, as text or through a constant of the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    aliases = {
        target.id: constants[node.value.id]
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in constants
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    known = constants | aliases
    for node in ast.walk(tree):
        key = _key(node)
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value
        elif isinstance(key, ast.Name) and key.id in known:
            yield known[key.id]


def _key(node: ast.AST) -> ast.expr | None:
    """Return the expression that names the variable, where a node reads one."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_READERS) and node.args:
        return node.args[0]
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return node.slice if ast.unparse(node.value).endswith("environ") else None
    if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]).endswith("environ"):
        return node.left
    if isinstance(node, ast.keyword) and node.arg in ("env_name_default", "env_name_force"):
        return node.value
    return None


def test_a_variable_is_answered_with_values_advice_and_source() -> None:
    answer = lookup_api("NCCL_SOCKET_IFNAME", catalogue=_NO_TORCH)
    assert (answer.name, answer.qualified_name, answer.kind, answer.status, answer.parameters, answer.since) == (
        "NCCL_SOCKET_IFNAME",
        "NCCL_SOCKET_IFNAME",
        "env_var",
        "available",
        (),
        None,
    )
    assert answer.summary == "Network interfaces that NCCL uses to find the other ranks and, without RDMA, for data."
    assert answer.url == "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
    assert all(f"- {label}: " in answer.render() for label in ("Values", "Default", "When to touch it", "Read by"))


@pytest.mark.parametrize(
    "asked",
    [
        "TORCH_FR_BUFFER_SIZE",
        "$TORCH_FR_BUFFER_SIZE",
        "${TORCH_FR_BUFFER_SIZE}",
        "TORCH_FR_BUFFER_SIZE=2000",
        "`TORCH_FR_BUFFER_SIZE`",
        "fsdp://env/TORCH_FR_BUFFER_SIZE",
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "torch_fr_buffer_size",
        "TORCH_FR_BUFER_SIZE",
    ],
)
def test_a_variable_is_found_by_any_spelling(catalogue: Catalogue, asked: str) -> None:
    assert lookup_api(asked, catalogue=catalogue).qualified_name == "TORCH_FR_BUFFER_SIZE"


def test_an_old_or_misspelt_name_is_told_to_be_one(catalogue: Catalogue) -> None:
    old = lookup_api("NCCL_BLOCKING_WAIT", catalogue=catalogue)
    assert (old.name, old.warnings) == (
        "TORCH_NCCL_BLOCKING_WAIT",
        ("NCCL_BLOCKING_WAIT is another name of it.",),
    )
    slip = lookup_api("NCCL_SOCKET_IFNMAE", catalogue=catalogue)
    assert (slip.name, slip.warnings) == (
        "NCCL_SOCKET_IFNAME",
        ("No variable is known as NCCL_SOCKET_IFNMAE; this is the closest.",),
    )


@pytest.mark.parametrize("name", ["NCCL_MAX_P2P_NCHANNELS", "NCCL_TREE_THRESHOLD", "RANKS", "fully_shard", "rank"])
def test_a_name_that_is_not_nearly_right_is_no_misspelling(name: str) -> None:
    assert misspelt_env_var(name) is None


def test_an_unknown_variable_is_refused_with_the_closest() -> None:
    with pytest.raises(UnknownName, match=r"NCCL_SOCKET_NAME.*Closest: NCCL_SOCKET_IFNAME"):
        lookup_api("NCCL_SOCKET_NAME", catalogue=_NO_TORCH)


@pytest.mark.parametrize(
    ("name", "version", "status", "since", "until"),
    [
        ("TORCH_GLOO_LAZY_INIT", "2.7", "not_yet", "2.8", None),
        ("TORCH_GLOO_LAZY_INIT", "2.8", "available", "2.8", None),
        ("TORCH_NCCL_ABORT_IN_DESTROY_PG", "2.3", "available", "2.3", "2.3"),
        ("TORCH_NCCL_ABORT_IN_DESTROY_PG", "2.4", "removed", "2.3", "2.3"),
        ("TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK", "2.13", "available", "2.11", "2.13"),
        ("MASTER_ADDR", "2.0", "available", "2.0", None),
    ],
)
def test_a_release_is_asked_about(
    catalogue: Catalogue, name: str, version: str, status: str, since: str, until: str | None
) -> None:
    answer = lookup_api(name, torch_version=version, catalogue=catalogue)
    assert (answer.status, answer.since, answer.until) == (status, since, until)
    assert any(f"orch {version}" in note for note in answer.warnings) == (version != "2.13")


def test_a_variable_does_not_hide_an_api_of_the_same_letters(catalogue: Catalogue) -> None:
    assert lookup_api("rank", catalogue=catalogue).kind != "env_var"


def test_every_variable_is_an_entry_of_its_own() -> None:
    entries = {entry.uri: entry for entry in env_var_entries(torch_version="2.13.0")}
    assert len(entries) == len(env_vars())
    debug = entries["fsdp://env/TORCH_DISTRIBUTED_DEBUG"]
    assert (debug.kind, debug.title, debug.page) == ("env_var", "TORCH_DISTRIBUTED_DEBUG", "distributed")
    assert entries["fsdp://env/TORCH_FR_BUFFER_SIZE"].names == ("TORCH_NCCL_TRACE_BUFFER_SIZE",)


def test_an_answer_is_short() -> None:
    sizes = [estimate_tokens(lookup_api(row.name, catalogue=_NO_TORCH).render()) for row in env_vars()]
    assert max(sizes) < 400


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("2.1", ("Torch 2.1 reads it as NCCL_BLOCKING_WAIT; the name TORCH_NCCL_BLOCKING_WAIT came with 2.2.",)),
        ("2.2", ()),
    ],
)
def test_an_older_torch_is_told_by_the_name_it_reads(version: str, told: tuple[str, ...]) -> None:
    row = find_env_var("TORCH_NCCL_BLOCKING_WAIT")
    assert row is not None
    answer = env_var_answer(row, asked="TORCH_NCCL_BLOCKING_WAIT", version=version, installed=None)
    assert answer.warnings == told


def test_every_row_that_was_renamed_has_the_older_name() -> None:
    assert [row.name for row in env_vars() if row.name_since and not row.aliases] == []
