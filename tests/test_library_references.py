"""References between official pages, members of modules and classes, and field lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_mcp.library import shelf
from fsdp_mcp.library.commands import fetch_official
from fsdp_mcp.library.links import ApiLinks
from fsdp_mcp.library.pages import read_parts
from fsdp_mcp.library.reading import read_release

LINKS = {
    "torch.zoo.feed": "fsdp://api/torch.zoo.feed",
    "torch.zoo.Cage": "fsdp://api/torch.zoo.Cage",
    "torch.zoo.Cage.open": "fsdp://api/torch.zoo.Cage.open",
}

ELASTIC = """\
# Elastic

{ref}`zoo-rules`, {ref}`the rules <Zoo-Rules>`, {doc}`elastic/run`, {doc}`here </elastic/run>`, {ref}`nowhere`.

[By label](zoo-rules), [by anchor](#below), [by file](elastic/run.md#x), [away](https://example.org/run.md).

```{toctree}
:caption: More

elastic/run
elastic/missing
```

## Below

End.
"""

RUN = """\
.. _zoo-rules:

Run
===

See :doc:`../distributed.elastic`, :ref:`zoo-times` and `:ref:` itself.

.. _zoo-times:

Opening *times*
---------------

All day.
"""


def text(page: str, name: str = "page.md") -> str:
    return "\n".join(part.text for part in read_parts(page, path=name, links=ApiLinks(LINKS)))


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The text of each section of two official pages, by its URI."""
    monkeypatch.setenv("FSDP_MCP_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "source" / "elastic").mkdir(parents=True)
    (tmp_path / "source" / "distributed.elastic.md").write_text(ELASTIC, encoding="utf-8")
    (tmp_path / "source" / "elastic" / "run.rst").write_text(RUN, encoding="utf-8")
    fetch_official(version="2.13", source=str(tmp_path / "source"), report=lambda *_: None)
    return {entry.uri: entry.text for entry in read_release(shelf.releases()[0], uris={}).entries}


def test_references_lead_to_the_sections_of_other_pages_and_show_their_titles(pages: dict[str, str]):
    run = "fsdp://official/elastic/run"
    first = pages["fsdp://official/distributed.elastic"]
    assert f"[Run]({run}), [the rules]({run}), [Run]({run}), [here]({run}), nowhere." in first
    assert (
        f"[By label]({run}), [by anchor](fsdp://official/distributed.elastic#below), [by file]({run}), "
        "[away](https://example.org/run.md)."
    ) in first
    assert first.endswith(f"- [Run]({run})\n- elastic/missing")


def test_references_of_rest_lead_to_other_pages_and_sections(pages: dict[str, str]):
    assert pages["fsdp://official/elastic/run"].endswith(
        "See [Elastic](fsdp://official/distributed.elastic), "
        "[Opening times](fsdp://official/elastic/run#zoo-times) and `:ref:` itself."
    )


@pytest.mark.parametrize(
    ("members", "listed"),
    [
        (":members: feed, clean", ["[torch.zoo.feed](fsdp://api/torch.zoo.feed)", "`torch.zoo.clean`"]),
        (
            ":members:",
            ["[torch.zoo.Cage](fsdp://api/torch.zoo.Cage)", "[torch.zoo.feed](fsdp://api/torch.zoo.feed)"],
        ),
        (":members:\n    :exclude-members: feed, clean", ["[torch.zoo.Cage](fsdp://api/torch.zoo.Cage)"]),
        (":noindex:", []),
    ],
)
def test_the_members_that_a_page_documents_of_a_module_are_listed(members: str, listed: list[str]):
    shown = text(f"```{{eval-rst}}\n.. automodule:: torch.zoo\n    {members}\n```\n")
    assert shown.split("\n\n", 1) == [
        "Module `torch.zoo`",
        *(["\n".join(f"- {one}" for one in listed)] if listed else []),
    ]


def test_methods_inside_a_class_are_those_of_the_class_and_what_follows_is_of_the_module():
    page = (
        ".. currentmodule:: torch.zoo\n\n.. autoclass:: Cage\n\n   .. automethod:: open(key)\n"
        "   .. automethod:: shut\n\n"
        ".. class:: Cage\n   :noindex:\n\n   .. automethod:: Cage.open\n\n.. autofunction:: feed\n"
    )
    method = "- [torch.zoo.Cage.open](fsdp://api/torch.zoo.Cage.open)"
    assert text(page, "page.rst").split("\n\n") == [
        "- [torch.zoo.Cage](fsdp://api/torch.zoo.Cage)",
        method,
        "- `torch.zoo.Cage.shut`",
        "`Cage`",
        method,
        "- [torch.zoo.feed](fsdp://api/torch.zoo.feed)",
    ]


def test_options_between_two_edges_are_no_text():
    assert text("```{role} quiet\n---\nclass: quiet\n---\n```\n\n# Zoo\n\nOpen.\n") == "# Zoo\n\nOpen."


def test_what_stands_between_edges_and_is_no_option_stays():
    assert text("```{note}\n---\nfeed the otters\n---\n```\n") == "> **Note:** ---\n> feed the otters\n> ---"


def test_fields_of_a_function_become_a_list():
    page = (
        ".. py:function:: feed(animal, n)\n\n    Feeds.\n\n    :param Animal animal: who\n"
        "    :param n: how\n        often\n"
        "    :type n: int\n    :returns: what is left\n    :rtype: Food\n    :raises Full: when it had enough\n"
    )
    assert text(page, "page.rst") == (
        "`feed(animal, n)`\n\nFeeds.\n\n- `animal` (Animal): who\n- `n`: how\n    often\n- Type of `n`: int\n"
        "- Returns: what is left\n- Return type: Food\n- Raises `Full`: when it had enough"
    )


@pytest.mark.parametrize("name", ["page.md", "page.rst"])
def test_settings_on_top_of_a_page_are_left_out_and_other_fields_stay(name: str):
    assert text(":orphan:\n:github_url: https://example.org\n\n:author: Otter\n\nHello.\n", name) == (
        ":author: Otter\n\nHello."
    )


def test_a_link_of_rest_on_a_myst_page_becomes_one_of_markdown():
    assert text("See `the zoo <https://example.org>`__ or `code <x>`.\n") == (
        "See [the zoo](https://example.org) or `code <x>`."
    )
