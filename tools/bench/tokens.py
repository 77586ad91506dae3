"""How many tokens a model spends on the tool list and on typical replies, in o200k_base."""

from __future__ import annotations

import json
from typing import Any

from bpe_openai import get_encoding

from fsdp_mcp import prompts
from fsdp_mcp.toolbox import TOOLS, find_tool
from tools.bench.figure import Figure
from tools.bench.questions import QUESTIONS

_LIST_BUDGET = 3_500
_TOOL_BUDGETS = {"generate_training_code": 1_200}
_TOOL_BUDGET = 220
_INSTRUCTIONS_BUDGET = 2_000
_SEARCH_BUDGET = 1_500
_REPLY_BUDGET = 10_000
_CLUSTER = {"accelerator": "cuda", "interconnect": "infiniband", "nodes": 4, "devices_per_node": 8}
_CODE = {"strategy": "fsdp2", "checkpoint": "dcp", "verify": False}
_REPLIES: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("lookup_api", {"name": "fully_shard"}, _REPLY_BUDGET),
    ("lookup_api", {"name": "fully_shard", "detail": "full"}, _REPLY_BUDGET),
    ("read_doc", {"uri": "fsdp2"}, _REPLY_BUDGET),
    ("recommend_backend", _CLUSTER, _REPLY_BUDGET),
    ("generate_training_code", {**_CODE, "what": "snippet"}, _REPLY_BUDGET),
    ("generate_training_code", _CODE, _REPLY_BUDGET),
)
_ENCODING = get_encoding("o200k_base")


def count(text: str) -> int:
    """Return the tokens of `text`."""
    return len(_ENCODING.encode(text))


def measure_tokens(*, quick: bool) -> list[Figure]:
    """Return the tokens of each tool as a client lists it, of all, and of typical replies."""
    del quick
    listed = {tool.name: count(json.dumps([tool.name, tool.description, tool.input_schema()])) for tool in TOOLS}
    tools = [
        Figure("tokens", f"tool {name}", tokens, "tokens", budget=_TOOL_BUDGETS.get(name, _TOOL_BUDGET))
        for name, tokens in listed.items()
    ]
    return [
        Figure("tokens", "tool list", sum(listed.values()), "tokens", budget=_LIST_BUDGET),
        *tools,
        Figure("tokens", "instructions", len(prompts.INSTRUCTIONS), "characters", budget=_INSTRUCTIONS_BUDGET),
        *_replies(),
    ]


def _replies() -> list[Figure]:
    found = sorted(count(find_tool("search_docs").call({"query": question}).render()) for question in QUESTIONS)
    searches = [
        Figure("reply", "search_docs, median", found[len(found) // 2], "tokens"),
        Figure("reply", "search_docs, largest", found[-1], "tokens", budget=_SEARCH_BUDGET),
    ]
    return searches + [
        Figure(
            "reply", _shown(tool, arguments), count(find_tool(tool).call(arguments).render()), "tokens", budget=budget
        )
        for tool, arguments, budget in _REPLIES
    ]


def _shown(tool: str, arguments: dict[str, Any]) -> str:
    told = ", ".join(str(value) for value in arguments.values() if not isinstance(value, bool))
    return f"{tool} {told}"
