"""`fsdp-mcp docs`: official pages on request and the user's own documents, in the list and in the search."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fsdp_mcp import __version__, call, index
from fsdp_mcp.__main__ import main
from fsdp_mcp.call import Caller
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.docs.read import read_doc
from fsdp_mcp.docs.search import search_docs
from fsdp_mcp.errors import BadArgument, EnvironmentProblem, UnknownName
from fsdp_mcp.index import build_index, index_key, open_index
from fsdp_mcp.index_store import META, read_search
from fsdp_mcp.library import download, shelf
from fsdp_mcp.library.commands import add_documents, fetch_official, list_collections, remove_collection
from fsdp_mcp.library.fetch import OfficialPageRow, release_of
from fsdp_mcp.target import Target

RUNBOOK = "# Runbook\n\nWho is on call.\n\n## Zebra outage\n\nRestart the quokka daemon on every node.\n"
HANDBOOK = "# 训练手册\n\n概述。\n\n## 排查网卡超时\n\n先检查交换机的光模块。\n"
NOTES = "Notes\n=====\n\nIntro.\n\nWombat limits\n-------------\n\nUse ``ulimit``.\n"
DISTRIBUTED = "# Communication package\n\nThe platypus page.\n\n## Basics\n\nEchidna text.\n"
CHECKPOINT = "Checkpoint\n==========\n\nThe numbat page.\n\n.. autofunction:: torch.distributed.barrier\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and a process that has opened no index and looks at folders every time."""
    monkeypatch.setenv("FSDP_MCP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(index, "_OPENED", {})
    monkeypatch.setattr(shelf, "_RECHECK_SECONDS", 0.0)
    yield tmp_path / "cache"
    call.enter(Caller())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with a page in each language."""
    root = tmp_path / "docs"
    (root / "sub").mkdir(parents=True)
    (root / "runbook.md").write_text(RUNBOOK, encoding="utf-8")
    (root / "sub" / "手册.md").write_text(HANDBOOK, encoding="utf-8")
    (root / "notes.rst").write_text(NOTES, encoding="utf-8")
    return root


def target(torch_version: str | None = None) -> Target:
    """A Python without torch: its index has the guides and the library alone."""
    return Target(
        python=Path(sys.executable),
        python_version="3.11.0",
        reason="the test",
        torch_dir=None,
        torch_version=torch_version,
        git_version=None,
    )


def built():
    """The search index as it is after the library changed."""
    build_index(target())
    return open_index(target()).search


def uris(query: str, **options) -> list[str]:
    return [hit.uri for hit in search_docs(query, index=built(), **options).hits]


def silent(done: float, total: float | None, message: str) -> None:
    """Report to nobody."""


# --- the user's documents ------------------------------------------------------------------------------------------


def test_added_documents_are_found_at_once_by_kind_and_read_in_full(folder: Path):
    add_documents(str(folder), name="ops")
    search = built()
    found = search_docs("restart the quokka daemon", kind="user", index=search).hits[0]
    assert (found.uri, found.title, found.page) == (
        "fsdp://user/ops/runbook.md#zebra-outage",
        "ops › Runbook › Zebra outage",
        "ops/runbook.md",
    )
    assert read_doc("fsdp://user/ops/runbook.md", index=search).text.rstrip() == RUNBOOK.rstrip()


def test_documents_are_found_beside_the_guides_without_a_kind(folder: Path):
    add_documents(str(folder), name="ops")
    assert uris("wombat limits")[0] == "fsdp://user/ops/notes.rst#wombat-limits"


def test_chinese_documents_are_found_by_chinese_questions(folder: Path):
    add_documents(str(folder), name="ops")
    assert uris("网卡超时怎么排查")[0] == "fsdp://user/ops/sub/手册.md#排查网卡超时"


def test_the_list_tells_name_kind_pages_sections_origin_and_date(folder: Path):
    add_documents(str(folder), name="ops")
    found = list_collections().collections[0]
    assert (found.name, found.kind, found.pages, found.sections, found.origin) == ("ops", "user", 3, 6, str(folder))
    assert f"ops  user  3 pages, 6 sections  {found.date}  {folder}" in list_collections().render()


def test_a_changed_document_is_read_again_by_a_process_that_has_the_index_open(folder: Path):
    add_documents(str(folder), name="ops")
    before = uris("axolotl")
    (folder / "new.md").write_text("# New\n\nFeed the axolotl.\n", encoding="utf-8")
    (folder / "runbook.md").unlink()
    assert (uris("axolotl", kind="user")[0], "fsdp://user/ops/new.md" in before) == ("fsdp://user/ops/new.md", False)
    assert all("runbook" not in uri for uri in uris("quokka", kind="user"))


def test_the_index_is_rebuilt_from_the_one_before_and_the_old_one_goes(folder: Path, cache: Path):
    steps: list[str] = []
    guides = {row.uri for row in built().rows}
    add_documents(str(folder), name="ops")
    build_index(target(), report=lambda done, total, message: steps.append(message.split()[0]))
    rows = built().rows
    assert ({row.uri for row in rows if row.kind != "user"}, steps) == (guides, ["Weighing", "Indexed"])
    assert (len(list(cache.glob(f"*/{META}"))), len(index._OPENED)) == (1, 1)


def test_a_collection_survives_a_restart(folder: Path, monkeypatch: pytest.MonkeyPatch):
    add_documents(str(folder), name="ops")
    build_index(target())
    monkeypatch.setattr(index, "_OPENED", {})
    monkeypatch.setattr(shelf, "_KNOWN", {})
    assert search_docs("quokka", kind="user", index=open_index(target()).search).hits[0].page == "ops/runbook.md"


def test_a_removed_collection_leaves_list_and_search_and_its_documents_stay(folder: Path):
    empty = index_key(target())
    add_documents(str(folder), name="ops")
    added = index_key(target())
    remove_collection("ops")
    assert (index_key(target()), added == empty, list_collections().collections) == (empty, False, ())
    assert uris("quokka daemon", kind="user") == []
    assert (folder / "runbook.md").is_file()


def test_a_broken_document_is_reported_and_nothing_else_is_lost(folder: Path):
    (folder / "gbk.md").write_bytes("# 标题\n\n内容\n".encode("gb18030"))
    (folder / "binary.md").write_bytes(b"\0\1\2")
    (folder / "empty.md").write_text("\n\n", encoding="utf-8")
    (folder / "huge.md").write_text("x" * (shelf.MOST_BYTES + 1), encoding="utf-8")
    report = add_documents(str(folder), name="ops").collections[0]
    assert {one.path: one.why.split(" (")[0].split(",")[0] for one in report.skipped} == {
        "binary.md": "holds NUL bytes",
        "empty.md": "is empty",
        "gbk.md": "is not UTF-8",
        "huge.md": "has more than 1",
    }
    assert (report.pages, uris("quokka", kind="user")[0]) == (3, "fsdp://user/ops/runbook.md#zebra-outage")


def test_a_page_that_the_parser_fails_on_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(text: str, *, path: str, links: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("fsdp_mcp.library.reading.read_parts", fail)
    with pytest.raises(BadArgument, match=r"cannot be parsed \(RecursionError: too deep\)"):
        add_documents(str(folder), name="ops")


def test_hidden_folders_packages_and_links_are_left_out(folder: Path, tmp_path: Path):
    for name in (".git", "node_modules"):
        (folder / name).mkdir()
        (folder / name / "README.md").write_text("# No\n\nno\n", encoding="utf-8")
    (tmp_path / "secret.md").write_text("# Secret\n\nsecret\n", encoding="utf-8")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "up").symlink_to(tmp_path, target_is_directory=True)
    assert [found.path for found in shelf.look_into(folder).documents] == ["notes.rst", "runbook.md", "sub/手册.md"]


def test_a_folder_with_very_many_documents_is_cut_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shelf, "MOST_FILES", 2)
    report = add_documents(str(folder), name="ops").collections[0]
    assert (report.pages, [one.path for one in report.skipped]) == (2, ["sub/手册.md"])


def test_a_folder_that_went_away_is_reported_and_the_search_goes_on(folder: Path, tmp_path: Path):
    add_documents(str(folder), name="ops")
    folder.rename(tmp_path / "elsewhere")
    assert list_collections().collections[0].skipped[0].why == "is not there any more"
    assert uris("init_process_group")


def test_a_single_file_can_be_added(folder: Path):
    report = add_documents(str(folder / "runbook.md"), name="one").collections[0]
    assert (report.pages, uris("quokka", kind="user")[0]) == (1, "fsdp://user/one/runbook.md#zebra-outage")


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "a b", "x" * 41, "official-mine", "a#b", "trailing."])
def test_a_name_that_cannot_stand_in_a_uri_is_refused(folder: Path, name: str):
    with pytest.raises(BadArgument, match="--name"):
        add_documents(str(folder), name=name)


@pytest.mark.parametrize("path", ["no-such-folder", "empty", "file.txt"])
def test_a_path_without_documents_is_refused_by_its_name(tmp_path: Path, path: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("text", encoding="utf-8")
    with pytest.raises(BadArgument, match=path):
        add_documents(str(tmp_path / path), name="ops")
    assert list_collections().collections == ()


def test_a_name_in_use_is_refused_and_the_same_path_counts_anew(folder: Path):
    add_documents(str(folder), name="ops")
    (folder / "new.md").write_text("# New\n\nmore\n", encoding="utf-8")
    assert add_documents(str(folder), name="ops").collections[0].pages == 4
    with pytest.raises(BadArgument, match="docs remove ops"):
        add_documents(str(folder / "sub"), name="OPS")


def test_an_unknown_collection_cannot_be_removed_and_the_near_one_is_named(folder: Path):
    add_documents(str(folder), name="runbook")
    with pytest.raises(UnknownName, match="Did you mean 'runbook'"):
        remove_collection("runbok")


def test_a_library_that_cannot_be_written_is_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("FSDP_MCP_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(EnvironmentProblem, match="FSDP_MCP_CACHE_DIR"):
        add_documents(str(folder), name="ops")


# --- the official pages --------------------------------------------------------------------------------------------


@dataclass
class Mirror:
    """A web server on loopback with the pages it is given; remembers what it was asked for."""

    pages: dict[str, bytes]
    asked: list[str] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    busy: dict[str, int] = field(default_factory=dict)
    """How often a page is answered with 503 first."""
    cut: set[str] = field(default_factory=set)
    """Pages of which half arrives, every time."""
    address: str = ""


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    state = Mirror({"distributed.md": DISTRIBUTED.encode(), "checkpoint.rst": CHECKPOINT.encode()})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removeprefix("/docs/source/")
            state.asked.append(path)
            state.agents.add(self.headers["User-Agent"])
            if state.busy.get(path, 0) > 0:
                state.busy[path] -= 1
                self.send_response(503)
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = state.pages.get(path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write((data or b"")[: len(data or b"") // 2 if path in state.cut else None])

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.address = f"http://127.0.0.1:{server.server_port}/docs/source"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client ask again at once."""
    monkeypatch.setattr(download, "_FIRST_PAUSE_SECONDS", 0.0)


def fetch(source: str, version: str = "2.13"):
    return fetch_official(version=version, source=source, report=silent).collections[0]


def test_fetched_pages_are_found_by_kind_with_page_and_anchor(mirror: Mirror):
    report = fetch(mirror.address)
    hit = search_docs("echidna", kind="official", index=built()).hits[0]
    assert (report.name, report.pages, hit.uri, hit.page, hit.url) == (
        "official-2.13.0",
        2,
        "fsdp://official/distributed#basics",
        "distributed",
        "https://docs.pytorch.org/docs/2.13/distributed.html#basics",
    )


def test_the_client_says_who_it_is(mirror: Mirror):
    fetch(mirror.address)
    (agent,) = mirror.agents
    assert agent.startswith(f"fsdp-mcp/{__version__}")


def test_pages_that_the_release_lacks_are_skipped_and_reported(mirror: Mirror):
    skipped = {one.path for one in fetch(mirror.address).skipped}
    listed = {row.page for row in load_facts("official_pages", OfficialPageRow)}
    assert skipped == listed - {"distributed", "checkpoint"}


def test_the_progress_goes_through_every_page_to_the_end(mirror: Mirror):
    steps: list[tuple[float, float | None]] = []
    fetch_official(
        version="2.13", source=mirror.address, report=lambda done, total, message: steps.append((done, total))
    )
    pages = len(load_facts("official_pages", OfficialPageRow))
    assert steps == [(done, pages) for done in range(pages + 1)]


@pytest.mark.usefixtures("no_pauses")
def test_an_interrupted_fetch_goes_on_where_it_stopped(mirror: Mirror):
    mirror.cut.add("checkpoint.rst")
    with pytest.raises(EnvironmentProblem, match=r"checkpoint\.rst.*--from"):
        fetch(mirror.address)
    half = list_collections().collections[0]
    assert (half.pages, half.skipped[-1].path) == (1, "the rest")
    mirror.cut.clear()
    mirror.asked.clear()
    report = fetch(mirror.address)
    assert (report.pages, "distributed.md" in mirror.asked, "checkpoint.rst" in mirror.asked) == (2, False, True)


def test_a_fetch_that_the_user_stops_keeps_what_has_arrived(mirror: Mirror):
    def stop(done: float, total: float | None, message: str) -> None:
        if message == "checkpoint":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_official(version="2.13", source=mirror.address, report=stop)
    assert [file.page for file in shelf.releases()[0].files] == ["distributed"]


def test_a_busy_server_is_asked_again(mirror: Mirror):
    mirror.busy["distributed.md"] = 2
    assert (fetch(mirror.address).pages, mirror.asked[:3]) == (2, ["distributed.md"] * 3)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("trouble", ["busy", "cut"])
def test_a_server_that_stays_in_trouble_is_given_up_after_five_tries(mirror: Mirror, trouble: str):
    mirror.busy["distributed.md"] = 9 if trouble == "busy" else 0
    mirror.cut.update(["distributed.md"] if trouble == "cut" else [])
    with pytest.raises(EnvironmentProblem, match=r"503|IncompleteRead"):
        fetch(mirror.address)
    assert mirror.asked == ["distributed.md"] * 5


def test_a_damaged_page_is_left_out_reported_and_fetched_again(mirror: Mirror, cache: Path):
    fetch(mirror.address)
    page = cache / "library" / "official" / "2.13.0" / "distributed.md"
    page.write_text("# Communication package\n\nThe forged page.\n", encoding="utf-8")
    damaged = list_collections().collections[0]
    assert (damaged.pages, damaged.skipped[-1].why) == (
        1,
        "is damaged: its checksum differs; run docs fetch again",
    )
    assert uris("forged", kind="official") == []
    assert fetch(mirror.address).pages == 2
    assert page.read_text(encoding="utf-8") == DISTRIBUTED


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"<!DOCTYPE html><title>Log in</title>", "is a web page"),
        (b"# T\n\xff\n", "is not UTF-8"),
        (b"   \n", "is empty"),
        (b"x" * (shelf.MOST_BYTES + 1), "has more than"),
    ],
)
def test_what_is_no_page_is_skipped_and_the_others_arrive(mirror: Mirror, content: bytes, why: str):
    mirror.pages["fsdp.md"] = content
    report = fetch(mirror.address)
    assert (report.pages, [one.why.startswith(why) for one in report.skipped if "fsdp.md" in one.path]) == (2, [True])


