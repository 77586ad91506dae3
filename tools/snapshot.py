"""Writes the tool list that tests hold the server to: `python -m tools.snapshot` after a wanted change."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
from bpe_openai import get_encoding
from mcp.client import Client

from fsdp_mcp.server import Settings, build_server

SNAPSHOT = Path(__file__).resolve().parents[1] / "tests" / "golden" / "tools.json"


async def _list_tools() -> list[dict[str, object]]:
    async with Client(build_server(Settings()), mode="legacy") as client:
        tools = (await client.list_tools()).tools
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]


def main() -> None:
    """Write the snapshot and print the tokens of each tool."""
    tools = anyio.run(_list_tools)
    SNAPSHOT.parent.mkdir(exist_ok=True)
    SNAPSHOT.write_text(json.dumps(tools, indent=1) + "\n", encoding="utf-8")
    encoding = get_encoding("o200k_base")
    seen = {str(tool["name"]): json.dumps([tool["name"], tool["description"], tool["inputSchema"]]) for tool in tools}
    counts = {name: len(encoding.encode(text)) for name, text in seen.items()}
    for name, count in counts.items():
        print(f"{count:6,} {name}")
    print(f"{sum(counts.values()):6,} in all")


if __name__ == "__main__":
    main()
