"""What run_on_gloo refuses, before anything is started."""

from contextvars import copy_context
from pathlib import Path

import pytest

from fsdp_mcp import call
from fsdp_mcp.errors import BadArgument, EnvironmentProblem, Forbidden, FsdpMcpError
from fsdp_mcp.toolbox import find_tool


def refusal(caller: call.Caller | None = None, **arguments: object) -> FsdpMcpError:
    def inside() -> FsdpMcpError:
        call.enter(caller or call.Caller())
        with pytest.raises(FsdpMcpError) as caught:
            find_tool("run_on_gloo").call(arguments)
        return caught.value

    return copy_context().run(inside)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Give exactly one of code (the text) and path (a file); got neither."),
        ({"code": "pass", "path": "a.py"}, "Give exactly one of code (the text) and path (a file); got both."),
        ({"code": "  \n"}, "code: got no text. Give a Python script."),
        ({"code": "x = 1\nif x\n    y"}, "The code does not parse: expected ':' at line 2: if x. Nothing was started."),
        ({"code": "a" * ((1 << 20) + 1)}, "code: got 1,048,577 bytes, 1 MB at most."),
        ({"code": "'\ud800'"}, "code: character 1 is half of a surrogate pair"),
        ({"code": "pass", "world_size": 17}, "world_size: got 17, expected a whole number at least 1 and at most 16."),
        ({"code": "pass", "nodes": 3}, "nodes=3 does not divide world_size=2. Give a divisor, such as 1."),
        ({"code": "pass", "files": {"../x": ""}}, "files: '../x' is no relative file name."),
        ({"code": "pass", "files": {"/x": ""}}, "files: '/x' is no relative file name."),
        ({"code": "pass", "files": {"C:x": ""}}, "files: 'C:x' is no relative file name."),
        ({"code": "pass", "files": {"./train.py": ""}}, "files: './train.py' is the name that `code` runs under."),
        ({"code": "pass", "files": {"x": "a" * (5 << 20)}}, "files: got 5,242,882 bytes, 4 MB at most."),
        ({"code": "pass", "project_dir": "nowhere"}, "project_dir: there is no folder 'nowhere'."),
        ({"path": "nowhere.py"}, "path: there is no file 'nowhere.py'."),
        ({"code": "pass", "simulate": 4097}, "simulate: got world_size 4,097, expected 1 to 4,096."),
        ({"code": "pass", "simulate": {"world_size": 8, "rank": 8}}, "simulate: got rank 8, expected 0 to 7"),
        ({"code": "pass", "simulate": {"rank": 1}}, "simulate: got {'rank': 1}, expected world_size and rank."),
        ({"code": "pass", "simulate": "x"}, "simulate: got 'x', expected a whole number or an object of name: a whole"),
        ({"code": "pass", "simulate": 8, "nodes": 3}, "nodes=3 does not divide the simulated world of 8."),
        (
            {"code": "pass", "simulate": 8, "compare": "ddp"},
            "simulate computes no values, so there is nothing to compare",
        ),
        ({"code": "pass", "ranks": 2}, "Unknown argument 'ranks' for run_on_gloo."),
    ],
)
def test_bad_arguments_are_named_with_what_is_accepted(arguments: dict[str, object], text: str) -> None:
    error = refusal(**arguments)
    assert isinstance(error, BadArgument)
    assert str(error).startswith(text)


def test_paths_stay_below_the_working_directory_and_are_refused_over_http() -> None:
    assert isinstance(refusal(path="/etc/passwd"), Forbidden)
    assert isinstance(refusal(call.Caller(roots=()), path="train.py"), Forbidden)


def test_a_caller_that_may_not_run_code_is_refused() -> None:
    assert isinstance(refusal(call.Caller(may_run=False), code="pass"), Forbidden)


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    error = refusal(call.Caller(python=tmp_path / "python"), code="pass")
    assert isinstance(error, EnvironmentProblem)
    assert str(tmp_path / "python") in str(error)
