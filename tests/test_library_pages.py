"""Reading MyST and reStructuredText pages into sections of Markdown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_mcp.library.links import ApiLinks, uris_of
from fsdp_mcp.library.pages import BrokenDocument, decode, official_entries, read_parts, sphinx_id, user_entries
from fsdp_mcp.models import IndexEntry

LINKS = {"torch.distributed.barrier": "fsdp://api/torch.distributed.barrier"}

MYST = """\
---
orphan: true
---
(_comm-package)=
# Communication package

```{eval-rst}
.. automodule:: torch.distributed
```

```{eval-rst}
.. currentmodule:: torch.distributed
```

:::{warning}
Call {func}`~torch.distributed.barrier` on
**every** rank; see {ref}`the basics <basics>`.

```python
barrier()  # {func}`kept`
```
:::

## Functions

```{eval-rst}
.. autofunction:: barrier
.. autofunction:: new_thing
```

(basics)=

## Basics

### Setup

```{code-block} bash
:linenos:
# not a heading
torchrun train.py
```

| a | b |
|---|---|
| 1 | 2 |
"""

REST = """\
.. role:: hidden
    :class: hidden-section

.. _comm-package:

Communication package
=====================

.. automodule:: torch.distributed
.. currentmodule:: torch.distributed

.. warning::
    Call :func:`~torch.distributed.barrier` on ``every`` rank.

    .. autofunction:: barrier

Functions
---------

+------+-----+
| a    | b   |
+======+=====+
| 1    | 2   |
+------+-----+

.. a comment that readers of the page do not see

Setup
^^^^^

Run it::

    # not a heading
    torchrun train.py

.. toctree::
   :maxdepth: 1

   elastic/run

.. _NCCL: https://example.org/nccl