def test_a_local_checkout_serves_as_source(tmp_path: Path):
    source = tmp_path / "pytorch" / "docs" / "source"
    (source / "notes").mkdir(parents=True)
    (source / "notes" / "ddp.rst").write_text(CHECKPOINT, encoding="utf-8")
    assert fetch(str(tmp_path / "pytorch"), "1.13").pages == 1
    assert uris("numbat", kind="official") == ["fsdp://official/notes/ddp"]


def test_the_sources_that_sphinx_publishes_serve_as_source(mirror: Mirror):
    mirror.pages = {"/docs/_sources/distributed.md.txt": DISTRIBUTED.encode()}
    assert fetch(mirror.address.replace("/docs/source", "/docs/_sources")).pages == 1


def test_the_release_that_suits_the_torch_is_searched(tmp_path: Path):
    for version in ("2.6.0", "2.12.0", "2.13.0"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "fsdp.md").write_text(f"# Page\n\nof {version}\n", encoding="utf-8")
        fetch(str(tmp_path / version), version)
    wanted = ["2.6.0", "2.12.1", "2.4.0", None]
    assert [shelf.release_for(version).torch_version for version in wanted] == ["2.6.0", "2.12.0", "2.13.0", "2.13.0"]
    assert len({index_key(target(version)) for version in ("2.6.0", "2.12.0")}) == 2


