"""Calls functions as soon as torch is imported: now, or when the script does it."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

_waiting: list[Callable[[], None]] = []


def when_torch_is_imported(then: Callable[[], None]) -> None:
    """Call `then` at once where torch is imported, else right after the script has imported it.

    Importing it ourselves would be too early for a script that first sets variables which torch reads.
    """
    if "torch" in sys.modules:
        then()
        return
    if not _waiting:
        sys.meta_path.insert(0, _TorchFinder())
    _waiting.append(then)


class _TorchFinder:
    """Finds torch as it would have been found, and calls what waits for it when it has been imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> Any:
        """Return the spec with a loader that calls the functions at its end; None for other modules."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: types.ModuleType) -> None:
                execute(module)
                while _waiting:
                    _waiting.pop(0)()

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec
