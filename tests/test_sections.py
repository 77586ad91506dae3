"""Splitting a guide into sections."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_mcp.models import Source
from fsdp_mcp.sections import BrokenPage, guide_entries, parse_guide, read_guide, split_sections

PAGE = "https://docs.pytorch.org/docs/stable/page.html"
FRONT = f"""---
title: Mixed precision
summary: Which dtype each part of a step uses.
torch: ">=2.6"
pages:
  - name: distributed.fsdp.fully_shard
    url: {PAGE}
symbols: [torch.distributed.fsdp.MixedPrecisionPolicy]
---
"""

PIECES = st.lists(
    st.sampled_from(
        ["# One", "## Two", "## Two", "### Three", "#### Four", "```", "~~~", "- item", "> ## quoted", "    ## code",
         "Setext", "---", "", "text", "Sources: [A](https://a.b)", "<!-- ##", "-->", "## Ü 中文!", "|", "\r", "##"]
    )
    | st.text(max_size=12)
)  # fmt: skip


@given(PIECES.map("\n".join))
def test_the_sections_of_any_text_joined_are_the_text(body: str) -> None:
    assert "".join(section.text for section in split_sections(body, title="T")) == body


@given(PIECES.map("\n".join))
def test_slugs_are_unique_and_offsets_point_at_the_section(body: str) -> None:
    sections = split_sections(body, title="T")
    slugs = [section.slug for section in sections]
    found = [body[section.start : section.start + len(section.text)] for section in sections]
    assert (len(set(slugs)), found) == (len(slugs), [section.text for section in sections])


@given(PIECES.map("\n".join))
def test_every_section_but_the_first_starts_with_its_heading(body: str) -> None:
    sections = split_sections(body, title="T")
    assert all(section.level in (2, 3) and section.text.strip() for section in sections[1:])


def test_a_heading_inside_a_code_block_starts_no_section() -> None:
    sections = split_sections("## Real\n```python\n## comment\n```\n", title="T")
    assert [section.heading for section in sections] == ["T", "Real"]


def test_slugs_are_those_of_github() -> None:
    body = "## `fully_shard`: what it does\n## Was & ist\n## Same\n## Same\n## 中文 标题\n"
    slugs = [section.slug for section in split_sections(body, title="T")]
    assert slugs == ["", "fully_shard-what-it-does", "was--ist", "same", "same-1", "中文-标题"]


def test_a_subsection_knows_its_section_and_shares_its_sources() -> None:
    body = "## Outer\ntext\n\n### Inner\nmore\n\nSources: [A](https://a.b/x), [B (c)](https://a.b/y_(z))\n"
    sources = (Source(title="A", url="https://a.b/x"), Source(title="B (c)", url="https://a.b/y_(z)"))
    sections = split_sections(body, title="T")[1:]
    assert [(section.heading, section.parent, section.sources) for section in sections] == [
        ("Outer", "", sources),
        ("Inner", "Outer", sources),
    ]


def test_a_guide_becomes_one_entry_for_its_opening_and_one_for_each_heading() -> None:
    guide = parse_guide(f"{FRONT}# Mixed precision\n\nIntro.\n\n## Policy\nThe policy.\n", stem="mixed")
    entries = guide_entries(guide)
    assert [(entry.uri, entry.title, entry.url, entry.torch_version) for entry in entries] == [
        ("fsdp://guides/mixed", "Mixed precision", "https://docs.pytorch.org/docs/stable/page.html", ">=2.6"),
        (
            "fsdp://guides/mixed#policy",
            "Mixed precision › Policy",
            "https://docs.pytorch.org/docs/stable/page.html",
            ">=2.6",
        ),
    ]
    assert entries[0].text == "# Mixed precision\n\nWhich dtype each part of a step uses.\n\nIntro."


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no front matter",
        "---\ntitle: x\n",
        "---\ntitle: x\n---\nbody",
        "---\n[1, 2\n---\n",
        "---\njust text\n---\n",
    ],
)
def test_a_page_without_complete_front_matter_is_called_broken(text: str) -> None:
    with pytest.raises(BrokenPage, match="page"):
        parse_guide(text, stem="page")


def test_a_file_that_is_not_utf8_is_called_broken(tmp_path: Path) -> None:
    path = tmp_path / "latin.md"
    path.write_bytes(b"---\ntitle: caf\xe9\n---\n")
    with pytest.raises(BrokenPage, match="latin"):
        read_guide(path)
