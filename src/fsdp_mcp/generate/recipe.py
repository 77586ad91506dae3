"""What a recipe is: the options it reads, the templates it is made of, and what it says about its choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from fsdp_mcp.models import Value

Strategy = Literal["fsdp2", "hsdp", "fsdp1", "ddp", "ddp_join"]


class Choice(Value):
    """One choice that the code makes, and why."""

    choice: str = Field(description="What the code does")
    why: str = Field(description="The reason, in a sentence")


@dataclass(frozen=True)
class Options:
    """What was asked for; the fields are the arguments of generate_training_code, defaults included."""

    strategy: Strategy
    what: Literal["script", "snippet"] = "script"
    model: str | None = None
    block_classes: tuple[str, ...] = ()
    project_dir: str | None = None
    precision: Literal["fp32", "bf16"] = "bf16"
    reshard_after_forward: bool | int | None = None
    cpu_offload: bool = False
    activation_checkpointing: Literal["none", "full"] = "none"
    gradient_accumulation_steps: int = 1
    clip_grad_norm: float | None = 1.0
    checkpoint: Literal["none", "dcp"] = "none"
    meta_init: bool = False
    nodes: int = 1
    devices_per_node: int = 8
    shard_size: int | None = None
    launcher: Literal["torchrun", "slurm"] = "torchrun"
    join_example: Literal["ddp", "custom_joinable"] = "ddp"
    seed: int = 0
    torch_version: str | None = None

    @property
    def world_size(self) -> int:
        """Ranks of the whole job."""
        return self.nodes * self.devices_per_node

    @property
    def shard_group(self) -> int:
        """Ranks that share one copy of the model under fsdp2 and hsdp."""
        if self.strategy != "hsdp":
            return self.world_size
        return self.shard_size or self.devices_per_node

    @property
    def reshard_size(self) -> int | None:
        """The integer form of reshard_after_forward, or None."""
        value = self.reshard_after_forward
        return None if value is None or isinstance(value, bool) else value

    @property
    def recompute(self) -> bool:
        """Whether blocks compute their activations again in the backward pass."""
        return self.activation_checkpointing == "full"


@dataclass(frozen=True)
class Part:
    """A block that configures training: its template, and where it goes in a script of the reader's own."""

    where: str
    template: str


@dataclass(frozen=True)
class Recipe:
    """One strategy as code.

    Args:
        strategy: the name in generate_training_code.
        title: first line of the script's docstring.
        parts: the blocks that configure sharding, precision, offload and the training step, in script order.
        main: the template of `main` and the entry point.
        methods: qualified names of the methods that the templates call on objects, which no import shows.
        explain: why the code is as it is, for these options.
        caveats: what to watch for, for these options.
    """

    strategy: Strategy
    title: str
    parts: Callable[[Options], tuple[Part, ...]]
    main: str
    methods: Callable[[Options], tuple[str, ...]]
    explain: Callable[[Options], tuple[Choice, ...]]
    caveats: Callable[[Options], tuple[str, ...]]


DEFAULT_SIZES = {"batch_size": 8, "sequence_length": 64, "dim": 128, "layers": 4}
"""Defaults of the script's size arguments: small enough for a first run on a CPU."""
