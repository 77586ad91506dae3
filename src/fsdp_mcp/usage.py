"""How the command line explains itself: an example for each command, and errors that name the next step."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from fsdp_mcp.errors import did_you_mean

EXAMPLES: dict[str, str] = {
    "serve": """
  fsdp-mcp serve                                            for a client that starts it, such as Claude Code
  fsdp-mcp serve --transport http --port 8000               for several clients, at http://127.0.0.1:8000/mcp
  FSDP_MCP_TOKEN=... fsdp-mcp serve --transport http --host 0.0.0.0 --allowed-host gpu-box
Over HTTP nothing is run and no path is read; --allow-run lets callers run code. FSDP_MCP_TOKEN holds the token.""",
    "demo": """
  fsdp-mcp demo             about 20 seconds, the first time some more for the index; nothing is downloaded""",
    "index": """
  fsdp-mcp index            servers and commands build it when they need it: only to have it ready, as in an image""",
    "doctor": """
  fsdp-mcp doctor                                     when answers are for another torch than yours
  fsdp-mcp doctor --python ~/envs/train/bin/python    what would be found there""",
    "docs": """
  fsdp-mcp docs fetch                      the official pages of your torch, from GitHub
  fsdp-mcp docs add ./runbook --name ops   your own pages, from where they lie
  fsdp-mcp docs list""",
    "cache": """
  fsdp-mcp cache path
  fsdp-mcp cache clear          the indexes, which are built again when needed
  fsdp-mcp cache clear --all    what `docs` keeps as well
FSDP_MCP_CACHE_DIR puts the cache elsewhere.""",
    "search-docs": """
  fsdp-mcp search-docs "how do I clip gradients with fully_shard"
  fsdp-mcp search-docs "Watchdog caught collective operation timeout" --kind failure --limit 2""",
    "read-doc": """
  fsdp-mcp read-doc fsdp2
  fsdp-mcp read-doc fsdp://guides/fsdp2#mixed-precision""",
    "lookup-api": """
  fsdp-mcp lookup-api fully_shard
  fsdp-mcp lookup-api fully_shard --torch-version 2.5
  fsdp-mcp lookup-api NCCL_IB_HCA""",
    "recommend-backend": """
  fsdp-mcp recommend-backend
  fsdp-mcp recommend-backend --accelerator cuda --interconnect infiniband --nodes 4
  fsdp-mcp recommend-backend --accelerator cuda --collectives cpu:all_reduce --collectives cpu:broadcast""",
    "generate-training-code": """
  fsdp-mcp generate-training-code fsdp2 --checkpoint dcp --nodes 4 --output-dir run
  fsdp-mcp generate-training-code hsdp --nodes 4 --model mymodels.gpt:build --block-classes Block --project-dir .
  fsdp-mcp generate-training-code fsdp2 --what snippet --no-verify""",
    "run-on-gloo": """
  fsdp-mcp run-on-gloo train.py -- --steps 3                  what follows -- is given to the script
  fsdp-mcp run-on-gloo train.py --world-size 4 --nodes 2      pretends two nodes
  fsdp-mcp run-on-gloo train.py --compare single_process      are losses, gradients and parameters the same?
  fsdp-mcp run-on-gloo new.py --compare old.py
Exit status: 0 every rank ended well, 1 a rank failed or hung.""",
    "diagnose-log": """
  fsdp-mcp diagnose-log job.log
  fsdp-mcp diagnose-log logs/ 'dumps/nccl_trace_rank_*'       all ranks, with flight-recorder dumps
  kubectl logs job/train | fsdp-mcp diagnose-log - --mask
  py-spy dump --pid 4211 > rank0.txt ... ; fsdp-mcp diagnose-log rank*.txt
Exit status: 1 a failure was found, 0 none.""",
}


class Parser(argparse.ArgumentParser):
    """A parser that answers wrong usage with one line: what is wrong, and where to see what is right."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong on stderr and end with status 2."""
        hint = ""
        if message.endswith("--arguments: expected one argument"):
            hint = " What begins with a dash goes after --, as in `run-on-gloo train.py -- --steps 3`."
        print(f"fsdp-mcp: {message}.{hint} See `{self.prog} --help`.", file=sys.stderr)
        raise SystemExit(2)

    def refuse_unknown(self, given: Sequence[str]) -> NoReturn:
        """Refuse arguments that this command does not take."""
        flags = [flag for action in self._actions for flag in action.option_strings]
        first = next((text for text in given if text.startswith("-")), given[0])
        self.error(f"unknown argument {first}. {did_you_mean(first, flags)}".rstrip(". "))
