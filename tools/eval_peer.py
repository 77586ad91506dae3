"""Asks agents-docs, in an interpreter that has it: JSON with root, queries, depth in; hits, reply, milliseconds out."""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    """Answer the questions on standard input over the Markdown files below `root`."""
    asked = json.load(sys.stdin)
    os.environ["AGENTS_DOCS_PATH"] = asked["root"]
    from agents_docs import mcp_server  # It reads the variable when it is imported.

    answers = []
    for query in asked["queries"]:
        started = time.perf_counter()
        reply = mcp_server.search_docs(query)
        elapsed = (time.perf_counter() - started) * 1_000
        results = mcp_server.engine.search_detailed(docset="all", query=query, top_k=asked["depth"])["results"]
        hits = [(result["file"], result["snippet"]) for result in results]
        answers.append({"hits": hits, "reply": reply, "milliseconds": elapsed})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
