"""Turns a function's or a class's syntax into a signature and parameters, as written in torch."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence

from fsdp_mcp.models import ApiParameter

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_LONGEST_VALUE = 120


def text_of(node: ast.expr | None) -> str | None:
    """Return an expression as source text, None for None."""
    return None if node is None else ast.unparse(node)


def annotation_of(node: ast.expr | None) -> str | None:
    """Return an annotation as source text, without the quotes of a forward reference."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else text_of(node)


def decorators_of(node: FunctionNode | ast.ClassDef) -> list[str]:
    """Return the last names of a definition's decorators: `functools.cached_property` gives `cached_property`."""
    heads = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    return [ast.unparse(head).rpartition(".")[2] for head in heads]


def pick_implementation(nodes: Sequence[FunctionNode]) -> list[FunctionNode]:
    """Return what describes a name defined several times: the last implementation, else all overloads.

    Setters and deleters of a property are not definitions of it.
    """
    accessors = ("setter", "deleter")
    nodes = [node for node in nodes if not any(word in accessors for word in decorators_of(node))] or list(nodes)
    implementations = [node for node in nodes if "overload" not in decorators_of(node)]
    return implementations[-1:] or list(nodes)


def bound_arguments(node: FunctionNode, *, is_method: bool) -> ast.arguments:
    """Return the arguments as a caller gives them: without `self` or `cls` for a method."""
    arguments = copy.deepcopy(node.args)
    if is_method and ("staticmethod" not in decorators_of(node) or node.name == "__new__"):
        first = arguments.posonlyargs or arguments.args
        if first:
            surplus = len(arguments.defaults) - (len(arguments.posonlyargs) + len(arguments.args) - 1)
            del arguments.defaults[: max(surplus, 0)]
            del first[0]
    for argument in _all_arguments(arguments):
        if isinstance(argument.annotation, ast.Constant) and isinstance(argument.annotation.value, str):
            argument.annotation = ast.Name(argument.annotation.value)
    return arguments


def _all_arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None)


def signature_of(name: str, node: FunctionNode, *, is_method: bool) -> str:
    """Return `name(parameters) -> returns` as written, forward references without quotes."""
    returns = annotation_of(node.returns)
    arrow = f" -> {returns}" if returns else ""
    return f"{name}({', '.join(_shown(bound_arguments(node, is_method=is_method)))}){arrow}"


