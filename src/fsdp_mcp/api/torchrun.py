"""Reads the options of torchrun from the calls that define them in torch/distributed/run.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_mcp.api.raw import RawSymbol
from fsdp_mcp.api.tree import SourceTree
from fsdp_mcp.models import ApiSymbol

_MODULE = "torch.distributed.run"
_PAGE = "elastic/run"
_ENVIRONMENT_ACTIONS = ("env", "check_env")


def torchrun_options(tree: SourceTree) -> Iterator[RawSymbol]:
    """Yield a symbol for each option: `torchrun --nnodes`, found with and without dashes or underscores."""
    module = tree.module(_MODULE)
    for node in ast.walk(module.tree) if module is not None else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=arguments):
                spellings = [item.value for item in arguments if isinstance(item, ast.Constant)]
                options = [text for text in spellings if isinstance(text, str) and text.startswith("--")]
                if options:
                    yield _option(tree, node, options)
            case _:
                pass


def _option(tree: SourceTree, call: ast.Call, options: list[str]) -> RawSymbol:
    given = {item.arg: item.value for item in call.keywords if item.arg}
    bare = {spelling for option in options for spelling in (option.lstrip("-"), option)}
    others = {f"torchrun {option}" for option in options[1:]} | bare
    dest = options[0].lstrip("-").replace("-", "_")
    return RawSymbol(
        ApiSymbol(
            name=options[0],
            qualified_name=f"torchrun {options[0]}",
            kind="option",
            signature=f"{options[0]}{_value(given)}",
            other_paths=tuple(sorted(others)),
            home=f"{_MODULE} {options[0]}",
            source=tree.source_of(_MODULE, call.lineno),
            page=_PAGE,
            url=f"https://docs.pytorch.org/docs/stable/{_PAGE}.html",
        ),
        _text(given, dest),
    )


def _value(given: dict[str, ast.expr]) -> str:
    """Return how the option takes its value: ` TYPE (default: value)`; nothing for a flag."""
    action = ast.unparse(given["action"]) if "action" in given else ""
    if "store_true" in action or "'0'" in action:
        return ""
    choices = given.get("choices")
    typed = ast.unparse(given["type"]).upper() if "type" in given else "VALUE"
    shown = ast.unparse(choices) if choices is not None else typed
    default = f" (default: {ast.unparse(given['default'])})" if "default" in given else ""
    return f" {shown}{default}"


def _text(given: dict[str, ast.expr], dest: str) -> str:
    """Return the help text and, where torchrun reads one, the environment variable that holds the default."""
    try:
        help_text = " ".join(str(ast.literal_eval(given["help"])).split()) if "help" in given else ""
    except ValueError:
        help_text = ast.unparse(given["help"])
    action = ast.unparse(given["action"]) if "action" in given else ""
    variable = (
        f"The environment variable `PET_{dest.upper()}` sets its default." if action in _ENVIRONMENT_ACTIONS else ""
    )
    return "\n\n".join(part for part in (help_text, variable) if part)
