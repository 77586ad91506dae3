"""The recipe fsdp1: FullyShardedDataParallel, which upstream has deprecated in favour of `fully_shard`."""

from __future__ import annotations

from fsdp_mcp.generate import blocks
from fsdp_mcp.generate.recipe import Choice, Options, Part, Recipe

SHARD = '''
import torch
from functools import partial  #? recompute
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp import MixedPrecision  #? bf16
from torch.distributed.fsdp import CPUOffload  #? offload
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  #? blocks
from torch.utils.checkpoint import checkpoint  #? recompute


def shard_model(model: nn.Module, device: torch.device) -> FullyShardedDataParallel:
    """Wrap each block and the root: a block's parameters are whole only while it runs."""  #? blocks
    """Wrap the model as one unit: all its parameters are whole while it runs."""  #? !blocks
    blocks = [module for module in model.modules() if isinstance(module, Block)]  #? builtin
    names = $block_classes  #? blocks !builtin
    blocks = [module for module in model.modules() if type(module).__name__ in names]  #? blocks !builtin
    if not blocks:  #? blocks !builtin
        raise ValueError(f"{type(model).__name__} has no module of a class in {names}")  #? blocks !builtin
    for block in blocks:  #? recompute
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # keeps inputs only  #? recompute
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({type(block) for block in blocks}),  #? blocks
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),  #? bf16
        cpu_offload=CPUOffload(offload_params=device.type != "cpu"),  # needs an accelerator  #? offload
        device_id=device,
        use_orig_params=True,
    )
'''


def _parts(options: Options) -> tuple[Part, ...]:
    """Return the blocks that wrap and step the model."""
    return (Part("after the model is built and before the optimizer is made", SHARD), blocks.step_part(options))


def _methods(options: Options) -> tuple[str, ...]:
    """Return the methods that the templates call on the wrapped model."""
    wrapper = "torch.distributed.fsdp.FullyShardedDataParallel"
    used = {
        f"{wrapper}.no_sync": options.gradient_accumulation_steps > 1,
        f"{wrapper}.clip_grad_norm_": options.clip_grad_norm is not None,
    }
    return tuple(name for name, is_used in used.items() if is_used)


def _explain(options: Options) -> tuple[Choice, ...]:
    """Say why the model is wrapped this way."""
    choices = []
    if options.model is None or options.block_classes:
        why = "one unit per block: the others stay sharded while it runs"
        choices.append(Choice(choice="ModuleWrapPolicy over the block classes", why=why))
    why = "parameters keep their names and shapes, so that optimizer groups and checkpoints match the plain model"
    choices.append(Choice(choice="use_orig_params=True", why=why))
    if options.precision == "bf16":
        why = "bf16 halves gathered bytes; fp32 reduction keeps small gradients; the optimizer sees fp32 shards"
        choices.append(Choice(choice="MixedPrecision bf16, reduced in fp32", why=why))
    if options.cpu_offload:
        why = "shards and optimizer state live in host memory; FSDP1 can do that with an accelerator only"
        choices.append(Choice(choice="CPUOffload when there is an accelerator", why=why))
    if options.gradient_accumulation_steps > 1:
        why = "gradients are reduce-scattered once per optimizer step; until then they stay unsharded in memory"
        choices.append(Choice(choice="no_sync for all but the last micro-batch", why=why))
    return tuple(choices)


def _caveats(options: Options) -> tuple[str, ...]:
    """Say that FSDP1 is deprecated, and what else to watch for."""
    notes = ["FSDP1 is deprecated upstream in favour of fully_shard: strategy='fsdp2' gives the counterpart."]
    if options.clip_grad_norm is not None:
        notes.append("Clip with the model's own clip_grad_norm_: torch.nn.utils would use each rank's local norm.")
    if options.model is not None and not options.block_classes:
        notes.append("Without block_classes the model is one unit: every rank gathers all parameters at once.")
    return tuple(notes)


FSDP1 = Recipe(
    strategy="fsdp1",
    title="Train with FSDP1: FullyShardedDataParallel, deprecated upstream in favour of fully_shard.",
    parts=_parts,
    main=blocks.MAIN,
    methods=_methods,
    explain=_explain,
    caveats=_caveats,
)
