"""The steps of the demo whose inputs we ship give the answers that it is there to show."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fsdp_mcp import toolbox
from fsdp_mcp.demo import STEPS


def test_the_demo_uses_every_tool_but_read_doc() -> None:
    assert {step.tool for step in STEPS} == {tool.name for tool in toolbox.TOOLS} - {"read_doc"}


def test_the_log_of_the_demo_names_the_rank_that_ran_out_of_memory() -> None:
    step = next(step for step in STEPS if step.tool == "diagnose_log")
    found = toolbox.find_tool(step.tool).call({**step.arguments, "log": step.text()})
    first = found.model_dump()["findings"][0]
    assert (first["id"], first["rank"], first["confidence"]) == ("gpu-out-of-memory-one-rank", 3, "high")


@pytest.mark.ranks
def test_the_demo_succeeds_and_explains_the_hang() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_mcp", "demo", "--json"], capture_output=True, encoding="utf-8", check=True
    )
    steps = json.loads(done.stdout)["steps"]
    hang = next(step["hang"] for step in steps if step.get("hang"))
    assert (len(steps), hang["kind"]) == (len(STEPS), "rank_conditional_collective")
