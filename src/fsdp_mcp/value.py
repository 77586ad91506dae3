"""The base of every value that crosses a module boundary."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value without surplus fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
