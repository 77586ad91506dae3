"""What holds for every failure page."""

from __future__ import annotations

import re
import time

import pytest

from fsdp_mcp.diagnose.diagnose_log import diagnose_log
from fsdp_mcp.diagnose.page import FailurePage, failure_pages
from fsdp_mcp.diagnose.patterns import anchor_words, compile_pattern

PAGES = failure_pages()
PATTERNS = [
    (page.id, p)
    for page in PAGES
    for p in (*page.match, *page.requires, *page.along, *page.context, *page.excludes, *page.raised_in)
]


WITH_EXCERPT = [page for page in PAGES if page.role != "notice" and page.excerpt]


@pytest.mark.parametrize("page", WITH_EXCERPT, ids=lambda page: page.id)
def test_the_excerpt_of_a_page_is_found_by_it_and_by_no_other_page_first(page: FailurePage) -> None:
    found = diagnose_log(page.excerpt)
    assert found.findings[0].id == page.id


def test_the_excerpt_of_a_harmless_notice_is_no_failure() -> None:
    notices = [page for page in PAGES if page.role == "notice"]
    assert [page.id for page in notices if diagnose_log(page.excerpt).verdict != "none"] == []
    assert [page.id for page in notices if page.title not in diagnose_log(page.excerpt).summary] == []


def test_every_page_says_what_to_do_and_where_it_comes_from() -> None:
    incomplete = [
        page.id
        for page in PAGES
        if not (page.match or page.signs or page.requires or page.raised_in)
        or not (page.cause and page.fix and page.next_evidence)
        or not (page.excerpt or all(sign.startswith("recorder_") for sign in page.signs or ["none"]))
        or not all(reference.url.startswith("https://") for reference in page.pages)
        or len(page.cause) > 700
        or len(page.fix) > 700
    ]
    assert incomplete == []


def test_pages_refine_pages_that_there_are() -> None:
    ids = {page.id for page in PAGES}
    assert {name for page in PAGES for name in page.refines} - ids == set()


def test_every_pattern_has_a_word_by_which_it_is_found() -> None:
    assert [(name, pattern) for name, pattern in PATTERNS if not anchor_words(pattern)] == []


NEAR_MISSES = ["a" * 4000, " " * 4000, "0" * 4000, "a " * 2000, "[" * 4000, "(1, " * 1000, "rank 1 " * 500]


def test_no_pattern_takes_long_on_a_line_that_nearly_matches() -> None:
    """A pattern that tries every way to match takes seconds here; the bound is far above what a linear one needs."""
    slow = []
    for name, pattern in PATTERNS:
        compiled = compile_pattern(pattern)
        words = " ".join(sorted(anchor_words(pattern)))
        literal = re.sub(r"\\.|[\^$.*+?()\[\]{}|]", " ", pattern)
        started = time.process_time()
        for tail in NEAR_MISSES:
            compiled.search(f"{words} {tail}")
            compiled.search(f"{literal}{tail}")
        if time.process_time() - started > 1:
            slow.append((name, pattern))
    assert slow == []


def test_says_use_parts_that_some_pattern_or_sign_gives() -> None:
    wrong = []
    for page in PAGES:
        parts = {name for pattern in page.match for name in compile_pattern(pattern).groupindex} | {"rank"}
        parts |= {"message"} if page.raised_in else set()
        for sentence in page.says:
            needed = set(re.findall(r"\{(\w+)\}", sentence))
            if not needed <= parts and not page.signs and not page.likelier:
                wrong.append((page.id, sentence))
    assert wrong == []
