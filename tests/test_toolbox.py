from typing import Annotated, Literal

import pytest
from pydantic import Field

from fsdp_mcp import toolbox
from fsdp_mcp.errors import BadArgument
from fsdp_mcp.models import Result


class Echo(Result):
    title: str
    count: int

    def render(self) -> str:
        return f"{self.title} {self.count}"


def echo(
    title: Annotated[str, Field(description="Any text", min_length=1, max_length=9)],
    *,
    mode: Literal["loud", "quiet"] = "loud",
    count: Annotated[int, Field(ge=1, le=16)] = 1,
    names: list[str] = [],  # noqa: B006
    step: bool | int | None = None,
    hidden: str,
) -> Echo:
    """Repeat the title."""
    return Echo(title=title + hidden, count=count)


TOOL = toolbox.Tool("echo", f"{__name__}:echo", "Echo", joins={"hidden": lambda: "!"})


def test_a_join_is_provided_and_never_advertised():
    assert TOOL.call({"title": "hi"}) == Echo(title="hi!", count=1)
    assert "hidden" not in TOOL.input_schema()["properties"]


def test_the_schema_is_closed_and_has_no_titles_but_keeps_a_property_of_that_name():
    schema = TOOL.input_schema()
    assert schema["additionalProperties"] is False
    assert "title" not in schema
    assert schema["properties"]["title"] == {
        "description": "Any text",
        "maxLength": 9,
        "minLength": 1,
        "type": "string",
    }


def test_an_option_that_may_be_null_is_advertised_as_one_that_may_be_absent():
    assert TOOL.input_schema()["properties"]["step"] == {"anyOf": [{"type": "boolean"}, {"type": "integer"}]}
    assert TOOL.call({"title": "hi", "step": None}).count == 1


def test_numbers_given_as_text_are_converted():
    assert TOOL.call({"title": "hi", "count": "3"}).count == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"title": "a", "cuont": 1},
            "Unknown argument 'cuont' for echo. Did you mean 'count'? Accepted: title, mode, count, names, step.",
        ),
        ({}, "title: required by echo, but missing. Required: title."),
        ({"title": "a", "mode": "silent"}, "mode: got 'silent', expected one of loud, quiet."),
        ({"title": "a", "count": 99}, "count: got 99, expected a whole number at least 1 and at most 16."),
        ({"title": "a", "names": "x"}, "names: got 'x', expected a list (text each)."),
        ({"title": "a", "step": "x"}, "step: got 'x', expected true or false or a whole number or null."),
        (
            {"title": "a" * 200},
            f"title: got '{'a' * 76}..., expected text of at least 1 character and of at most 9 characters.",
        ),
        ({"title": None}, "title: got None, expected text of at least 1 character and of at most 9 characters."),
    ],
)
def test_a_bad_argument_is_told_in_our_own_words(arguments, message):
    with pytest.raises(BadArgument) as caught:
        TOOL.call(arguments)
    assert str(caught.value) == message


def test_an_unknown_tool_is_refused_with_the_names_there_are():
    with pytest.raises(BadArgument, match=r"Unknown tool 'lookup_apy'\. Did you mean 'lookup_api'"):
        toolbox.find_tool("lookup_apy")


def test_a_tool_that_is_not_offered_says_how_to_get_it():
    offered = [tool for tool in toolbox.TOOLS if not tool.runs_code]
    with pytest.raises(BadArgument, match="--allow-run"):
        toolbox.find_tool("run_on_gloo", offered=offered)
