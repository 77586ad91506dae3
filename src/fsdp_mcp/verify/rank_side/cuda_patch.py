"""Replaces functions, classes and attributes of torch, also where modules of torch have copied them."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

_compiler = getattr(torch, "compiler", None)
is_compiling: Callable[[], bool] = getattr(_compiler, "is_dynamo_compiling", None) or (lambda: False)
"""True only to Dynamo, which then traces around what this guards: it cannot follow locks and frames. Since 2.2."""

replacements: list[Callable[..., Any]] = []
"""What stands in torch now in place of its own functions."""


def is_cuda(value: object) -> bool:
    """Return whether a value names a CUDA device: "cuda", "cuda:1" or such a torch.device."""
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return isinstance(value, torch.device) and value.type == "cuda"


def is_index(value: object) -> bool:
    """Return whether a value is a device index; True and False are no indices."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_device(value: object) -> bool:
    """Return whether a value stands for a CUDA device, by name or by index."""
    return is_cuda(value) or is_index(value)


def cpu_for(device: Any) -> Any:
    """Return the CPU in place of a CUDA device or index, and anything else as it is."""
    return "cpu" if is_device(device) else device


def shown(device: object) -> str:
    """Return a device without its index, which differs between ranks."""
    return '"cuda"' if is_cuda(device) else "index"


def called_by_torch(depth: int = 2) -> bool:
    """Return whether the caller `depth` frames up is a module of torch."""
    if is_compiling():
        return False
    name = str(sys._getframe(depth).f_globals.get("__name__", ""))
    return name == "torch" or name.startswith("torch.")


def wrap(owner: Any, name: str, wrapper: Callable[..., Any], *, copies_below: str | None = None) -> None:
    """Replace `owner.name` by a function that calls `wrapper(original, *args, **kwargs)`, if there is such a name.

    Args:
        owner: a module or a class.
        name: of a function there.
        wrapper: what is called in its place.
        copies_below: a package whose modules have copies of the function under the same name, replaced as well.
    """
    original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    replacements.append(replaced)
    setattr(owner, name, replaced)
    if copies_below:
        replace_copies(copies_below, name, original, replaced)


def replace_copies(package: str, name: str, original: Any, replacement: Any) -> None:
    """Replace an object in all modules of a package that hold it under this name."""
    for path, module in list(sys.modules.items()):
        held = getattr(module, "__dict__", {}).get(name)
        if held is original and f"{path}.".startswith(f"{package}."):
            setattr(module, name, replacement)


def changed(
    original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **changes: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with some replaced, whether they were given by position or by name.

    Args:
        original: what will be called.
        args: by position.
        kwargs: by name.
        changes: parameter name to a function of the value given.
    """
    positions = _positions(original)
    for name, change in changes.items():
        at = positions.get(name)
        if name in kwargs:
            kwargs = {**kwargs, name: change(kwargs[name])}
        elif at is not None and len(args) > at:
            args = (*args[:at], change(args[at]), *args[at + 1 :])
    return args, kwargs


@functools.lru_cache(maxsize=None)  # noqa: UP033, Python 3.8
def _positions(function: Any) -> dict[str, int]:
    """Return the place of each parameter that may be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: at for at, parameter in enumerate(parameters) if parameter.kind in kinds}


def watch_attributes(module: types.ModuleType, values: dict[str, tuple[Any, Callable[[], None]]]) -> None:
    """Let attributes of a module read otherwise for callers outside of torch, and tell each such read.

    Args:
        module: of torch.
        values: attribute to what it reads then, and what to call on a read.
    """

    def property_of(name: str, value: Any, note: Callable[[], None]) -> property:
        held = module.__dict__.get(name)

        def read(_: Any) -> Any:
            if called_by_torch():
                return held
            note()
            return value

        return property(read)

    attributes = {name: property_of(name, *value) for name, value in values.items()}
    module.__class__ = type("Module", (type(module),), attributes)


def stand_in_class(original: Any, make: Callable[..., Any], also: tuple[type, ...] = ()) -> Any:
    """Return a class that makes something else when called, of which the objects of the original are instances.

    Args:
        original: a class that no torch function mode sees.
        make: called with the arguments in its place.
        also: further classes whose objects count as instances.
    """

    class StandIn(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, (original, *also))

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, (original, *also))

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs)

        def __getattr__(cls, name: str) -> Any:
            return getattr(original, name)

    return StandIn(original.__name__, (), {"__doc__": original.__doc__, "__module__": original.__module__})
