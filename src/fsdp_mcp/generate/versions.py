"""Which torch a script needs, by the recorded history of the APIs it uses."""

from __future__ import annotations

from collections.abc import Iterable

from fsdp_mcp.api.history import load_history, oldest_torch
from fsdp_mcp.errors import BadArgument
from fsdp_mcp.releases import release_numbers

PROTOTYPE_MODULE = "torch.distributed._composable.fsdp"
PUBLIC_MODULE = "torch.distributed.fsdp"


def oldest(names: Iterable[str]) -> str:
    """Return the first torch release, X.Y, that has all of these APIs and parameters."""
    return oldest_torch(recorded for name in names for recorded in _recorded(name))


def _recorded(name: str) -> tuple[str, ...]:
    """Return the name as the history has it: itself, else the API that it belongs to, else nothing.

    The history holds what is distributed; the rest of torch that scripts use (torch.nn, torch.optim) is older.
    """
    api = name.partition("#")[0]
    candidates = (name, api, api.rpartition(".")[0])
    return tuple(candidate for candidate in candidates if load_history().first(candidate) is not None)[:1]


def needs_prototype(torch_version: str | None) -> bool:
    """Return whether that torch has fully_shard in its prototype module only."""
    return torch_version is not None and is_older(torch_version, oldest([f"{PUBLIC_MODULE}.fully_shard"]))


def check_version(names: Iterable[str], torch_version: str | None) -> None:
    """Raise BadArgument when an API is newer than the torch that was asked for."""
    if torch_version is None:
        return
    needed = {name: oldest([name]) for name in names}
    newer = [name for name, since in needed.items() if is_older(torch_version, since)]
    if newer:
        worst = max(newer, key=lambda name: release_numbers(needed[name]))
        raise BadArgument(
            f"torch {torch_version} is too old: {_shown(worst)} needs torch {needed[worst]} or newer."
            " Give such a torch_version, or leave out the option that uses it."
        )


def _shown(name: str) -> str:
    """Return `api(parameter)` for the address of a parameter."""
    api, _, parameter = name.partition("#param-")
    return f"{api}({parameter})" if parameter else api


def is_older(version: str, than: str) -> bool:
    """Return whether the release X.Y of `version` comes before that of `than`."""
    return release_numbers(version) < release_numbers(than)
