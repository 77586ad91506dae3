"""Building, keeping and opening the index."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdp_mcp import call, index
from fsdp_mcp.call import Caller
from fsdp_mcp.docs.search import search_docs
from fsdp_mcp.errors import Cancelled, EnvironmentProblem
from fsdp_mcp.index import build_index, index_key, open_index
from fsdp_mcp.index_build import read_guides
from fsdp_mcp.index_store import ENTRIES, META, POSTINGS, read_search
from fsdp_mcp.target import Target, find_target

GUIDE = '---\ntitle: One\nsummary: First.\ntorch: ">=2.6"\n---\n## Part\nText.\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and a process that has opened no index yet."""
    monkeypatch.setenv("FSDP_MCP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(index, "_OPENED", {})
    yield tmp_path / "cache"
    call.enter(Caller())


def small_torch(folder: Path) -> Target:
    """A target whose torch is one documented function, so that a build takes a fraction of a second."""
    distributed = folder / "torch" / "distributed"
    distributed.mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("", encoding="utf-8")
    (folder / "torch" / "version.py").write_text("__version__ = '2.13.0'\ngit_version = 'abc'\n", encoding="utf-8")
    (distributed / "__init__.py").write_text("from .distributed_c10d import *\n", encoding="utf-8")
    code = '__all__ = ["barrier"]\n\ndef barrier(group=None):\n    """Wait for every rank of the zebra group."""\n'
    (distributed / "distributed_c10d.py").write_text(code, encoding="utf-8")
    return Target(
        python=Path(sys.executable),
        python_version="3.11.0",
        reason="the test",
        torch_dir=folder / "torch",
        torch_version="2.13.0",
        git_version="abc",
    )


def no_torch() -> Target:
    return Target(
        python=Path(sys.executable),
        python_version="3.11.0",
        reason="the test",
        torch_dir=None,
        torch_version=None,
        git_version=None,
    )


def test_a_built_index_finds_what_the_torch_documents(cache: Path, tmp_path: Path) -> None:
    target = small_torch(tmp_path)
    folder = build_index(target)
    opened = open_index(target)
    found = search_docs("zebra group", index=opened.search).hits[0]
    assert (found.uri, opened.search.torch_version, opened.folder, folder.parent) == (
        "fsdp://api/torch.distributed.barrier",
        "2.13.0",
        folder,
        cache,
    )
    assert "torch.distributed.barrier" in opened.catalogue.names()


def test_without_torch_the_index_has_guides_and_variables_and_says_what_is_missing(cache: Path) -> None:
    search = read_search(build_index(no_torch()))
    assert search is not None
    assert ({row.kind for row in search.rows}, search.torch_version) == ({"guide", "env_var", "failure"}, None)
    assert search.missing.startswith("There is no torch")


def test_a_second_build_leaves_the_index_alone_and_force_makes_a_new_one(cache: Path) -> None:
    first = (build_index(no_torch()) / META).stat().st_ino
    second = (build_index(no_torch()) / META).stat().st_ino
    third = (build_index(no_torch(), force=True) / META).stat().st_ino
    assert (first == second, second == third) == (True, False)


def test_the_build_reports_its_steps_to_the_end(cache: Path, tmp_path: Path) -> None:
    steps: list[tuple[float, float | None]] = []
    build_index(small_torch(tmp_path), report=lambda done, total, message: steps.append((done, total)))
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("name", [META, ENTRIES, POSTINGS, "terms.json", "catalogue.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_index_is_not_used_and_built_again(cache: Path, name: str, damage: str) -> None:
    path = build_index(no_torch()) / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else bytes([data[0] ^ 1]) + data[1:])
    before = read_search(path.parent)
    after = read_search(build_index(no_torch()))
    assert (before is None, after is None) == (True, False)


def test_the_key_follows_torch_its_installation_and_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = small_torch(tmp_path)
    keys = [index_key(target), index_key(target.model_copy(update={"git_version": "def"}))]
    os.utime(tmp_path / "torch" / "version.py", (1, 1))
    keys.append(index_key(target))
    monkeypatch.setattr(index, "_corpus_fingerprint", lambda: "another corpus")
    keys.append(index_key(target))
    assert len(set(keys)) == 4


def _build_in_process(folder: str) -> int:
    os.environ["FSDP_MCP_CACHE_DIR"] = folder
    return (build_index(no_torch()) / META).stat().st_ino


def test_two_processes_at_once_build_once(cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        files = pool.map(_build_in_process, [str(cache)] * 2, chunksize=1)
    assert len(set(files)) == 1


def test_a_missing_index_is_built_by_a_child_process(cache: Path) -> None:
    call.enter(Caller(python=Path(sys.executable)))
    opened = open_index(find_target())
    assert search_docs("fully_shard", index=opened.search).hits[0].symbol == "torch.distributed.fsdp.fully_shard"


def test_an_index_that_the_child_built_under_another_key_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package was replaced while the server ran: the child reads the new corpus, the server knows the old one."""
    monkeypatch.setattr(index, "_corpus_fingerprint", lambda: "the corpus as it was")
    call.enter(Caller(python=Path(sys.executable)))
    opened = open_index(find_target())
    assert opened.folder.name != index_key(find_target())


def test_a_caller_that_cancels_stops_waiting(cache: Path, tmp_path: Path) -> None:
    call.enter(Caller(is_cancelled=lambda: True))
    with pytest.raises(Cancelled):
        open_index(small_torch(tmp_path))


def test_a_build_that_fails_says_why(cache: Path, tmp_path: Path) -> None:
    target = no_torch().model_copy(update={"python": tmp_path / "no-such-python"})
    with pytest.raises(EnvironmentProblem, match="no-such-python"):
        open_index(target)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_cache_with_an_index_is_used(cache: Path) -> None:
    build_index(no_torch())
    cache.chmod(0o555)
    try:
        assert open_index(no_torch()).folder.parent == cache
    finally:
        cache.chmod(0o755)


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("FSDP_MCP_CACHE_DIR", str(blocked))
    monkeypatch.setattr(index, "_OPENED", {})
    call.enter(Caller(python=Path(sys.executable)))
    assert open_index(find_target()).folder.parent.name.startswith("fsdp-mcp-index-")


def test_building_into_a_cache_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("FSDP_MCP_CACHE_DIR", str(blocked))
    with pytest.raises(EnvironmentProblem, match="FSDP_MCP_CACHE_DIR"):
        build_index(no_torch())


def test_only_the_latest_indexes_are_kept(cache: Path) -> None:
    targets = [no_torch().model_copy(update={"git_version": str(number)}) for number in range(8)]
    folders = [build_index(target) for target in targets]
    assert (len(list(cache.glob(f"*/{META}"))), folders[-1].is_dir()) == (5, True)


def test_a_broken_guide_is_left_out_and_the_others_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "bad.md").write_text("no front matter", encoding="utf-8")
    (tmp_path / "good.md").write_text(GUIDE, encoding="utf-8")
    entries = read_guides(tmp_path)
    assert ([entry.uri for entry in entries], "bad" in caplog.text) == (
        ["fsdp://guides/good", "fsdp://guides/good#part"],
        True,
    )


def test_the_files_of_an_index_are_data_that_json_and_arrays_hold(cache: Path) -> None:
    folder = build_index(no_torch())
    rows = json.loads((folder / ENTRIES).read_text(encoding="utf-8"))
    assert sorted(path.suffix for path in folder.iterdir()) == [".bin", ".json", ".json", ".json", ".json"]
    assert all(len(row) == 9 for row in rows)
