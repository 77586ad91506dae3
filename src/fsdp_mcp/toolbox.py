"""The tools: one row each, their argument models, and the joins of two capabilities. Knows no protocol."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from fsdp_mcp.errors import BadArgument, did_you_mean
from fsdp_mcp.models import Result

Join = Callable[[], object]


@dataclass(frozen=True)
class Tool:
    """One tool: where its function lives and what a client is told of it.

    Args:
        name: as clients and, in kebab case, the command line call it.
        function_path: `module:function`, loaded on first use.
        title: short human name.
        read_only: whether it changes nothing outside its cache and scratch folders.
        runs_code: whether it executes code, which HTTP has to be told to allow.
        joins: parameters of the function that callers do not see, with what provides each.
    """

    name: str
    function_path: str
    title: str
    read_only: bool = True
    runs_code: bool = False
    joins: Mapping[str, Join] = field(default_factory=dict)

    @cached_property
    def function(self) -> Callable[..., Result]:
        """The tool's function; this is the one place that imports a tool's module."""
        module, _, name = self.function_path.partition(":")
        function: Callable[..., Result] = getattr(importlib.import_module(module), name)
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
        """Return the JSON schema of the arguments: closed, without titles."""
        schema: dict[str, Any] = _without_titles(self.arguments.model_json_schema())
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
    lengths = [f"{bound.max_length:,} characters at most" for bound in info.metadata if hasattr(bound, "max_length")]
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
        return "an object of name: text"
    return " or ".join(_describe_type(argument) for argument in arguments) or "another value"


TOOLS: tuple[Tool, ...] = (
    Tool("lookup_api", "fsdp_mcp.api.lookup:lookup_api", "Look up an API"),
    Tool("recommend_backend", "fsdp_mcp.backends:recommend_backend", "Recommend a backend"),
)


def find_tool(name: str) -> Tool:
    """Return the tool of that name.

    Raises:
        BadArgument: there is no such tool; the message lists those there are.
    """
    for tool in TOOLS:
        if tool.name == name:
            return tool
    names = [tool.name for tool in TOOLS]
    raise BadArgument(f"Unknown tool {name!r}. {did_you_mean(name, names)}Tools: {', '.join(names)}.")