def test_removed_pages_are_deleted(mirror: Mirror, cache: Path):
    fetch(mirror.address)
    remove_collection("official-2.13.0")
    assert (list_collections().collections, list((cache / "library" / "official").rglob("*"))) == ((), [])


def test_a_release_that_the_source_does_not_have_is_refused_and_leaves_nothing(mirror: Mirror):
    mirror.pages.clear()
    with pytest.raises(UnknownName, match=r"no page of torch 9\.9\.0"):
        fetch(mirror.address, "9.9")
    assert list_collections().collections == ()


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.13", "2.13.0"),
        ("2.12.1", "2.12.1"),
        ("v2.6.0", "2.6.0"),
        ("2.14.0a0+git1", "2.14.0"),
        ("2.6.0+cpu", "2.6.0"),
    ],
)
def test_a_version_names_its_release(version: str, release: str):
    assert release_of(version) == release


@pytest.mark.parametrize("version", ["", "latest", "2", "../2.6", "2.6/..", "2.6.0;x"])
def test_what_is_no_version_is_refused(version: str):
    with pytest.raises(BadArgument, match="--torch"):
        release_of(version)


@pytest.mark.parametrize("source", ["ftp://example.org", "file:///etc", "no/such/folder", "http://"])
def test_a_source_that_is_neither_address_nor_folder_is_refused(source: str):
    with pytest.raises(BadArgument, match="--from"):
        fetch(source)


