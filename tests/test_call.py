"""What a caller may touch."""

import pytest

from fsdp_mcp import call
from fsdp_mcp.call import Caller, allowed_path, enter
from fsdp_mcp.errors import BadArgument, Forbidden


@pytest.fixture(autouse=True)
def _forget_the_caller():
    token = call._CURRENT.set(None)
    yield
    call._CURRENT.reset(token)


@pytest.fixture
def root(tmp_path):
    enter(Caller(roots=(tmp_path,)))
    return tmp_path


def test_a_relative_path_starts_at_the_first_root(root):
    assert allowed_path("models/net.py", argument="path") == root / "models" / "net.py"


@pytest.mark.parametrize("text", ["/etc/passwd", "../x", "~"])
def test_a_path_outside_the_roots_is_forbidden(root, text):
    with pytest.raises(Forbidden, match="lies outside"):
        allowed_path(text, argument="path")


def test_a_link_that_leads_outside_is_forbidden(root):
    (root / "link").symlink_to("/etc")
    with pytest.raises(Forbidden, match="lies outside"):
        allowed_path("link/passwd", argument="path")


@pytest.mark.parametrize("text", ["a\0b", "x" * 5_000, "~nobody-of-that-name/x"], ids=["null", "long", "home"])
def test_what_no_file_system_takes_is_a_bad_argument(root, text):
    with pytest.raises(BadArgument, match="no usable path"):
        allowed_path(text, argument="path")


def test_without_roots_every_path_is_forbidden():
    enter(Caller(roots=()))
    with pytest.raises(Forbidden, match="over HTTP"):
        allowed_path("train.py", argument="path")
