"""Reads the options of torchrun from the calls that define them in torch/distributed/run.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from fsdp_mcp.api.raw import RawSymbol
from fsdp_mcp.api.tree import SourceTree
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import ApiSymbol, Value

_MODULE = "torch.distributed.run"
_PAGE = "elastic/run"
_ENVIRONMENT_ACTIONS = ("env", "check_env")
_FLAG_ACTIONS = ("check_env", "'store_true'")
_SCHEME = "fsdp://torchrun/"
_VARIABLE = "PET_"


class OptionRow(Value):
    """One row of `facts/torchrun_options.yaml`."""

    name: str
    when: str
    source: str


def option_path(name: str) -> str:
    """Return `torchrun --nnodes` for the URI or the PET_ variable of an option; any other name as it is."""
    for prefix in (_SCHEME, _VARIABLE):
        if name.startswith(prefix):
            return f"torchrun --{name.removeprefix(prefix).lstrip('-').lower().replace('_', '-')}"
    return name


@lru_cache(maxsize=1)
def _advice() -> dict[str, str]:
    return {row.name: row.when for row in load_facts("torchrun_options", OptionRow)}


def torchrun_options(tree: SourceTree) -> Iterator[RawSymbol]:
    """Yield a symbol for each option: `torchrun --nnodes`, found with and without dashes or underscores."""
    module = tree.module(_MODULE)
    for node in ast.walk(module.tree) if module is not None else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=arguments):
                spellings = [str(item.value) for item in arguments if isinstance(item, ast.Constant)]
                options = [text for text in spellings if text.startswith("--")]
                if options:
                    yield _option(tree, node, options, short=[text for text in spellings if text not in options])
            case _:
                pass


def _option(tree: SourceTree, call: ast.Call, options: list[str], *, short: list[str]) -> RawSymbol:
    given = {item.arg: item.value for item in call.keywords if item.arg}
    bare = {spelling for option in options for spelling in (option.lstrip("-"), option)}
    others = {f"torchrun {option}" for option in (*options[1:], *short)} | bare
    dest = options[0].lstrip("-").replace("-", "_")
    if _action(given) in _ENVIRONMENT_ACTIONS:
        others.add(f"{_VARIABLE}{dest.upper()}")
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


def _action(given: dict[str, ast.expr]) -> str:
    return ast.unparse(given["action"]) if "action" in given else ""


def _value(given: dict[str, ast.expr]) -> str:
    """Return how the option takes its value: ` TYPE (default: value)`; nothing for a flag."""
    if _action(given) in _FLAG_ACTIONS:
        return ""
    choices = given.get("choices")
    typed = ast.unparse(given["type"]).upper() if "type" in given else "VALUE"
    shown = ast.unparse(choices) if isinstance(choices, ast.List) else typed
    default = f" (default: {ast.unparse(given['default'])})" if "default" in given else ""
    return f" {shown}{default}"


def _text(given: dict[str, ast.expr], dest: str) -> str:
    """Return the help text, when to touch the option, and the environment variable that holds its default."""
    try:
        help_text = " ".join(str(ast.literal_eval(given["help"])).split()) if "help" in given else ""
    except ValueError:
        help_text = ast.unparse(given["help"])
    advice = _advice().get(dest.replace("_", "-"), "")
    reads = _action(given) in _ENVIRONMENT_ACTIONS
    variable = f"The environment variable `{_VARIABLE}{dest.upper()}` sets its default." if reads else ""
    return "\n\n".join(part for part in (help_text, advice, variable) if part)
