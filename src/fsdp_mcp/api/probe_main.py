"""Runs in the target interpreter: prints the docstrings of torch's C++ distributed types as one JSON line.

Standard library and torch only; the server never imports this file, it hands the text to `python -c`.
"""

from __future__ import annotations

import importlib
import json
import sys
import types

MODULES = ("torch._C._distributed_c10d", "torch._C._distributed_rpc", "torch._C._distributed_autograd")


def docstring(value: object) -> str:
    """Return the docstring of an object, empty when it has none of its own."""
    text = getattr(value, "__doc__", None)
    return text if isinstance(text, str) else ""


def members(owner: type) -> dict[str, str]:
    """Return the docstrings of what a class defines itself, its constructor included."""
    found = {name: docstring(getattr(owner, name, None)) for name in vars(owner) if not name.startswith("_")}
    if "__init__" in vars(owner):
        found["__init__"] = docstring(vars(owner)["__init__"])
    return found


def collect(module_name: str) -> dict[str, str]:
    """Return the docstrings of a module's classes, functions and class members by their path."""
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        return {}
    found = {}
    for name, value in vars(module).items():
        if name.startswith("__") or isinstance(value, types.ModuleType):
            continue
        path = f"{module_name}.{name}"
        found[path] = docstring(value)
        if isinstance(value, type):
            found.update({f"{path}.{member}": text for member, text in members(value).items()})
    return {path: text for path, text in found.items() if text.strip()}


def main() -> None:
    """Import torch and print what was found."""
    importlib.import_module("torch.distributed")
    found: dict[str, str] = {}
    for module_name in MODULES:
        found.update(collect(module_name))
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
