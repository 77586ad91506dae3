"""The command line: serve, demo, index, doctor, cache, and one command for each tool."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from fsdp_mcp import __version__, call, toolbox
from fsdp_mcp.call import Caller
from fsdp_mcp.errors import BadArgument, EnvironmentProblem, FsdpMcpError, did_you_mean
from fsdp_mcp.toolbox import Tool
from fsdp_mcp.usage import EXAMPLES, Parser

if TYPE_CHECKING:
    from fsdp_mcp.library.commands import LibraryReport
    from fsdp_mcp.server import Settings

_QUIET_SECONDS = 2.0
_SCRIPT_FILE = "the script's file, run where it lies, beside the modules it imports; - for stdin"
_LOG_FILES = "logs and flight-recorder dumps: files, folders or globs, all ranks together; - for stdin"

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
            _add_tool(command, tool)
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


def _add_python(command: argparse.ArgumentParser) -> None:
    command.add_argument("--python", type=Path, metavar="P", help="the interpreter whose torch to answer for")


def _local_caller(options: argparse.Namespace, report: Callable[[float, float | None, str], None]) -> Caller:
    return Caller(report=report, python=options.python)


class _Progress:
    """Tells on stderr how far the work is, once it has taken more than two seconds."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._told = ""

    def __call__(self, done: float, total: float | None, message: str) -> None:
        if time.monotonic() - self._started > _QUIET_SECONDS and message != self._told:
            self._told = message
            print(f"... {message}", file=sys.stderr, flush=True)


# ---- tools as commands ------------------------------------------------------------------------------------------


def _add_tool(command: argparse.ArgumentParser, tool: Tool) -> None:
    command.description = tool.description
    for name, info in tool.arguments.model_fields.items():
        text = (info.description or "").replace("%", "%%")
        if name == "log":
            command.add_argument("files", nargs="*", metavar="FILES", help=_LOG_FILES)
        elif name == "code":
            command.add_argument(name, nargs="?", metavar="SCRIPT", help=_SCRIPT_FILE)
        elif info.is_required():
            choices = _choices(info.annotation)
            command.add_argument(name, help=f"one of {choices}. {text}" if choices else text)
        else:
            _add_option(command, name, info.annotation, f"{text}{_default(info.default)}".strip())
    command.add_argument("--json", action="store_true", help="print the structured result as one JSON object")
    _add_python(command)
    run = _diagnose if tool.name == "diagnose_log" else _run_tool
    command.set_defaults(run=lambda options: run(tool, options))


def _add_option(command: argparse.ArgumentParser, name: str, annotation: Any, text: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    base = _without_null(annotation)
    settings: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text}
    if base is bool:
        command.add_argument(flag, action=argparse.BooleanOptionalAction, **settings)
    elif get_origin(base) is list:
        settings["help"] = f"{text}; repeat it for several"
        command.add_argument(flag, action="append", metavar="X", **settings)
    elif get_origin(base) is dict:
        command.add_argument("--file", action="append", metavar="NAME=PATH", **settings)
    else:
        choices = _choices(base)
        metavar = choices or (name.rpartition("_")[2].upper() if base is str else "N")
        command.add_argument(flag, metavar=metavar, type=_text if base is str or choices else _literal, **settings)


def _choices(annotation: Any) -> str | None:
    """Return `{a,b}` for an enumeration of texts."""
    accepted = get_args(annotation)
    return f"{{{','.join(accepted)}}}" if accepted and all(isinstance(each, str) for each in accepted) else None


def _default(value: object) -> str:
    """Return a default in the command line's words, or nothing where leaving the option out says it."""
    if isinstance(value, bool):
        return f" (default: {'yes' if value else 'no'})"
    return "" if value is None or value in ([], {}) else f" (default: {value})"


