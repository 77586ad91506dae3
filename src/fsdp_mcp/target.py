"""Finds the user's interpreter and the torch in it, without importing that torch."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from fsdp_mcp import call
from fsdp_mcp.errors import EnvironmentProblem
from fsdp_mcp.models import Value

_PROBE_SECONDS = 30
_PROBE = """
import importlib.util, json, os, platform
spec = importlib.util.find_spec("torch")
folder = os.path.dirname(spec.origin) if spec and spec.origin else None
print(json.dumps({"python_version": platform.python_version(), "torch_dir": folder}))
"""


class Target(Value):
    """The interpreter that code runs with, and its torch."""

    python: Path = Field(description="Interpreter")
    python_version: str
    reason: str = Field(description="Why this interpreter was chosen")
    torch_dir: Path | None = Field(description="Folder of the torch package; null without torch")
    torch_version: str | None = Field(description="X.Y.Z without local suffix; null without torch")
    git_version: str | None = Field(description="Git hash of the torch build")


def find_target() -> Target:
    """Return the interpreter to answer for.

    That is `--python` or FSDP_MCP_PYTHON when given; else the first with a torch of VIRTUAL_ENV, CONDA_PREFIX,
    the nearest .venv or venv upward, and our own; else the first of these that exists.

    Raises:
        EnvironmentProblem: `--python` or FSDP_MCP_PYTHON names an interpreter that is missing or does not start.
    """
    explicit = _explicit(call.current().python)
    if explicit is not None:
        python, reason = explicit
        if not python.is_file():
            raise EnvironmentProblem(f"{reason}: no interpreter at {python}. Give the path of a python executable.")
        return _probe(python, reason)
    found = [_probe_quietly(python, reason) for python, reason in implicit_candidates() if python.is_file()]
    targets = [target for target in found if target is not None]
    if not targets:
        raise EnvironmentProblem("No Python interpreter was found. Name one with --python or FSDP_MCP_PYTHON.")
    return next((target for target in targets if target.torch_dir is not None), targets[0])


def require_torch() -> Target:
    """Return the target, which has to have a torch with distributed support.

    Raises:
        EnvironmentProblem: there is no torch, or its build has no torch.distributed.
    """
    target = find_target()
    if target.torch_dir is None:
        raise EnvironmentProblem(
            f"No torch in {target.python} (chosen by {target.reason}). Install torch there, or name another"
            " interpreter with --python or FSDP_MCP_PYTHON; `fsdp-mcp doctor` shows what was found."
        )
    if not (target.torch_dir / "distributed" / "distributed_c10d.py").is_file():
        raise EnvironmentProblem(f"The torch {target.torch_version} in {target.python} has no torch.distributed.")
    return target


def _explicit(python: Path | None) -> tuple[Path, str] | None:
    if python is not None:
        return python, "--python"
    named = os.environ.get("FSDP_MCP_PYTHON")
    return (Path(named), "FSDP_MCP_PYTHON") if named else None


def implicit_candidates() -> Iterator[tuple[Path, str]]:
    """Yield the interpreters that are tried when none was named, with the reason for each, in order."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if folder := os.environ.get(variable):
            yield interpreter_of(Path(folder)), variable
    here = Path.cwd()
    for parent in (here, *here.parents):
        for name in (".venv", "venv"):
            yield interpreter_of(parent / name), f"{name} in {parent}"
    yield Path(sys.executable), "the interpreter of fsdp-mcp itself"


def _probe_quietly(python: Path, reason: str) -> Target | None:
    try:
        return _probe(python, reason)
    except EnvironmentProblem:
        return None


def interpreter_of(environment: Path) -> Path:
    """Return where a virtual or conda environment keeps its interpreter on this system."""
    if os.name != "nt":
        return environment / "bin" / "python"
    in_scripts = environment / "Scripts" / "python.exe"
    return in_scripts if in_scripts.is_file() else environment / "python.exe"


def ask_interpreter(python: Path, code: str, *, timeout_seconds: float) -> str:
    """Run `code` with that interpreter and return the last line that it printed.

    Raises:
        OSError, subprocess.SubprocessError: it did not start, failed, or took too long.
        IndexError: it printed nothing.
    """
    done = subprocess.run(
        [str(python), "-c", code],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout_seconds,
        encoding="utf-8",
        check=True,
    )
    return done.stdout.splitlines()[-1]


@lru_cache(maxsize=8)
def _probe(python: Path, reason: str) -> Target:
    """Ask the interpreter where its torch lies; the interpreter does not import it either."""
    try:
        found = json.loads(ask_interpreter(python, _PROBE, timeout_seconds=_PROBE_SECONDS))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise EnvironmentProblem(f"{python} (chosen by {reason}) does not run as a Python: {error}.") from error
    torch_dir = Path(found["torch_dir"]) if found["torch_dir"] else None
    versions = _read_versions(torch_dir) if torch_dir else {}
    version = versions.get("__version__")
    return Target(
        python=python,
        python_version=found["python_version"],
        reason=reason,
        torch_dir=torch_dir,
        torch_version=version.partition("+")[0] if version else None,
        git_version=versions.get("git_version"),
    )


def _read_versions(torch_dir: Path) -> dict[str, str]:
    """Read the string constants of torch/version.py."""
    path = torch_dir / "version.py"
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found.update({name.id: value.value for name in targets if isinstance(name, ast.Name)})
    return found
