import sys
from pathlib import Path

import pytest

from fsdp_mcp import call, target
from fsdp_mcp.call import Caller
from fsdp_mcp.errors import EnvironmentProblem


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No variable and no folder names an interpreter."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX", "FSDP_MCP_PYTHON"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _environment(folder: Path, *, torch_version: str | None) -> Path:
    """Make a virtual environment of links, with a torch of two files if wanted."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n", encoding="utf-8")
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    if torch_version:
        (packages / "torch").mkdir()
        (packages / "torch" / "__init__.py").write_text("raise SystemExit('never imported')", encoding="utf-8")
        text = f"__version__ = '{torch_version}'\ngit_version = 'abc'\n"
        (packages / "torch" / "version.py").write_text(text, encoding="utf-8")
    return python


def test_our_own_interpreter_is_the_last_resort(nowhere):
    found = target.find_target()
    assert (found.python, found.reason) == (Path(sys.executable), "the interpreter of fsdp-mcp itself")


def test_the_version_is_read_without_importing_torch(nowhere):
    python = _environment(nowhere / "project" / ".venv", torch_version="2.6.1+cu124")
    call.enter(Caller(python=python))
    found = target.find_target()
    call.enter(Caller())
    assert (found.torch_version, found.git_version, found.reason) == ("2.6.1", "abc", "--python")


def test_the_nearest_environment_with_a_torch_wins_over_one_without(nowhere, monkeypatch):
    _environment(nowhere / ".venv", torch_version="2.7.0")
    _environment(nowhere / "deep" / "venv", torch_version=None)
    monkeypatch.chdir(nowhere / "deep")
    assert target.find_target().torch_version == "2.7.0"


def test_an_active_environment_comes_before_the_folders(nowhere, monkeypatch):
    _environment(nowhere / ".venv", torch_version="2.7.0")
    _environment(nowhere / "active", torch_version="2.8.0")
    monkeypatch.setenv("VIRTUAL_ENV", str(nowhere / "active"))
    assert target.find_target().torch_version == "2.8.0"


def test_a_named_interpreter_that_is_missing_is_an_error_and_not_skipped(nowhere, monkeypatch):
    monkeypatch.setenv("FSDP_MCP_PYTHON", str(nowhere / "gone"))
    with pytest.raises(EnvironmentProblem, match=r"FSDP_MCP_PYTHON: no interpreter at .*gone"):
        target.find_target()


def test_a_named_file_that_is_no_python_is_an_error(nowhere):
    (nowhere / "fake").write_text("#!/bin/sh\necho hello\n", encoding="utf-8")
    (nowhere / "fake").chmod(0o755)
    call.enter(Caller(python=nowhere / "fake"))
    with pytest.raises(EnvironmentProblem, match="does not run as a Python"):
        target.find_target()
    call.enter(Caller())


@pytest.mark.parametrize(("torch_version", "message"), [(None, "No torch in"), ("2.9.0", "has no torch.distributed")])
def test_what_needs_torch_says_what_is_missing(nowhere, torch_version, message):
    call.enter(Caller(python=_environment(nowhere / "env", torch_version=torch_version)))
    with pytest.raises(EnvironmentProblem, match=message):
        target.require_torch()
    call.enter(Caller())
