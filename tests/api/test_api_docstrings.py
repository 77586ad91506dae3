"""Docstrings come apart into summary, text and descriptions, and nothing of them is lost."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.api.docstrings import parse_docstring
from fsdp_mcp.api.extract import TorchApi
from fsdp_mcp.api.rst import to_markdown


def test_a_google_docstring_comes_apart() -> None:
    parsed = parse_docstring(
        """Wrap a module.

        It shards :class:`~torch.nn.Parameter` s.

        Args:
            module (nn.Module): What to
                wrap.
            mesh (:class:`~torch.distributed.DeviceMesh`, optional): Where ``to`` put it.
            **kwargs: More.

        Returns:
            FSDPModule: The module.

        Raises:
            ValueError: If it is empty.
        """,
        ["module", "mesh", "kwargs"],
    )
    assert parsed.summary == "Wrap a module."
    assert parsed.descriptions == {"module": "What to\nwrap.", "mesh": "Where `to` put it.", "kwargs": "More."}
    assert parsed.types == {"module": "nn.Module", "mesh": "DeviceMesh"}
    assert parsed.returns == "FSDPModule"
    assert parsed.text == (
        "Wrap a module.\n\nIt shards `Parameter` s.\n\n**Returns:** FSDPModule: The module."
        "\n\n**Raises:** ValueError: If it is empty."
    )


def test_a_table_is_seen_without_a_blank_line_and_with_two_colons() -> None:
    parsed = parse_docstring("Do it.\nArguments::\n    flag (bool) : Whether.\n", ["flag"])
    assert parsed.descriptions == {"flag": "Whether."}


def test_a_blank_line_below_a_title_does_not_hide_its_entries() -> None:
    assert parse_docstring("Do it.\n\nArgs:\n\n    flag: Whether.\n", ["flag"]).descriptions == {"flag": "Whether."}


def test_a_description_that_goes_on_at_the_entrys_own_margin_stays_whole() -> None:
    parsed = parse_docstring(
        "Do it.\n\nArgs:\n    mesh_dim (str/int, optional): the name\n    of the dimension.\n    other: more\n\nDone.",
        ["mesh_dim", "other"],
    )
    assert parsed.descriptions == {"mesh_dim": "the name\nof the dimension.", "other": "more"}
    assert parsed.text == "Do it.\n\nDone."


def test_lines_aligned_below_the_first_word_lose_their_margin() -> None:
    parsed = parse_docstring(
        "Do it.\n\nArgs:\n    rank (int): Which\n                one.\n\n                - a\n", ["rank"]
    )
    assert parsed.descriptions == {"rank": "Which\none.\n\n- a"}


def test_a_note_on_its_own_line_keeps_its_title() -> None:
    text = parse_docstring("Do it.\n\nWarn: only before ``step``\n    and after it.\n\nDone.", []).text
    assert text == "Do it.\n\nWarn: only before `step`\nand after it.\n\nDone."


def test_a_signature_at_the_top_is_no_summary() -> None:
    assert parse_docstring("get(dst, handle) -> None\n\nCopy it.", []).summary == "Copy it."


def test_attributes_describe_fields() -> None:
    parsed = parse_docstring("A policy.\n\nAttributes:\n    dtype (torch.dtype): The type.\n", ["dtype"])
    assert parsed.descriptions == {"dtype": "The type."}


def test_prose_that_ends_in_a_colon_is_no_admonition() -> None:
    parsed = parse_docstring("There are two ways:\n    the first and the second\n\nChoose.", [])
    assert parsed.text is not None
    assert parsed.text.startswith("There are two ways:")
    assert "the first and the second" in parsed.text


def test_documented_names_that_are_no_parameters_stay_in_the_text() -> None:
    parsed = parse_docstring("Do it.\n\nArgs:\n    gone (int): It left.\n", ["here"])
    assert parsed.descriptions == {}
    assert parsed.text == "Do it.\n\n**Also documented:**\n\n- `gone` (int): It left."


def test_directives_become_quotes_and_blocks() -> None:
    assert to_markdown(".. warning::\n    Do not.\n\nNext.") == "> **Warning:** Do not.\n\nNext."
    assert to_markdown(".. note:: One\n    and two.") == "> **Note:** One\n> and two."
    assert to_markdown(".. deprecated:: 2.13\n   Use x.") == "> **Deprecated since 2.13:** Use x."
    assert to_markdown(".. code-block:: bash\n    :caption: c\n\n    ls\n") == "```bash\nls\n```"
    assert to_markdown(".. math::\n    a = b\n") == "$$\na = b\n$$"


def test_literal_blocks_and_doctests_become_fences_without_the_test_runners_lines() -> None:
    assert to_markdown("Example::\n\n    >>> # xdoctest: +SKIP\n    >>> f(x)\n    3\n\nDone.") == (
        "Example:\n\n```python\n>>> f(x)\n3\n```\n\nDone."
    )
    assert to_markdown(">>> f(x)\n3\n\nDone.") == "```python\n>>> f(x)\n3\n```\n\nDone."


def test_roles_links_and_literals_become_markdown() -> None:
    text = "See :func:`~torch.distributed.barrier`, :ref:`the page <anchor>`, ``x=1`` and `docs <https://a.b/c>`__."
    assert to_markdown(text) == "See `barrier`, `the page`, `x=1` and [docs](https://a.b/c)."


_LINES = st.lists(
    st.one_of(
        st.text(alphabet="ab :`~.*<>_-()\t", max_size=30),
        st.sampled_from(
            [
                "Args:",
                "Arguments::",
                "    name (int): text",
                "    name : text",
                "Returns:",
                "Raises:",
                "Example::",
                "    >>> call()",
                ".. note::",
                "    body",
                ".. code:: python",
                "```",
                "",
                "prose ends::",
                "Title:",
                "    deeper",
                "Attributes:",
                ":class:`~a.B`",
                "Yields:",
                "Warnings:",
            ]
        ),
    ),
    max_size=25,
).map("\n".join)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


@settings(max_examples=200, deadline=None)
@example("Yields:\n:\n    name (int): text")
@given(_LINES)
def test_no_docstring_breaks_the_parser_or_loses_a_word(docstring: str) -> None:
    parsed = parse_docstring(docstring, ["name"])
    kept = " ".join([parsed.text or "", *parsed.descriptions, *parsed.descriptions.values(), *parsed.types.values()])
    structure = _words("Args Arguments Attributes Returns Raises Yields Example optional deprecated name")
    assert _words(to_markdown(docstring)) - _words(kept) - structure <= {"python"}


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_no_text_breaks_the_renderer(text: str) -> None:
    assert isinstance(to_markdown(text), str)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["word", "  deeper", "", "a::", "    code", "- item", "> quote"]), max_size=20))
def test_rendering_keeps_every_word(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert set(re.findall(r"\w+", text)) <= set(re.findall(r"\w+", to_markdown(text)))


def test_most_tables_of_the_installed_torch_are_complete(torch_api: TorchApi, catalogue: Catalogue) -> None:
    headed = [
        catalogue.get(raw.symbol.qualified_name)
        for raw in torch_api.symbols
        if raw.docstring
        and raw.symbol.parameters
        and re.search(r"^\s*(Args|Arguments|Attributes):{1,2}\s*$", raw.docstring, re.MULTILINE)
    ]
    described = [symbol for symbol in headed if any(item.description for item in symbol.parameters)]
    complete = [
        symbol
        for symbol in described
        if all(item.description for item in symbol.parameters if item.name[0] not in "*_")
    ]
    assert len(described) / len(headed) > 0.9
    assert len(complete) / len(described) > 0.85


def test_no_markup_of_the_doctest_runner_reaches_a_reader(catalogue: Catalogue) -> None:
    assert [symbol.qualified_name for symbol in catalogue if "xdoctest" in (symbol.text or "")] == []
