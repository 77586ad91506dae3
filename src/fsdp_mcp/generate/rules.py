"""Which options go together. Each rule returns what is wrong and what would work, or None."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass, fields

from fsdp_mcp.errors import BadArgument
from fsdp_mcp.generate.recipe import Options

_FACTORY = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<factory>[^\W\d]\w*)")
_RELEASE = re.compile(r"\d{1,3}\.\d{1,3}(\.\d{1,3})?", re.ASCII)
_DEFAULTS = {item.name: item.default for item in fields(Options) if item.name != "strategy"}


@dataclass(frozen=True)
class StrategyOption:
    """An option that only some strategies can use."""

    name: str
    strategies: tuple[str, ...]
    reason: str


STRATEGY_OPTIONS: tuple[StrategyOption, ...] = (
    StrategyOption("reshard_after_forward", ("fsdp2", "hsdp"), "it is an argument of fully_shard"),
    StrategyOption("cpu_offload", ("fsdp2", "hsdp", "fsdp1"), "DDP keeps model and optimizer on the device"),
    StrategyOption("meta_init", ("fsdp2", "hsdp"), "the model is built on every rank before it is wrapped"),
    StrategyOption("shard_size", ("hsdp",), "only hsdp has a shard group apart from the whole job"),
    StrategyOption("join_example", ("ddp_join",), "only ddp_join has examples to choose from"),
)


def check(options: Options) -> None:
    """Raise BadArgument for the first rule that the options break."""
    for rule in RULES:
        message = rule(options)
        if message:
            raise BadArgument(message)


def _strategy_options(options: Options) -> str | None:
    """Refuse an option that the strategy cannot use, unless it has its default."""
    for row in STRATEGY_OPTIONS:
        value = getattr(options, row.name)
        if options.strategy not in row.strategies and value != _DEFAULTS[row.name]:
            return (
                f"{row.name}={value!r} does not apply to {options.strategy}: {row.reason}."
                f" Leave it out, or use strategy {_either(row.strategies)}."
            )
    return None


def _model_name(options: Options) -> str | None:
    """Refuse a model that is not `package.module:factory`, or whose module the script would hide."""
    if options.model is None:
        return None
    match = _FACTORY.fullmatch(options.model)
    if match is None or any(keyword.iskeyword(part) for part in re.split(r"[.:]", options.model)):
        return f"model: got {options.model!r}, expected package.module:factory, such as my_project.model:build."
    if match["module"].partition(".")[0] == "train":
        return f"model: {options.model!r} would be hidden by the generated train.py. Give that module another name."
    return None


def _model_companions(options: Options) -> str | None:
    """Refuse block_classes and project_dir without a model to apply them to."""
    if options.model is not None:
        return None
    if options.block_classes:
        return "block_classes needs model: the built-in transformer has its own blocks. Leave it out, or give model."
    if options.project_dir is not None:
        return "project_dir needs model: the built-in transformer imports nothing. Leave it out, or give model."
    return None


def _block_classes(options: Options) -> str | None:
    """Require names of block classes where the code looks for them, and refuse them where it does not."""
    bad = [name for name in options.block_classes if not name.isidentifier() or keyword.iskeyword(name)]
    if bad:
        return f"block_classes: {bad[0]!r} is no class name. Give bare names, such as 'Block', without a module."
    if options.model is None:
        return None
    sharded = options.strategy in ("fsdp2", "hsdp", "fsdp1")
    if options.block_classes and not sharded and not options.recompute:
        return (
            f"block_classes does not apply to {options.strategy} without activation checkpointing: nothing is done per"
            " block. Leave it out, or set activation_checkpointing='full'."
        )
    if not options.block_classes and (options.recompute or options.strategy in ("fsdp2", "hsdp")):
        reason = "activation_checkpointing='full' recomputes" if options.recompute else f"{options.strategy} shards"
        return f"block_classes is missing: {reason} block by block. Give the class names, such as ['TransformerBlock']."
    return None


def _shard_groups(options: Options) -> str | None:
    """Require two or more shard groups of two or more ranks for hsdp."""
    if options.strategy != "hsdp":
        return None
    world, group = options.world_size, options.shard_group
    if world % group:
        return f"shard_size={group} does not divide the {world} ranks. Use {_either(divisors(world))}."
    if world == group:
        smaller = divisors(world)
        use = f"set shard_size to {_either(smaller)}" if smaller else "take more devices"
        return f"hsdp needs two shard groups; one of {group} ranks is the whole job. Use nodes=2, {use}, or use fsdp2."
    if group == 1:
        return "A shard group of 1 rank shards nothing. Use shard_size=2 or more, or strategy ddp."
    return None


def _reshard_size(options: Options) -> str | None:
    """Require a proper divisor of the shard group for an integer reshard_after_forward."""
    size, group = options.reshard_size, options.shard_group
    if size is None or size in divisors(group):
        return None
    accepted = _either((*divisors(group), "true", "false"))
    if size > 1 and group % size:
        return f"reshard_after_forward={size} does not divide the shard group of {group}. Use {accepted}."
    return (
        f"reshard_after_forward={size}: an integer has to be more than 1 and less than the shard group of {group}"
        f" (true reshards over the whole group, false does not reshard). Use {accepted}."
    )


def _snippet(options: Options) -> str | None:
    """Refuse a launcher for a snippet, which is part of a script that the reader launches."""
    if options.what == "snippet" and options.launcher != _DEFAULTS["launcher"]:
        return f"launcher={options.launcher!r} does not apply to a snippet, which has no launch. Use what='script'."
    return None


def _torch_release(options: Options) -> str | None:
    """Refuse a torch_version that is not X.Y or X.Y.Z."""
    if options.torch_version is None or _RELEASE.fullmatch(options.torch_version):
        return None
    return f"torch_version: got {options.torch_version!r}, expected a release as X.Y or X.Y.Z, or null."


RULES: tuple[Callable[[Options], str | None], ...] = (
    _strategy_options,
    _model_name,
    _model_companions,
    _block_classes,
    _shard_groups,
    _reshard_size,
    _snippet,
    _torch_release,
)


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of `number` that are neither 1 nor the number itself."""
    return tuple(candidate for candidate in range(2, number // 2 + 1) if number % candidate == 0)


def _either(values: tuple[object, ...]) -> str:
    """Return the values as `a, b or c`."""
    words = [str(value) for value in values]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
