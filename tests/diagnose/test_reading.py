"""Any text, any bytes and any size are read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_mcp.diagnose.explain import explain, explain_files
from fsdp_mcp.diagnose.page import failure_pages
from fsdp_mcp.diagnose.prefix import ranks_of_files, split_prefix, time_of
from fsdp_mcp.diagnose.reading import clean, lines_of_text

PIECES = st.sampled_from(
    [
        *(line for page in failure_pages() for line in page.excerpt.splitlines()),
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "KeyError: 'x'",
        "[rank1]:",
        "\r",
        "\x1b[31m",
        "",
    ]
)


@given(st.lists(PIECES | st.text(), max_size=12).map("\n".join))
def test_any_text_gets_an_answer_that_quotes_lines_of_it(text: str) -> None:
    found = explain(lines_of_text(text))
    assert found.summary
    lines = [clean(line).strip() for line in text.split("\n")]
    assert all(
        lines[each.line - 1].startswith(each.text.removesuffix("..."))
        for finding in found.findings
        for each in finding.evidence
    )


@given(st.binary())
def test_any_bytes_are_a_log(tmp_path_factory, data: bytes) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("log") / "job.log"
    path.write_bytes(b"x" + data)
    assert explain_files([path]).verdict == "none"


def test_a_line_without_end_takes_no_memory_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"x" * 3_000_000 + b"\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000\n")
    assert explain_files([path]).findings[0].id == "nccl-duplicate-gpu"


def test_a_gzip_file_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    line = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000\n"
    filler = "".join(f"step {number} {number * 7919 % 10007}\n" for number in range(40_000))
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress((line + filler).encode())[:-2000])
    assert explain_files([path]).findings[0].id == "nccl-duplicate-gpu"


def test_prefixes_of_launchers_are_told_from_the_line() -> None:
    told = {
        "[rank3]: RuntimeError": (3, "RuntimeError"),
        "[default3]:RuntimeError": (None, "RuntimeError"),
        " 3: [rank3]: RuntimeError": (3, "RuntimeError"),
        "[rank: 3] RuntimeError": (3, "RuntimeError"),
        "(TrainWorker pid=123, ip=10.0.0.1) RuntimeError": (None, "RuntimeError"),
        "node-a:100:200 [3] NCCL INFO": (None, "NCCL INFO"),
        "2026-03-02T09:14:07.123456789Z   File": (None, "  File"),
        "2026-03-02T09:14:07+01:00 node-a [rank3]:   File": (3, "  File"),
        "2026-03-02 09:14:07,123 node-a: [rank3]: RuntimeError": (3, "RuntimeError"),
        "RuntimeError: 3": (None, "RuntimeError: 3"),
    }
    assert {text: (split_prefix(text)[0].rank, split_prefix(text)[1]) for text in told} == told


def test_time_stamps_of_one_moment_are_equal() -> None:
    stamps = ("2025-03-04 10:22:41,500 - root", "2025-03-04T10:22:41.500Z", "[E304 10:22:41.500000000 x.cpp:1]")
    assert len({time_of(stamp) for stamp in stamps}) == 1


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_does_not_hide_a_log(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "job.log"
    path.write_text("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000\n", encoding=encoding)
    assert explain_files([path]).findings[0].id == "nccl-duplicate-gpu"


def test_a_progress_bar_hides_neither_a_message_nor_its_rank() -> None:
    bar = " 40%|####      | 2/5 [00:01<00:02,  2.0it/s]"
    written = (f"[rank3]: KeyError\r{bar}", f"\r{bar}[rank3]: KeyError", f"{bar}\r{bar}")
    assert [clean(line) for line in written] == ["[rank3]: KeyError", "[rank3]: KeyError", bar]


def test_a_damaged_gzip_file_among_logs_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"step 1\n" * 9)[:10] + b"\xff" * 60)
    assert explain_files([tmp_path / "a.log", tmp_path / "b.gz"]).findings[0].id == "nccl-duplicate-gpu"


def test_files_alike_but_for_a_number_from_0_are_ranks() -> None:
    assert ranks_of_files(["slurm-99_0.out", "slurm-99_1.out"]) == {"slurm-99_0.out": 0, "slurm-99_1.out": 1}
    assert ranks_of_files(["slurm-98.out", "slurm-99.out"]) == {}
