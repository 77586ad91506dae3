"""The floor that ours is compared with: one echo tool on the SDK alone, over stdio or, given a port, over HTTP."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer

bare = MCPServer("bare", log_level="WARNING")


@bare.tool(structured_output=False)
async def echo(query: str) -> str:
    """Return the query."""
    return query


def main() -> None:
    """Serve until stdin closes, or at the port that the command line names until a signal comes."""
    if len(sys.argv) == 1:
        bare.run()
        return
    import uvicorn

    uvicorn.run(bare.streamable_http_app(), port=int(sys.argv[1]), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