def _without_null(annotation: Any) -> Any:
    """Return X for `X | None` and anything else unchanged."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    others = [argument for argument in get_args(annotation) if argument is not type(None)]
    return others[0] if len(others) == 1 else annotation


def _text(text: str) -> str:
    return text


def _literal(text: str) -> object:
    """Read true, false, null, none and numbers as such; leave the judgement of anything else to the tool."""
    try:
        value: object = json.loads("null" if text.lower() == "none" else text.lower())
    except ValueError:
        return text
    return value


def _run_tool(tool: Tool, options: argparse.Namespace) -> int:
    arguments = {name: getattr(options, name) for name in tool.arguments.model_fields if hasattr(options, name)}
    if arguments.get("code") is not None:
        arguments.update(_script(arguments["code"], given_path=arguments.get("path")))
    if isinstance(arguments.get("files"), list):
        arguments["files"] = dict(_named_file(item) for item in arguments["files"])
    call.enter(_anywhere(options) if tool.runs_code else _local_caller(options, _Progress()))
    signal.signal(signal.SIGTERM, _interrupt)
    result = tool.call(arguments)
    print(result.model_dump_json() if options.json else result.render())
    return 1 if result.negative else 0


def _diagnose(tool: Tool, options: argparse.Namespace) -> int:
    """Diagnose the logs named; a terminal gets a table of the ranks."""
    named = [*([options.path] if hasattr(options, "path") else []), *options.files]
    if not named:
        raise BadArgument("Name the logs: files, folders or globs of all ranks; - reads stdin.")
    if named == ["-"]:
        options.log = sys.stdin.read()
        return _run_tool(tool, options)
    from fsdp_mcp.diagnose.diagnose_log import diagnose_files

    call.enter(_anywhere(options))
    given = {name: getattr(options, name) for name in ("torch_version", "mask") if hasattr(options, name)}
    result = diagnose_files(named, **given)
    if options.json or not sys.stdout.isatty():
        print(result.model_dump_json() if options.json else result.render())
    else:
        from rich.console import Console

        from fsdp_mcp.diagnose.show import show

        show(result, Console())
    return 1 if result.negative else 0


def _anywhere(options: argparse.Namespace) -> Caller:
    """Return a caller who may name any file of this machine: the user in person."""
    return replace(_local_caller(options, _Progress()), roots=(Path.cwd(), Path(Path.cwd().anchor)))


def _script(name: str, *, given_path: str | None) -> dict[str, str | None]:
    """Run a named file where it lies, beside the modules it imports; text comes from stdin alone."""
    text = _read(name)
    return {"code": text} if name == "-" or given_path is not None else {"code": None, "path": name}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise BadArgument(f"{name}: cannot be read ({error.strerror}). Give a file name, or - for stdin.") from None
    except UnicodeDecodeError:
        raise BadArgument(f"{name}: is not UTF-8 text.") from None


def _named_file(item: str) -> tuple[str, str]:
    name, separator, path = item.partition("=")
    if not separator:
        raise BadArgument(f"--file: got {item!r}, expected NAME=PATH.")
    return name, _read(path)


# ---- serve, index, demo, doctor, cache ---------------------------------------------------------------------------


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
    _add_python(command)
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
    _add_python(command)
    command.set_defaults(run=_index)


def _index(options: argparse.Namespace) -> int:
    from fsdp_mcp.index import build_index
    from fsdp_mcp.target import find_target

    call.enter(_local_caller(options, _Progress()))
    print(build_index(find_target(), force=options.force))
    return 0


def _add_demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print the steps as one JSON object")
    _add_python(command)
    command.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from fsdp_mcp.demo import run_demo

    return run_demo(python=options.python, as_json=options.json)


def _add_doctor(command: argparse.ArgumentParser) -> None:
    _add_python(command)
    command.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from fsdp_mcp.doctor import examine

    call.enter(_local_caller(options, _Progress()))
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


def _add_docs(command: argparse.ArgumentParser) -> None:
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True)
    fetch = _add_verb(
        verbs, "fetch", "Download the official pages of a release into the cache", _DOCS_FETCH, _docs_fetch
    )
    fetch.add_argument("--torch", metavar="X", help="the release, such as 2.6 (default: that of your torch)")
    fetch.add_argument("--from", dest="source", metavar="WHERE", help="a mirror's address or a local folder")
    add = _add_verb(verbs, "add", "Index a folder of your own documents", _DOCS_ADD, _docs_add)
    add.add_argument("path", help="a folder, or one file")
    add.add_argument("--name", required=True, metavar="N", help="what the collection is called in URIs and lists")
    _add_verb(verbs, "list", "Tell what was fetched and added, and what was left out", "", _docs_list)
    remove = _add_verb(verbs, "remove", "Take a collection out of the search", "", _docs_remove)
    remove.add_argument("name", help="as `docs list` shows it")


_DOCS_FETCH = """
Downloads the sources of the pages on torch.distributed from the release's tag of pytorch/pytorch on GitHub, one after
another. Interrupted, it goes on where it stopped when run again. --from takes the address of a folder that holds
distributed.md or .rst (docs/source on a mirror, or the _sources of published pages), a checkout of pytorch/pytorch, or
its docs/source. Nothing is ever fetched unless you run this."""

_DOCS_ADD = """
Takes Markdown (MyST included) and reStructuredText. The documents stay where they are and are read from there: changed,
new and deleted ones count from the next search on, which then waits some seconds for the index. Hidden folders and
links are left out, and so is what is not UTF-8 text, longer than 1 MB, or beyond 2,000 documents."""


def _add_verb(
    verbs: Any, name: str, summary: str, text: str, run: Callable[[argparse.Namespace], LibraryReport]
) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=summary, description=f"{summary}.\n{text}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verb.set_defaults(parser=verb)
    verb.add_argument("--json", action="store_true", help="print the result as one JSON object")
    _add_python(verb)
    verb.set_defaults(run=lambda options: _docs(options, run))
    return verb


def _docs(options: argparse.Namespace, run: Callable[[argparse.Namespace], LibraryReport]) -> int:
    """Run one verb, print what it did, and build the index that it changed, so that the next search has it."""
    call.enter(_local_caller(options, _Progress()))
    report = run(options)
    print(report.model_dump_json() if options.json else report.render())
    if options.verb != "list":
        _bring_index_up_to_date()
    return 0


def _bring_index_up_to_date() -> None:
    from fsdp_mcp.index import build_index
    from fsdp_mcp.target import find_target

    try:
        build_index(find_target())
    except EnvironmentProblem as error:
        print(f"fsdp-mcp: the index is left for later: {error}", file=sys.stderr)


def _docs_fetch(options: argparse.Namespace) -> LibraryReport:
    from fsdp_mcp.library.commands import fetch_official
    from fsdp_mcp.target import require_torch

    version = options.torch or require_torch().torch_version or ""
    with _progress_bar("Fetching") as report:
        return fetch_official(version=version, source=options.source, report=report)


def _docs_add(options: argparse.Namespace) -> LibraryReport:
    from fsdp_mcp.library.commands import add_documents

    return add_documents(options.path, name=options.name)


def _docs_list(options: argparse.Namespace) -> LibraryReport:
    from fsdp_mcp.library.commands import list_collections

    return list_collections()


def _docs_remove(options: argparse.Namespace) -> LibraryReport:
    from fsdp_mcp.library.commands import remove_collection

    return remove_collection(options.name)


@contextmanager
def _progress_bar(title: str) -> Iterator[Callable[[float, float | None, str], None]]:
    """Show a bar on stderr that the function it gives moves on; nothing moves where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total, message: bar.update(task, completed=done, total=total, description=message)


_COMMANDS: tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None]], ...] = (
    ("serve", "Serve MCP clients over stdio or HTTP", _add_serve),
    ("demo", "Show the main job on this machine with a real client", _add_demo),
    ("index", "Build the index of the installed torch now", _add_index),
    ("doctor", "Say which Python and torch are used, why, and what they can do", _add_doctor),
    ("docs", "Fetch the official pages, add your own documents; list and remove them", _add_docs),
    ("cache", "Show or clear the cache", _add_cache),
)


if __name__ == "__main__":
    sys.exit(main())