def _shown(arguments: ast.arguments) -> Iterator[str]:
    """Yield each parameter as a signature shows it, the marks `/` and `*` included."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    for at, (argument, default) in enumerate(zip(positional, defaults, strict=True), start=1):
        yield _shown_one(argument, default)
        if at == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg is not None:
        yield f"*{_shown_one(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _shown_one(argument, default)
    if arguments.kwarg is not None:
        yield f"**{_shown_one(arguments.kwarg, None)}"


def _shown_one(argument: ast.arg, default: ast.expr | None) -> str:
    return shown_parameter(argument.arg, annotation_of(argument.annotation), text_of(default))


def shown_parameter(name: str, annotation: str | None, default: str | None) -> str:
    """Return `name: annotation = default`, without what is not there."""
    typed = f"{name}: {annotation}" if annotation else name
    if default is None:
        return typed
    return f"{typed} = {default}" if annotation else f"{name}={default}"


def parameters_of(node: FunctionNode, *, is_method: bool) -> tuple[ApiParameter, ...]:
    """Return the parameters in order, then the options that the body takes out of `**kwargs`."""
    arguments = bound_arguments(node, is_method=is_method)
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults.extend(arguments.defaults)
    found = [_parameter(argument, default) for argument, default in zip(positional, defaults, strict=True)]
    if arguments.vararg is not None:
        found.append(_parameter(arguments.vararg, None, stars="*"))
    found += [
        _parameter(argument, default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        found.append(_parameter(arguments.kwarg, None, stars="**"))
        taken = {parameter.name for parameter in found}
        found += [option for option in options_in_kwargs(node, arguments.kwarg.arg) if option.name not in taken]
    return tuple(found)


def _parameter(argument: ast.arg, default: ast.expr | None, stars: str = "") -> ApiParameter:
    return ApiParameter(
        name=stars + argument.arg, type=annotation_of(argument.annotation), default=text_of(default), description=None
    )


def options_in_kwargs(node: FunctionNode, kwargs: str) -> list[ApiParameter]:
    """Return the options that the body pops or gets from its `**kwargs`: a signature does not show them."""
    found: dict[str, ApiParameter] = {}
    for call in ast.walk(node):
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=owner), attr="pop" | "get"),
                args=[ast.Constant(value=str(name)), *rest],
            ) if owner == kwargs:
                default = ast.unparse(rest[0]) if rest else None
                found.setdefault(name, ApiParameter(name=name, default=default))
            case _:
                pass
    return list(found.values())


def is_through_kwargs(parameter: ApiParameter, parameters: Sequence[ApiParameter]) -> bool:
    """Whether a parameter is one that `options_in_kwargs` found: it comes after the `**` one."""
    names = [item.name for item in parameters]
    stars = next((index for index, name in enumerate(names) if name.startswith("**")), len(names))
    return names.index(parameter.name) > stars


def fields_of(node: ast.ClassDef) -> list[tuple[ApiParameter, bool]]:
    """Return the annotated fields of a dataclass or named tuple body, each with whether `__init__` takes it."""
    found = []
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        annotation = annotation_of(item.annotation) or ""
        if "ClassVar" in annotation or annotation.endswith("KW_ONLY"):
            continue
        default, in_init = _field_default(item.value)
        found.append((ApiParameter(name=item.target.id, type=annotation, default=default), in_init))
    return found


def _field_default(value: ast.expr | None) -> tuple[str | None, bool]:
    """Return a field's default as source text and whether `__init__` takes the field."""
    match value:
        case ast.Call(func=ast.Name(id="field") | ast.Attribute(attr="field"), keywords=keywords):
            given = {keyword.arg: keyword.value for keyword in keywords}
            in_init = text_of(given.get("init")) != "False"
            if "default" in given:
                return text_of(given["default"]), in_init
            if "default_factory" in given:
                return f"{_called(given['default_factory'])}", in_init
            return None, in_init
        case _:
            return text_of(value), True


def _called(factory: ast.expr) -> str:
    return ast.unparse(factory.body) if isinstance(factory, ast.Lambda) else f"{ast.unparse(factory)}()"


def signature_from(name: str, parameters: Iterable[ApiParameter]) -> str:
    """Return the signature of a constructor that takes `parameters`, as for a dataclass."""
    return f"{name}({', '.join(shown_parameter(item.name, item.type, item.default) for item in parameters)})"


def signature_of_value(name: str, node: ast.stmt) -> str:
    """Return `name: type = value` for an assignment, a long value cut."""
    annotation = annotation_of(node.annotation) if isinstance(node, ast.AnnAssign) else None
    value = getattr(node, "value", None)
    text = ast.unparse(value) if isinstance(value, ast.expr) else "..."
    shown = "" if text == "..." else f" = {text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + '...'}"
    return f"{name}: {annotation}{shown}" if annotation else f"{name}{shown}"


def deprecation_of(node: FunctionNode | ast.ClassDef) -> str | None:
    """Return the text of a `@deprecated(...)` mark, or of an unconditional deprecation warning in the body."""
    for item in node.decorator_list:
        if isinstance(item, ast.Call) and ast.unparse(item.func).rpartition(".")[2] in ("deprecated", "_deprecated"):
            return _literal(item.args[0]) if item.args else "deprecated"
    if isinstance(node, ast.ClassDef):
        return None
    return next((text for text in map(_warned, node.body) if text), None)


def _warned(statement: ast.stmt) -> str | None:
    """Return the text of `warnings.warn(text, FutureWarning)` when the statement is one."""
    match statement:
        case ast.Expr(value=ast.Call(func=function, args=[text, *rest], keywords=keywords)):
            category = " ".join([*map(ast.unparse, rest), *(ast.unparse(keyword.value) for keyword in keywords)])
            is_warning = ast.unparse(function).endswith("warn")
            announces = "FutureWarning" in category or "DeprecationWarning" in category
            return _literal(text) if is_warning and announces else None
        case _:
            return None


def _literal(node: ast.expr) -> str:
    """Return a string expression's text; parts that only run time knows stay as `{source}`."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_literal(part) for part in parts)
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _literal(left) + _literal(right)
        case _:
            return ast.unparse(node)
