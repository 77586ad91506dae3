"""The recipes: one row for each strategy."""

from __future__ import annotations

from fsdp_mcp.generate.ddp import DDP
from fsdp_mcp.generate.ddp_join import DDP_JOIN
from fsdp_mcp.generate.fsdp1 import FSDP1
from fsdp_mcp.generate.fsdp2 import FSDP2, HSDP
from fsdp_mcp.generate.recipe import Recipe

RECIPES: tuple[Recipe, ...] = (FSDP2, HSDP, FSDP1, DDP, DDP_JOIN)


def find_recipe(strategy: str) -> Recipe:
    """Return the recipe of that strategy."""
    return next(recipe for recipe in RECIPES if recipe.strategy == strategy)
