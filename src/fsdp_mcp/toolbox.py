"""The tools: one row each, their argument models, and the joins of two capabilities. Knows no protocol."""

from __future__ import annotations

import importlib
import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from fsdp_mcp import call
from fsdp_mcp.corpus import GuideHeader, guide_headers
from fsdp_mcp.errors import BadArgument, did_you_mean
from fsdp_mcp.models import Result
from fsdp_mcp.target import find_target

Join = Callable[[], object]


def _load(path: str) -> Any:
    """Return what `module:name` names; the one place that imports a capability, on its first use."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class Tool:
    """One tool: where its function lives and what a client is told of it.

    Args:
        name: as clients and, in kebab case, the command line call it.
        function_path: `module:function`, loaded on first use.
        title: short human name.
        read_only: whether it changes nothing outside its cache and scratch folders.
        idempotent: whether calling it again with the same arguments changes nothing more.
        runs_code: whether it does nothing but execute the caller's code, so that it is offered only where code may run.
        quick: whether it takes a few milliseconds once the index is open, so that no thread is worth it.
        starts_ranks: whether it may start ranks, of which only a few may run at a time.
        joins: parameters of the function that callers do not see, with what provides each.
    """

    name: str
    function_path: str
    title: str
    read_only: bool = True
    idempotent: bool = True
    runs_code: bool = False
    quick: bool = False
    starts_ranks: bool = False
    joins: Mapping[str, Join] = field(default_factory=dict)

    @cached_property
    def function(self) -> Callable[..., Result]:
        """The tool's function, its module imported on first use."""
        function: Callable[..., Result] = _load(self.function_path)
        return function

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The model of the arguments that callers may give, made from the function's signature."""
        signature = inspect.signature(self.function)
        hints = get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {
            name: (hints[name], ... if parameter.default is parameter.empty else parameter.default)
            for name, parameter in signature.parameters.items()
            if name not in self.joins
        }
        return create_model(f"{self.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)

    @cached_property
    def result(self) -> type[Result]:
        """The model of the result."""
        result: type[Result] = get_type_hints(self.function)["return"]
        return result

    @cached_property
    def description(self) -> str:
        """What a model reads about the tool: the docstring of its function."""
        return inspect.cleandoc(self.function.__doc__ or "")

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments: closed, without titles, an absent argument instead of a null."""
        schema: dict[str, Any] = _without_titles(self.arguments.model_json_schema())
        schema["properties"] = {name: _absent_for_null(option) for name, option in schema["properties"].items()}
        return schema

    def output_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the result, without titles."""
        schema: dict[str, Any] = _without_titles(self.result.model_json_schema(mode="serialization"))
        return schema

    def call(self, arguments: Mapping[str, object]) -> Result:
        """Validate `arguments` and run the tool.

        Raises:
            FsdpMcpError: an argument is not accepted, or the tool says what is wrong.
        """
        given = self._validate(arguments)
        return self.function(**given, **{name: provide() for name, provide in self.joins.items()})

    def _validate(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        fields = self.arguments.model_fields
        for name in arguments:
            if name not in fields:
                raise BadArgument(
                    f"Unknown argument {name!r} for {self.name}. {did_you_mean(name, fields)}"
                    f"Accepted: {', '.join(fields)}."
                )
        try:
            model = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise BadArgument(_explain(error, self)) from None
        return {name: getattr(model, name) for name in fields}


def _without_titles(schema: Any) -> Any:
    """Drop the titles that pydantic adds: they cost tokens and say nothing new; properties named title stay."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_titles(value) for name, value in item.items()}
        if key in ("properties", "$defs") and isinstance(item, dict)
        else _without_titles(item)
        for key, item in schema.items()
        if not (key == "title" and isinstance(item, str))
    }


def _absent_for_null(option: dict[str, Any]) -> dict[str, Any]:
    """Advertise `X` for `X | None = None`: a caller leaves the argument out, though a null is accepted as well."""
    choices = [choice for choice in option.get("anyOf", ()) if choice != {"type": "null"}]
    if option.get("default", ...) is not None or len(choices) == len(option.get("anyOf", ())):
        return option
    kept = {key: value for key, value in option.items() if key not in ("anyOf", "default")}
    return {**choices[0], **kept} if len(choices) == 1 else {"anyOf": choices, **kept}


def _explain(error: ValidationError, tool: Tool) -> str:
    """Say in our own words what is wrong with the first bad argument and what is accepted."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "missing":
        required = [key for key, info in tool.arguments.model_fields.items() if info.is_required()]
        return f"{name}: required by {tool.name}, but missing. Required: {', '.join(required)}."
    given = repr(first["input"])
    shown = given if len(given) <= 80 else f"{given[:77]}..."
    return f"{name}: got {shown}, expected {_accepted(tool.arguments.model_fields[name])}."


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def _accepted(info: FieldInfo) -> str:
    """Describe the values that a field takes, for an error text."""
    words = _describe_type(info.annotation)
    bounds = [
        f"{phrase} {getattr(bound, key)}"
        for bound in info.metadata
        for key, phrase in _BOUNDS.items()
        if getattr(bound, key, None) is not None
    ]
    lengths = [f"of at least {b.min_length} character" for b in info.metadata if hasattr(b, "min_length")]
    lengths += [f"of at most {b.max_length:,} characters" for b in info.metadata if hasattr(b, "max_length")]
    return " ".join([words, " and ".join(bounds + lengths)]).strip()


def _describe_type(annotation: Any) -> str:
    if annotation in _WORDS:
        return _WORDS[annotation]
    arguments = get_args(annotation)
    if arguments and all(isinstance(argument, str) for argument in arguments):
        return f"one of {', '.join(arguments)}"
    if get_origin(annotation) is list:
        return f"a list ({_describe_type(arguments[0])} each)"
    if get_origin(annotation) is dict:
        return f"an object of name: {_describe_type(arguments[1])}"
    return " or ".join(_describe_type(argument) for argument in arguments) or "another value"


_FRESH_SECONDS = 1.0
_CHOOSERS = ("FSDP_MCP_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX", "FSDP_MCP_CACHE_DIR")
"""Variables that choose a torch or a cache; with the folder and `--python` they say which index is meant."""

_OPENED: dict[tuple[object, ...], tuple[float, Any]] = {}


def _which() -> tuple[object, ...]:
    return (call.current().python, os.getcwd(), *(os.environ.get(name) for name in _CHOOSERS))  # noqa: PTH109, as is


def is_ready() -> bool:
    """Return whether the index was looked at within the last second, so that opening it takes no time."""
    return _OPENED.get(_which(), (0.0, None))[0] > time.monotonic()


def _open_index() -> Any:
    """Open the index of the target; whether torch, guides or documents have changed is asked once a second."""
    which = _which()
    until, index = _OPENED.get(which, (0.0, None))
    if until <= time.monotonic():
        index = _load("fsdp_mcp.index:open_index")(find_target())
        _OPENED[which] = (time.monotonic() + _FRESH_SECONDS, index)
    return index


def _search_index() -> object:
    return _open_index().search


def _catalogue() -> object:
    return _open_index().catalogue


def _run_ranks() -> object:
    return _load("fsdp_mcp.verify.run:run_ranks")


def _known_failure() -> object:
    return _load("fsdp_mcp.diagnose.diagnose_log:known_failure")


TOOLS: tuple[Tool, ...] = (
    Tool(
        "search_docs",
        "fsdp_mcp.docs.search:search_docs",
        "Search the documentation",
        quick=True,
        joins={"index": _search_index},
    ),
    Tool(
        "read_doc", "fsdp_mcp.docs.read:read_doc", "Read a page or section", quick=True, joins={"index": _search_index}
    ),
    Tool("lookup_api", "fsdp_mcp.api.lookup:lookup_api", "Look up an API", quick=True, joins={"catalogue": _catalogue}),
    Tool("recommend_backend", "fsdp_mcp.backends:recommend_backend", "Recommend a communication backend"),
    Tool(
        "generate_training_code",
        "fsdp_mcp.generate.training_code:generate_training_code",
        "Generate proven training code",
        read_only=False,
        starts_ranks=True,
        joins={"prove": _run_ranks},
    ),
    Tool(
        "run_on_gloo",
        "fsdp_mcp.verify.run:run_on_gloo",
        "Run code on CPU Gloo ranks",
        read_only=False,
        idempotent=False,
        runs_code=True,
        starts_ranks=True,
        joins={"diagnose": _known_failure},
    ),
    Tool("diagnose_log", "fsdp_mcp.diagnose.diagnose_log:diagnose_log", "Diagnose a failure log"),
)


def find_tool(name: str, *, offered: Sequence[Tool] = TOOLS) -> Tool:
    """Return the tool of that name among those offered.

    Raises:
        BadArgument: there is no such tool; the message lists those there are.
    """
    for tool in offered:
        if tool.name == name:
            return tool
    names = [tool.name for tool in offered]
    hint = " (not offered here: start the server with --allow-run)" if any(t.name == name for t in TOOLS) else ""
    raise BadArgument(f"Unknown tool {name!r}{hint}. {did_you_mean(name, names)}Tools: {', '.join(names)}.")


def guides() -> Sequence[GuideHeader]:
    """Return the headers of all guides, without building or opening an index."""
    return guide_headers()


def api_names() -> Sequence[str]:
    """Return the qualified names of the installed torch's API; waits for the index."""
    names: Sequence[str] = _open_index().catalogue.names()
    return names


def warm_up() -> Iterator[str]:
    """Find torch and build its index if there is none; yield a line for the log after each step."""
    target = find_target()
    torch = f"torch {target.torch_version}" if target.torch_dir else "no torch: guides and history only"
    yield f"{torch} in {target.python} (chosen by {target.reason}); `fsdp-mcp doctor` says how to change it"
    _open_index()
    yield "index ready"
