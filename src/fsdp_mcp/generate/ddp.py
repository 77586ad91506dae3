"""The recipe ddp: DistributedDataParallel, a whole model on every rank."""

from __future__ import annotations

from fsdp_mcp.generate import blocks
from fsdp_mcp.generate.recipe import Choice, Options, Part, Recipe

WRAP = '''
import torch
from functools import partial  #? recompute
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint  #? recompute


def wrap_model(model: nn.Module, device: torch.device) -> DistributedDataParallel:
    """Put the whole model on the device; DDP copies the weights of rank 0 and averages gradients over the ranks."""
    blocks = [module for module in model.modules() if isinstance(module, Block)]  #? recompute builtin
    names = $block_classes  #? recompute !builtin
    blocks = [module for module in model.modules() if type(module).__name__ in names]  #? recompute !builtin
    if not blocks:  #? recompute !builtin
        raise ValueError(f"{type(model).__name__} has no module of a class in {names}")  #? recompute !builtin
    for block in blocks:  #? recompute
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # keeps inputs only  #? recompute
    device_ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model.to(device), device_ids=device_ids, gradient_as_bucket_view=True)
'''


def wrap_part() -> Part:
    """Return the block that wraps the model in DDP."""
    return Part("after the model is built and before the optimizer is made", WRAP)


def explain_wrap(options: Options) -> tuple[Choice, ...]:
    """Say why the model is wrapped this way."""
    why = "every rank has a whole copy; gradients are all-reduced in buckets while backward still runs"
    choices = [
        Choice(choice="DistributedDataParallel", why=why),
        Choice(choice="gradient_as_bucket_view=True", why="gradients share the memory of the buckets they travel in"),
    ]
    if options.precision == "bf16":
        why = (
            "weights, gradients and their reduction stay fp32; matrix products run in bf16, which needs no loss scaling"
        )
        choices.append(Choice(choice="autocast to bf16", why=why))
    if options.gradient_accumulation_steps > 1:
        why = "gradients are all-reduced once per optimizer step"
        choices.append(Choice(choice="no_sync for all but the last micro-batch", why=why))
    return tuple(choices)


def methods(options: Options) -> tuple[str, ...]:
    """Return the methods that the templates call on the wrapped model."""
    used = options.gradient_accumulation_steps > 1
    return ("torch.nn.parallel.DistributedDataParallel.no_sync",) if used else ()


def _parts(options: Options) -> tuple[Part, ...]:
    """Return the blocks that wrap and step the model."""
    return (wrap_part(), blocks.step_part(options))


def _caveats(_: Options) -> tuple[str, ...]:
    """Say what to watch for."""
    return ("Model, gradients and optimizer state have to fit on each device; when they do not, take fsdp2.",)


DDP = Recipe(
    strategy="ddp",
    title="Train with DDP: a whole model on every rank, gradients averaged.",
    parts=_parts,
    main=blocks.MAIN,
    methods=methods,
    explain=explain_wrap,
    caveats=_caveats,
)
