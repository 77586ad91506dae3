"""What the marks and placeholders of the templates stand for, given the options."""

from __future__ import annotations

from fsdp_mcp.generate.recipe import DEFAULT_SIZES, Options
from fsdp_mcp.generate.versions import needs_prototype


def template_flags(options: Options) -> frozenset[str]:
    """Return the flags that the marks of the templates ask for."""
    reshard = options.reshard_after_forward
    fully_sharded = options.strategy in ("fsdp2", "hsdp")
    data_parallel = options.strategy in ("ddp", "ddp_join")
    bf16 = options.precision == "bf16"
    states = {
        options.strategy: True,
        "fsdp2": fully_sharded,
        "ddp": data_parallel,
        "join": options.strategy == "ddp_join",
        "builtin": options.model is None,
        "blocks": options.model is None or bool(options.block_classes),
        "bf16": bf16,
        "autocast": bf16 and data_parallel,
        "offload": options.cpu_offload,
        "recompute": options.recompute,
        "accumulate": options.gradient_accumulation_steps > 1,
        "clip": options.clip_grad_norm is not None,
        "dcp": options.checkpoint == "dcp",
        "meta": options.meta_init,
        "reshard_none": reshard is None,
        "reshard_bool": isinstance(reshard, bool),
        "reshard_int": options.reshard_size is not None,
        "sized": options.strategy == "hsdp" or options.reshard_size is not None,
        "custom": options.join_example == "custom_joinable",
        "prototype": fully_sharded and needs_prototype(options.torch_version),
    }
    return frozenset(flag for flag, on in states.items() if on)


def template_values(options: Options) -> dict[str, object]:
    """Return the values that the placeholders of the templates stand for."""
    return {
        **DEFAULT_SIZES,
        "seed": options.seed,
        "accumulation": options.gradient_accumulation_steps,
        "clip": options.clip_grad_norm,
        "shard_size": options.shard_group,
        "reshard": options.reshard_after_forward,
        "block_classes": options.block_classes,
    }
