"""The client side of `fsdp-mcp demo`: a real MCP client drives the server through the main job and shows it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from fsdp_mcp.corpus import corpus_dir

_CALL_SECONDS = 300.0
_RULES = 10  # columns that the lines between the cells of the summary take
_SCRIPT_STEP = "generate_training_code"
_MOST_LINES = 48
_SMALL = ["--steps=6", "--dim=64", "--layers=2", "--sequence-length=16", "--batch-size=4"]


@dataclass(frozen=True)
class Step:
    """One tool call of the demo, with what it shows."""

    what: str
    tool: str
    arguments: dict[str, Any]
    example: tuple[str, str] | None = None
    """An argument, and the file of docs_corpus/examples that gives its text."""
    fails: bool = False
    """Whether the run has to fail: why it does is what the step shows."""

    def text(self) -> str:
        """Return the text of the example, or nothing."""
        return (corpus_dir() / "examples" / self.example[1]).read_text(encoding="utf-8") if self.example else ""


STEPS: tuple[Step, ...] = (
    Step(
        "Search the documentation",
        "search_docs",
        {"query": "how do I clip gradients with fully_shard", "limit": 3, "max_tokens": 900},
    ),
    Step("Look up an API in the installed torch", "lookup_api", {"name": "fully_shard"}),
    Step(
        "Choose a backend: 4 nodes of 8 CUDA GPUs, InfiniBand",
        "recommend_backend",
        {"accelerator": "cuda", "interconnect": "infiniband", "nodes": 4, "devices_per_node": 8},
    ),
    Step(
        "Generate an FSDP2 script and prove it: bf16, gradient clipping, checkpoint",
        _SCRIPT_STEP,
        {"strategy": "fsdp2", "precision": "bf16", "clip_grad_norm": 1.0, "checkpoint": "dcp", "nodes": 4},
    ),
    Step(
        "Run that script on two Gloo ranks, small",
        "run_on_gloo",
        {"world_size": 2, "timeout_seconds": 120, "arguments": _SMALL},
    ),
    Step(
        "Why does this CUDA script hang?",
        "run_on_gloo",
        {"world_size": 2, "timeout_seconds": 60},
        example=("code", "hang.py"),
        fails=True,
    ),
    Step(
        "Which rank failed first in this log of four ranks?",
        "diagnose_log",
        {},
        example=("log", "rank_out_of_memory.log"),
    ),
)


@dataclass(frozen=True)
class Done:
    """A finished step."""

    step: Step
    seconds: float
    text: str
    structured: dict[str, Any]
    is_error: bool


def run_demo(*, python: Path | None, as_json: bool) -> int:
    """Run the steps against a server of our own over stdio, show each, and return the exit status."""
    console = Console(stderr=as_json)
    console.print(
        Panel("A real MCP client drives [b]fsdp-mcp serve --structured[/b] over stdio.", title="fsdp-mcp demo")
    )
    done = anyio.run(_run_steps, python, console)
    if as_json:
        print(json.dumps({"steps": [{"tool": d.step.tool, "seconds": d.seconds, **d.structured} for d in done]}))
    console.print(_summary(done, console))
    return 0 if _succeeded(done) else 1


async def _run_steps(python: Path | None, console: Console) -> list[Done]:
    chosen = ["--python", str(python)] if python else []
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "fsdp_mcp", "serve", "--structured", *chosen], cwd=Path.cwd()
    )
    done: list[Done] = []
    started = time.perf_counter()
    async with Client(server, mode="legacy", read_timeout_seconds=_CALL_SECONDS) as client:
        console.print(f"Connected in {time.perf_counter() - started:.1f} s, protocol {client.protocol_version}\n")
        for step in STEPS:
            done.append(await _run_step(client, step, done, console))
            _show(done[-1], console)
    return done


async def _run_step(client: Client, step: Step, before: list[Done], console: Console) -> Done:
    async def tell(progress: float, total: float | None, message: str | None) -> None:
        console.print(f"  [dim]... {message}[/dim]")

    given = {step.example[0]: step.text()} if step.example else {}
    if step.tool == "run_on_gloo" and not step.example:
        given = _script_of(before)
    arguments = {**step.arguments, **given}
    started = time.perf_counter()
    result = await client.call_tool(step.tool, arguments, progress_callback=tell)
    return Done(
        step=step,
        seconds=time.perf_counter() - started,
        text=_text(result),
        structured=result.structured_content or {},
        is_error=bool(result.is_error),
    )


def _script_of(before: list[Done]) -> dict[str, Any]:
    """Return the generated script as the next call's code; empty code, which is refused, when there is none."""
    files: list[dict[str, str]] = next(
        (d.structured.get("files", []) for d in before if d.step.tool == _SCRIPT_STEP), []
    )
    return {"code": files[0]["content"] if files else ""}


def _text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def _show(done: Done, console: Console) -> None:
    arguments = ", ".join(f"{name}={value!r}" for name, value in done.step.arguments.items())
    console.rule(f"[b]{done.step.what}[/b]  [dim]{done.seconds:.2f} s[/dim]")
    console.print(f"[cyan]{done.step.tool}[/cyan]({arguments})\n", highlight=False)
    if done.step.example:
        language = done.step.example[1].rpartition(".")[2]
        console.print(Syntax(done.step.text().rstrip(), language, theme="ansi_dark", line_numbers=True), "")
    console.print(Markdown(_beginning(done.text), code_theme="ansi_dark"), style="red" if done.is_error else "")
    console.print()


def _beginning(text: str) -> str:
    """Return what fits on a screen, with the code block closed that is cut, and say how much is left out."""
    lines = text.splitlines()
    if len(lines) <= _MOST_LINES:
        return text
    shown = lines[:_MOST_LINES]
    fences = sum(line.startswith("```") for line in shown)
    return "\n".join([*shown, *["```"] * (fences % 2), "", f"*{len(lines) - _MOST_LINES} more lines*"])


def _succeeded(done: list[Done]) -> bool:
    return all(not d.is_error and d.structured.get("ok", True) is not d.step.fails for d in done if _tells(d))


def _tells(done: Done) -> bool:
    """Whether the answer says if it went well: an error always does."""
    return done.is_error or done.step.fails or "ok" in done.structured


def _summary(done: list[Done], console: Console) -> Table:
    table = Table(title="What happened", show_edge=False)
    for heading in ("tool", "seconds", "answer"):
        table.add_column(heading, justify="right" if heading == "seconds" else "left")
    room = console.width - len(_SCRIPT_STEP) - len("seconds") - _RULES
    for d in done:
        first = next((line for line in d.text.splitlines() if line.strip()), "").replace("*", "")
        table.add_row(d.step.tool, f"{d.seconds:.2f}", Text(first[:room], style="red" if d.is_error else ""))
    return table
