"""What `fsdp-mcp doctor` tells: the interpreter and torch in use and why, the cache, the back ends."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pydantic import Field

from fsdp_mcp import __version__
from fsdp_mcp.cache import cache_root
from fsdp_mcp.errors import EnvironmentProblem
from fsdp_mcp.models import Result, Value
from fsdp_mcp.target import Target, ask_interpreter, find_target, implicit_candidates

_PROBE_SECONDS = 120
_PROBE = """
import json, torch, torch.distributed as dist
have = {}
if dist.is_available():
    names = ("gloo", "nccl", "xccl", "mpi", "ucc")
    have = {name: bool(getattr(dist, f"is_{name}_available", lambda: False)()) for name in names}
accelerator = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
print(json.dumps({"backends": [name for name in have if have[name]],
                  "accelerator": accelerator.type if accelerator else None}))
"""


class _TorchFacts(Value):
    backends: tuple[str, ...] = ()
    accelerator: str | None = None


class Examination(Result):
    """What was found on this machine."""

    target: Target | None = Field(description="The interpreter in use; null when the one that was named is unusable")
    passed_over: tuple[str, ...] = Field(description="Interpreters before it that exist but have no torch")
    backends: tuple[str, ...] = Field(description="Back ends built into that torch")
    accelerator: str | None = Field(description="Device type that torch sees")
    cache: Path
    cache_is_writable: bool
    problems: tuple[str, ...]

    def render(self) -> str:
        """Return one line for each finding, then how to change the choice."""
        lines = [f"fsdp-mcp     {__version__}"]
        if self.target is not None:
            torch = f"{self.target.torch_version} in {self.target.torch_dir}" if self.target.torch_dir else "none"
            lines += [
                f"interpreter  {self.target.python} (Python {self.target.python_version})",
                f"chosen by    {self.target.reason}",
                f"torch        {torch}",
                f"back ends    {', '.join(self.backends) or 'none'}; accelerator: {self.accelerator or 'none'}",
            ]
        lines += [f"passed over  {line}" for line in self.passed_over]
        lines.append(f"cache        {self.cache}{'' if self.cache_is_writable else ' (read-only)'}")
        lines += [f"problem      {line}" for line in self.problems]
        lines.append("to change    --python P, or FSDP_MCP_PYTHON=P; FSDP_MCP_CACHE_DIR for the cache")
        return "\n".join(lines)


def examine() -> Examination:
    """Look at the interpreters, the torch in use and the cache; import that torch in a process of its own."""
    problems: list[str] = []
    target: Target | None = None
    found = _TorchFacts()
    try:
        target = find_target()
        if target.torch_dir is None:
            problems.append("no torch: code cannot be run, and only guides and history are answered from")
        else:
            found = _probe_torch(target.python)
    except EnvironmentProblem as error:
        problems.append(str(error))
    return Examination(
        target=target,
        passed_over=_passed_over(target),
        backends=found.backends,
        accelerator=found.accelerator,
        cache=cache_root(),
        cache_is_writable=_is_writable(cache_root()),
        problems=tuple(problems),
    )


def _passed_over(target: Target | None) -> tuple[str, ...]:
    if target is None or target.reason in ("--python", "FSDP_MCP_PYTHON"):
        return ()
    skipped = []
    for python, reason in implicit_candidates():
        if python == target.python:
            break
        if python.is_file():
            skipped.append(f"{python} ({reason}): no torch")
    return tuple(skipped)


def _probe_torch(python: Path) -> _TorchFacts:
    try:
        return _TorchFacts.model_validate_json(ask_interpreter(python, _PROBE, timeout_seconds=_PROBE_SECONDS))
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or ["no message"]
        raise EnvironmentProblem(f"torch does not import in {python}: {last[0]}") from error
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise EnvironmentProblem(f"torch could not be examined in {python}: {error}") from error


def _is_writable(folder: Path) -> bool:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return os.access(existing, os.W_OK)
