"""Each tool as a command: options from its arguments, files for code and logs, the result as text or JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from fsdp_mcp import call
from fsdp_mcp.call import Caller
from fsdp_mcp.command import add_python, local_caller
from fsdp_mcp.errors import BadArgument
from fsdp_mcp.toolbox import Tool

_SCRIPT_FILE = "the script's file, run where it lies, beside the modules it imports; - for stdin"
_LOG_FILES = "logs and flight-recorder dumps: files, folders or globs, all ranks together; - for stdin"


def add_tool(command: argparse.ArgumentParser, tool: Tool) -> None:
    """Make a parser that of a tool: an argument or option for each of its parameters."""
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
    add_python(command)
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
    call.enter(_anywhere(options) if tool.runs_code else local_caller(options))
    signal.signal(signal.SIGTERM, _interrupt)
    result = tool.call(arguments)
    print(result.model_dump_json() if options.json else result.render())
    return 1 if result.negative else 0


def _diagnose(tool: Tool, options: argparse.Namespace) -> int:
    """Diagnose the logs named; a terminal gets a table of the ranks."""
    named = [*([options.path] if hasattr(options, "path") else []), *options.files]
    if not named:
        raise BadArgument("Name the logs: files, folders or globs of all ranks; - reads stdin.")
    from fsdp_mcp.diagnose.diagnose_log import diagnose_files, diagnose_stream

    call.enter(_anywhere(options))
    given = {name: getattr(options, name) for name in ("torch_version", "mask") if hasattr(options, name)}
    if named == ["-"]:
        result = diagnose_stream(cast("BufferedReader", sys.stdin.buffer), **given)
    else:
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
    return replace(local_caller(options), roots=(Path.cwd(), Path(Path.cwd().anchor)))


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
