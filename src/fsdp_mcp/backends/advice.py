"""The answer of recommend_backend and its text."""

from __future__ import annotations

from pydantic import Field

from fsdp_mcp.backends.case import Fallback, Support
from fsdp_mcp.models import Result, Source, Value


class Variable(Value):
    """An environment variable to set, with the reason."""

    name: str
    value: str
    why: str


class Capability(Value):
    """Whether a collective takes CPU tensors and tensors of the accelerator."""

    collective: str
    cpu: Support
    device: Support


class BackendAdvice(Result):
    """The back end to use, how to start it, and why."""

    backend: str = Field(description="As init_process_group takes it")
    device: str = Field(description="torch device type of the tensors to train on")
    fallback: Fallback | None
    init_code: str = Field(description="Python that each process runs")
    environment: tuple[Variable, ...]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    capabilities: tuple[Capability, ...]
    sources: tuple[Source, ...]

    def render(self) -> str:
        """Return the choice, the reasons, the code and the variables, compactly."""
        parts = [f"**Backend `{self.backend}`**, tensors on `{self.device}`."]
        parts.append("\n".join([f"- {reason}" for reason in self.reasons] + [f"- ⚠ {text}" for text in self.warnings]))
        parts.append(f"```python\n{self.init_code}```")
        if self.environment:
            lines = [f"- `{item.name}={item.value}`: {item.why}" for item in self.environment]
            parts.append("\n".join(["Environment, where needed:", *lines]))
        if self.fallback:
            parts.append(f"Fallback `{self.fallback.backend}`: when {self.fallback.when}.")
        parts.append("\n".join([_describe_support(self.capabilities, self.device), _list_sources(self.sources)]))
        return "\n\n".join(parts)


def _describe_support(capabilities: tuple[Capability, ...], device: str) -> str:
    """Say in a line which collectives run, naming the smaller side."""
    columns = {device: [(item.collective, item.device) for item in capabilities]}
    if device != "cpu":
        columns["cpu"] = [(item.collective, item.cpu) for item in capabilities]
    return (
        "Collectives on "
        + "; on ".join(f"`{name}`: {_describe_column(cells)}" for name, cells in columns.items())
        + "."
    )


def _describe_column(cells: list[tuple[str, Support]]) -> str:
    missing = [name for name, support in cells if support == "no"]
    unsure = [name for name, support in cells if support == "experimental"]
    if len(missing) == len(cells):
        return "none"
    text = f"all but {', '.join(missing)}" if missing else "all"
    if len(missing) + len(unsure) == len(cells):
        return f"{text}, depending on the build"
    return f"{text} (experimental: {', '.join(unsure)})" if unsure else text


def _list_sources(sources: tuple[Source, ...]) -> str:
    shown = ", ".join(f"[{source.title}]({source.url})" for source in sources[:2])
    return f"Sources: {shown}" + (f" and {len(sources) - 2} more." if len(sources) > 2 else ".")