def test_without_the_network_the_message_names_from_and_the_status_is_three(capsys: pytest.CaptureFixture[str]):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/docs"
        status = main(["docs", "fetch", "--torch", "2.13", "--from", address])
    assert (status, "--from" in capsys.readouterr().err, list_collections().collections) == (3, True, ())


# --- the command line ----------------------------------------------------------------------------------------------


def test_the_commands_print_what_they_did_and_the_next_search_has_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fsdp_mcp.target.find_target", target)
    assert main(["docs", "add", str(folder), "--name", "ops"]) == 0
    assert capsys.readouterr().out.startswith("Added ops.\nops  user  3 pages, 6 sections")
    folder_of_index = shelf.library_root().parent / index_key(target())
    search = read_search(folder_of_index)
    assert search is not None
    assert search_docs("quokka", kind="user", index=search).hits[0].page == "ops/runbook.md"
    assert main(["docs", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["collections"][0]["name"] == "ops"
    assert main(["docs", "remove", "ops"]) == 0
    assert capsys.readouterr().out.startswith("Removed ops; the documents themselves stay")
    assert main(["docs", "remove", "ops"]) == 2


def test_an_unknown_library_page_names_the_near_ones(folder: Path):
    add_documents(str(folder), name="ops")
    with pytest.raises(UnknownName, match=r"Closest: fsdp://user/ops/runbook\.md"):
        read_doc("fsdp://user/ops/runbok.md", index=built())


def test_adding_says_that_documents_are_read_where_they_are(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["docs", "add", "--help"])
    assert "stay where they are" in capsys.readouterr().out
