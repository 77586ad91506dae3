"""The command line: serve, demo, index, doctor, cache, and one command for each tool."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdp_mcp import __version__, call, toolbox
from fsdp_mcp.command import add_python, local_caller
from fsdp_mcp.docs_command import add_docs
from fsdp_mcp.errors import FsdpMcpError, did_you_mean
from fsdp_mcp.tool_command import add_tool
from fsdp_mcp.usage import EXAMPLES, Parser

if TYPE_CHECKING:
    from fsdp_mcp.server import Settings

_OVERVIEW = """\
An MCP server that makes a coding agent an expert in PyTorch FSDP and torch.distributed.

  fsdp-mcp demo                        show the main job on this machine
  fsdp-mcp serve                       serve an MCP client over stdin and stdout
  fsdp-mcp serve --transport http      serve at http://127.0.0.1:8000/mcp
  fsdp-mcp doctor                      which Python and torch it answers for, and why
  fsdp-mcp lookup-api fully_shard      any tool, as a command
  fsdp-mcp diagnose-log job.log        which rank failed first, and why
  fsdp-mcp run-on-gloo train.py        run a script on two CPU ranks

Every command has --help with examples.

Register it in Claude Code:  claude mcp add fsdp -- fsdp-mcp serve
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 done, 1 negative answer, 2 bad argument, 3 environment."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, of_script = _without_script_arguments(given)
    parser = _parser(own)
    options, unknown = parser.parse_known_args(own)
    if options.command is None and not unknown:
        parser.print_help()
        return 2
    if unknown:
        getattr(options, "parser", parser).refuse_unknown(unknown)
    if of_script:
        options.arguments = [*getattr(options, "arguments", []), *of_script]
    try:
        status: int = options.run(options)
    except FsdpMcpError as error:
        print(f"fsdp-mcp: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return status


def _without_script_arguments(given: list[str]) -> tuple[list[str], list[str]]:
    """Part what follows -- in a run from the command's own arguments."""
    if given[:1] != ["run-on-gloo"] or "--" not in given:
        return given, []
    at = given.index("--")
    return given[:at], given[at + 1 :]


def _parser(given: Sequence[str]) -> Parser:
    parser = Parser("fsdp-mcp", description=_OVERVIEW, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--version", action="version", version=f"fsdp-mcp {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary, add in _COMMANDS:
        add(_add_command(commands, name, summary))
    wanted = next((argument for argument in given if not argument.startswith("-")), "")
    names = [*(name for name, _, _ in _COMMANDS), *(tool.name.replace("_", "-") for tool in toolbox.TOOLS)]
    if wanted and wanted not in names:
        hint = did_you_mean(wanted.replace("_", "-"), names)
        parser.error(f"unknown command {wanted!r}. {hint}Commands: {', '.join(names)}")
    for tool in toolbox.TOOLS:
        name = tool.name.replace("_", "-")
        command = _add_command(commands, name, tool.title)
        if name == wanted:  # Only the command in use loads its tool: a one-shot call stays fast.
            add_tool(command, tool)
    return parser


def _add_command(commands: Any, name: str, summary: str) -> Parser:
    command: Parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary}.",
        epilog=f"examples:{EXAMPLES[name]}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(parser=command)
    return command


def _add_serve(command: argparse.ArgumentParser) -> None:
    command.add_argument("--transport", choices=("stdio", "http"), default="stdio", help="default: stdio")
    command.add_argument("--host", default="127.0.0.1", help="HTTP: address to bind; others than loopback need a token")
    command.add_argument("--port", type=int, default=8000, help="HTTP: port (default 8000)")
    command.add_argument("--workers", type=int, default=1, help="HTTP: processes (default 1)")
    command.add_argument("--token-file", type=Path, help="HTTP: file with the bearer token (or set FSDP_MCP_TOKEN)")
    command.add_argument("--allow-run", action="store_true", help="HTTP: let callers run code on this machine")
    command.add_argument("--allowed-host", action="append", default=[], help="HTTP: a name clients reach this by")
    command.add_argument("--structured", action="store_true", help="return structured content beside the text")
    command.add_argument("--log-level", default="warning", choices=("debug", "info", "warning", "error"))
    add_python(command)
    command.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    gc.disable()  # The SDK makes some 500 classes while it is imported: collecting meanwhile costs a third of that.
    from fsdp_mcp import server

    gc.freeze()
    gc.enable()
    logging.basicConfig(stream=sys.stderr, level=options.log_level.upper(), format="fsdp-mcp: %(message)s")
    logging.getLogger("fsdp_mcp").setLevel(min(logging.INFO, getattr(logging, options.log_level.upper())))
    remote = options.transport == "http"
    settings = server.Settings(
        structured=options.structured or os.environ.get("FSDP_MCP_STRUCTURED") == "1",
        remote=remote,
        may_run=options.allow_run or not remote,
        python=options.python,
    )
    if remote:
        return _serve_http(settings, options)
    if sys.stdin.isatty():
        print("Waiting for an MCP client on stdin. Register it: claude mcp add fsdp -- fsdp-mcp serve", file=sys.stderr)
    server.serve_stdio(settings)
    return 0


def _serve_http(settings: Settings, options: argparse.Namespace) -> int:
    from fsdp_mcp import http

    service = http.Service(
        host=options.host,
        port=options.port,
        workers=options.workers,
        token=http.read_token(options.token_file),
        allowed_hosts=tuple(options.allowed_host),
        log_level=options.log_level,
    )
    http.serve_http(settings, service)
    return 0


def _add_index(command: argparse.ArgumentParser) -> None:
    command.add_argument("--force", action="store_true", help="build it again even if it is up to date")
    add_python(command)
    command.set_defaults(run=_index)


def _index(options: argparse.Namespace) -> int:
    from fsdp_mcp.index import build_index
    from fsdp_mcp.target import find_target

    call.enter(local_caller(options))
    print(build_index(find_target(), force=options.force))
    return 0


def _add_demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print the steps as one JSON object")
    add_python(command)
    command.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from fsdp_mcp.demo import run_demo

    return run_demo(python=options.python, as_json=options.json)


def _add_doctor(command: argparse.ArgumentParser) -> None:
    add_python(command)
    command.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from fsdp_mcp.doctor import examine

    call.enter(local_caller(options))
    report = examine()
    print(report.render())
    return 3 if report.target is None or report.target.torch_dir is None else 0


def _add_cache(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("path", "clear"), help="print the folder, or remove the indexes in it")
    command.add_argument(
        "--all", action="store_true", help="clear: remove what `docs` keeps too, fetched pages and the list of folders"
    )
    command.set_defaults(run=_cache)


def _cache(options: argparse.Namespace) -> int:
    from fsdp_mcp import cache
    from fsdp_mcp.library import shelf

    if options.action == "path":
        print(cache.cache_root())
    elif options.all:
        cache.clear_all()
        print(f"Removed {cache.cache_root()} with all that `docs` kept; the next start builds the index again.")
    else:
        cache.clear_indexes()
        kept = [*(found.name for found in shelf.releases()), *(found.name for found in shelf.user_collections())]
        still = f" Kept {', '.join(kept)}; --all removes what `docs` keeps too." if kept else ""
        print(f"Removed the indexes in {cache.cache_root()}; the next start builds one again.{still}")
    return 0


_COMMANDS: tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None]], ...] = (
    ("serve", "Serve MCP clients over stdio or HTTP", _add_serve),
    ("demo", "Show the main job on this machine with a real client", _add_demo),
    ("index", "Build the index of the installed torch now", _add_index),
    ("doctor", "Say which Python and torch are used, why, and what they can do", _add_doctor),
    ("docs", "Fetch the official pages, add your own documents; list and remove them", add_docs),
    ("cache", "Show or clear the cache", _add_cache),
)


if __name__ == "__main__":
    sys.exit(main())