.. [1] A footnote.
"""


def read(text: str, path: str = "page.md"):
    return read_parts(text, path=path, links=ApiLinks(LINKS))


def text_of(parts) -> str:
    return "\n".join(part.text for part in parts)


def test_a_myst_page_becomes_sections_with_the_anchors_of_the_published_page():
    found = [(part.anchor, part.html_id, part.headings[-1]) for part in read(MYST)]
    assert found == [
        ("", "comm-package", "Communication package"),
        ("functions", "functions", "Functions"),
        ("setup", "setup", "Setup"),
    ]


def test_directives_and_roles_of_myst_become_markdown():
    first = read(MYST)[0].text
    assert first == (
        "# Communication package\n\nModule `torch.distributed`\n\n"
        "> **Warning:** Call `barrier` on\n> **every** rank; see the basics.\n>\n"
        "> ```python\n> barrier()  # {func}`kept`\n> ```"
    )


def test_documented_names_link_to_the_entries_of_the_index_and_others_stay_names():
    listed = read(MYST)[1].text
    assert "- [torch.distributed.barrier](fsdp://api/torch.distributed.barrier)" in listed
    assert "- `torch.distributed.new_thing`" in listed


def test_a_heading_without_text_opens_the_section_below_it_and_code_keeps_its_lines():
    assert read(MYST)[2].text == (
        "## Basics\n\n### Setup\n\n```bash\n# not a heading\ntorchrun train.py\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )


def test_a_rest_page_becomes_sections_as_the_same_page_in_myst_does():
    parts = read(REST, "page.rst")
    assert [(part.anchor, part.html_id, part.headings) for part in parts] == [
        ("", "comm-package", ("Communication package",)),
        ("functions", "functions", ("Communication package", "Functions")),
        ("setup", "setup", ("Communication package", "Functions", "Setup")),
    ]
    assert "> **Warning:** Call `barrier` on `every` rank." in parts[0].text
    assert "[torch.distributed.barrier](fsdp://api/torch.distributed.barrier)" in parts[0].text
    assert parts[1].text == "## Functions\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert "# not a heading\ntorchrun train.py\n```" in parts[2].text
    assert parts[2].text.endswith("- elastic/run\n\n[NCCL]: https://example.org/nccl\n\n[1] A footnote.")


GRID = """\
+-------+-----------+------+
| What  | ``gloo``  | nccl |
+-------+-----+-----+------+
| Where | CPU | GPU | GPU  |
+=======+=====+=====+======+
| send  | yes | no  | yes  |
|       |     |     | [1]  |
+-------+-----+-----+------+
"""


def test_the_head_of_a_grid_table_names_each_column_whole():
    assert text_of(read(GRID, "page.rst")) == (
        "| What Where | `gloo` CPU | `gloo` GPU | nccl GPU |\n| --- | --- | --- | --- |\n| send | yes | no | yes [1] |"
    )


def test_a_simple_table_joins_the_lines_of_a_row():
    page = "====  =======\nName  Meaning\n====  =======\nA     the one\n      and more\nB     other\n====  =======\n"
    assert text_of(read(page, "page.rst")) == (
        "| Name | Meaning |\n| --- | --- |\n| A | the one and more |\n| B | other |"
    )


def test_what_only_looks_like_a_table_stays_as_it_is():
    assert text_of(read("+--+--+\n| a   b|\n", "page.rst")) == "+--+--+\n| a   b|"


@pytest.mark.parametrize(
    "page",
    [
        "```{list-table} Times\n:header-rows: 1\n\n"
        "* - **Variable**\n  - Meaning\n* - `X`\n  - how long\n    to wait\n```",
        "```{csv-table} Times\n:header: **Variable**, Meaning\n\n`X`, how long to wait\n```",
    ],
)
def test_the_directives_for_tables_become_tables(page: str) -> None:
    assert text_of(read(page)) == ("**Times**\n\n| **Variable** | Meaning |\n| --- | --- |\n| `X` | how long to wait |")


def test_the_cells_of_a_csv_table_are_rendered():
    page = '.. csv-table::\n   :header: "Type", "What"\n\n   "``A``", "see :func:`f`, too"\n'
    assert text_of(read(page, "page.rst")) == "| Type | What |\n| --- | --- |\n| `A` | see `f`, too |"


def test_comments_of_myst_are_left_out_and_a_percent_sign_is_not():
    assert text_of(read("% seen by authors alone\n\n% of it\n\nAbout\n%50 or so\n")) == "About\n%50 or so"


def test_a_directive_of_rest_that_lost_its_fence_is_still_a_link():
    page = "Others:\n\n.. autofunction:: torch.distributed.barrier\n  :members:\n\nThe end.\n"
    assert text_of(read(page)) == (
        "Others:\n\n- [torch.distributed.barrier](fsdp://api/torch.distributed.barrier)\n\nThe end."
    )


def test_comments_of_rest_are_left_out():
    assert "readers of the page do not see" not in text_of(read(REST, "page.rst"))


def test_plain_markdown_stays_as_it_is():
    page = "# Title\n\ntext with `{x}` and 50% of {braces}\n\n- item\n\n  ```\n  code\n  ```\n"
    assert text_of(read(page)) == page.strip("\n")


def test_a_fence_inside_a_list_item_ends_with_the_item():
    page = "# T\n\n- item\n\n  :::{note}\n  inside\n  :::\n\nafter\n"
    assert text_of(read(page)).split("\n\n")[-1].strip() == "after"


def test_chinese_headings_have_anchors_of_their_own_and_none_on_the_english_page():
    parts = read("# 运行手册\n\n概述。\n\n## 排查 NCCL 超时\n\n先看网卡。\n\n## 保存\n\n文本\n")
    entries = official_entries(parts, page="distributed", torch_version="2.13.0")
    assert [entry.uri for entry in entries] == [
        "fsdp://official/distributed",
        "fsdp://official/distributed#排查-nccl-超时",
        "fsdp://official/distributed#保存",
    ]
    assert entries[2].url == "https://docs.pytorch.org/docs/2.13/distributed.html"


def test_an_official_section_has_page_address_and_release():
    entry = official_entries(read(MYST), page="distributed", torch_version="2.13.0")[1]
    assert (entry.uri, entry.kind, entry.title, entry.page, entry.url, entry.torch_version) == (
        "fsdp://official/distributed#functions",
        "official",
        "Communication package › Functions",
        "distributed",
        "https://docs.pytorch.org/docs/2.13/distributed.html#functions",
        "2.13.0",
    )


def test_a_section_of_the_user_names_its_collection_and_encodes_what_would_break_a_uri():
    entries = user_entries(read("# T\n\ntext\n\n## Part\n\nmore\n"), collection="ops", path="a b/手册#1.md")
    assert [(entry.uri, entry.title, entry.kind) for entry in entries] == [
        ("fsdp://user/ops/a%20b/手册%231.md", "ops › T", "user"),
        ("fsdp://user/ops/a%20b/手册%231.md#part", "ops › T › Part", "user"),
    ]


def test_repeated_headings_have_different_anchors():
    parts = read("# T\n\na\n\n## Same\n\nb\n\n## Same\n\nc\n\n## Same-2\n\nd\n")
    assert [part.anchor for part in parts] == ["", "same", "same-2", "same-2-2"]


def test_a_long_section_is_cut_between_paragraphs_and_nothing_is_lost():
    page = "# T\n\n" + "\n\n".join(f"paragraph {number} " + "word " * 60 for number in range(100))
    parts = read(page)
    assert len(parts) > 3
    assert max(len(part.text) for part in parts) <= 6_000
    assert "".join(part.text for part in parts) == page


def test_a_page_without_headings_is_named_by_its_front_matter_or_its_file():
    titles = [read(text, "runbook.md")[0].headings for text in ("text", "---\ntitle: Night shift\n---\ntext")]
    assert titles == [("runbook",), ("Night shift",)]


def test_front_matter_that_is_no_mapping_is_text():
    assert "just words" in text_of(read("---\njust words\n---\nbody\n"))


@pytest.mark.parametrize(
    ("name", "anchor"),
    [
        ("_torch_nccl_environment_variables", "torch-nccl-environment-variables"),
        ("Which backend to use?", "which-backend-to-use"),
        ("2. Übung", "ubung"),
        ("初始化", ""),
    ],
)
def test_anchors_are_those_of_sphinx(name: str, anchor: str):
    assert sphinx_id(name) == anchor


@pytest.mark.parametrize("data", [b"\xff\xfeh\x00i\x00", "中文".encode("gb18030"), b"a\0b"])
def test_bytes_that_are_no_utf8_text_are_refused_with_the_reason(data: bytes):
    with pytest.raises(BrokenDocument, match="UTF-8"):
        decode(data)


def test_links_know_the_other_paths_of_an_api_but_not_its_parameters():
    entry = IndexEntry("fsdp://api/torch.a.f", "torch.a.f", "api", "", "", "", "torch.a.f", ("torch.b.f", "f"))
    parameter = IndexEntry("fsdp://api/torch.a.f#param-x", "x", "api", "", "", "", "torch.a.g", ("f.x",))
    assert uris_of([entry, parameter]) == {
        "torch.a.f": "fsdp://api/torch.a.f",
        "torch.b.f": "fsdp://api/torch.a.f",
    }


# --- whatever the text ---------------------------------------------------------------------------------------------

MARKS = [
    "# W", "## W", "#### W", "W", "====", "----", "", "- W", "  W", "    W", "> W", "```", "```{note}",
    "```{eval-rst}", "```{code-block} python", ":::{warning} W", "::::{tab-set}", ":::", "::::", "(target)=",
    "{func}`W`", "{ref}`W <x>`", "| W | W |", "|---|---|", "W::", ".. note:: W", ".. code-block:: python", "   W",
    ".. autofunction:: W", ".. math::", ":func:`~W`", "``W``", "`W <https://a.b>`_", "+---+", "*W*", "$W$", "1. W",
    "W\n====", "W\n----", ".. _t:", "\t W", ":::{list-table} W", "* - W", ".. image:: W", ".. autosummary::", "+++",
    "<div>W</div>", "+===+", "| W |", "==== ====", "W     W", "  - W", ".. list-table::", "   * - W", "     - W",
    ".. csv-table::", "   W, W", "```{list-table}", ".. autoclass:: W", "+--+--+", "|W |W |",
]  # fmt: skip


@st.composite
def marked_text(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A page of markup in any order, legal or not, in which every word stands once; and those words."""
    lines = draw(st.lists(st.sampled_from(MARKS), max_size=40))
    words: list[str] = []

    def word(_: re.Match[str]) -> str:
        words.append(f"q{len(words)}q")
        return words[-1]

    return "\n".join(re.sub("W", word, line) for line in lines), words


@pytest.mark.parametrize("path", ["page.md", "page.rst"])
@given(page=marked_text())
def test_no_word_of_a_page_is_lost(path: str, page: tuple[str, list[str]]) -> None:
    text, words = page
    parts = read(text, path)
    shown = "\n".join([text_of(parts), *(" ".join(part.headings) for part in parts)])
    assert [word for word in words if word not in shown] == []


@pytest.mark.parametrize("path", ["page.md", "page.rst"])
@given(text=st.lists(st.sampled_from(MARKS) | st.text(max_size=20), max_size=30).map("\n".join))
def test_any_text_is_read_and_its_anchors_differ(path: str, text: str) -> None:
    anchors = [part.anchor for part in read(text, path)]
    assert len(set(anchors)) == len(anchors)
