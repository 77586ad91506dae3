"""The recipes fsdp2 and hsdp: `fully_shard` over one shard group, or over replicated shard groups."""

from __future__ import annotations

from fsdp_mcp.generate import blocks
from fsdp_mcp.generate.recipe import Choice, Options, Part, Recipe
from fsdp_mcp.generate.versions import PROTOTYPE_MODULE, PUBLIC_MODULE, needs_prototype

SHARD = '''
import argparse  #? sized
import torch
import torch.distributed as dist
from functools import partial  #? recompute
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard  #? !prototype
from torch.distributed.fsdp import MixedPrecisionPolicy  #? bf16 !prototype
from torch.distributed.fsdp import CPUOffloadPolicy  #? offload !prototype
from torch.distributed._composable.fsdp import fully_shard  #? prototype
from torch.distributed._composable.fsdp import MixedPrecisionPolicy  #? bf16 prototype
from torch.distributed._composable.fsdp import CPUOffloadPolicy  #? offload prototype
from torch.utils.checkpoint import checkpoint  #? recompute


def shard_model(model: nn.Module, args: argparse.Namespace, device: torch.device) -> nn.Module:  #? sized
def shard_model(model: nn.Module, device: torch.device) -> nn.Module:  #? !sized
    """Shard each block, then the rest with the root: a block's parameters are whole only while it runs."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("shard",))  #? !hsdp
    copies = dist.get_world_size() // args.shard_size  #? hsdp
    mesh = init_device_mesh(device.type, (copies, args.shard_size), mesh_dim_names=("replicate", "shard"))  #? hsdp
    options = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),  #? bf16
        "offload_policy": CPUOffloadPolicy(pin_memory=device.type != "cpu"),  #? offload
    }
    blocks = [module for module in model.modules() if isinstance(module, Block)]  #? builtin
    names = $block_classes  #? !builtin
    blocks = [module for module in model.modules() if type(module).__name__ in names]  #? !builtin
    if not blocks:  #? !builtin
        raise ValueError(f"{type(model).__name__} has no module of a class in {names}")  #? !builtin
    for block in reversed(blocks):  # children before their parents
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # keeps inputs only  #? recompute
        fully_shard(block, **options)  #? reshard_none
        fully_shard(block, reshard_after_forward=$reshard, **options)  #? reshard_bool
        fully_shard(block, reshard_after_forward=args.reshard_after_forward, **options)  #? reshard_int
    fully_shard(model, **options)
    return model
'''

INITIAL_WEIGHTS = '''
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict


def load_initial_weights(model: nn.Module, args: argparse.Namespace, device: torch.device) -> None:
    """Allocate the shards and fill them with the weights of rank 0, the only one that builds the whole model."""
    model.to_empty(device="cpu")  # where offloaded shards live  #? offload
    model.to_empty(device=device)  #? !offload
    weights = Transformer(args.dim, args.layers).state_dict() if dist.get_rank() == 0 else {}  #? builtin
    weights = build_model().state_dict() if dist.get_rank() == 0 else {}  #? !builtin
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
'''


def _parts(options: Options) -> tuple[Part, ...]:
    """Return the blocks that shard, fill and step the model."""
    sharding = Part("after the model is built and before the optimizer is made", SHARD)
    weights = Part("right after sharding: the model has no weights until then", INITIAL_WEIGHTS)
    return (sharding, *((weights,) if options.meta_init else ()), blocks.step_part(options))


def _methods(options: Options) -> tuple[str, ...]:
    """Return the methods that the templates call on the model and on its gradients' norm."""
    prototype = needs_prototype(options.torch_version)
    home, tensor = (
        (PROTOTYPE_MODULE, "torch.distributed._tensor") if prototype else (PUBLIC_MODULE, "torch.distributed.tensor")
    )
    used = {
        f"{home}.FSDPModule.set_requires_gradient_sync": options.gradient_accumulation_steps > 1,
        f"{tensor}.DTensor.full_tensor": options.clip_grad_norm is not None,
    }
    return tuple(name for name, is_used in used.items() if is_used)


def _explain(options: Options) -> tuple[Choice, ...]:
    """Say why the model is sharded this way."""
    group = options.shard_group
    layout = (
        Choice(
            choice=f"mesh replicate x shard = {options.world_size // group} x {group}",
            why="parameters are gathered inside a shard group only; across groups only gradient shards are all-reduced",
        )
        if options.strategy == "hsdp"
        else Choice(
            choice=f"one shard group of {group} ranks",
            why="parameters, gradients and optimizer state take 1/ranks of their memory on each rank",
        )
    )
    blockwise = Choice(
        choice="fully_shard on each block, then on the root",
        why="each call is one communication group: the next block is gathered while this one computes",
    )
    choices = [layout, blockwise, *_explain_reshard(options)]
    if options.precision == "bf16":
        why = "bf16 halves gathered bytes; fp32 reduction keeps small gradients; the optimizer sees fp32 shards"
        choices.append(Choice(choice="MixedPrecisionPolicy bf16, reduced in fp32", why=why))
    if options.cpu_offload:
        why = "shards and optimizer state live in host memory, at the price of copies and a step on the CPU"
        choices.append(Choice(choice="CPUOffloadPolicy, pinned only with an accelerator", why=why))
    if options.meta_init:
        why = "no rank but 0 ever holds the whole model, and all shards come from one draw"
        choices.append(Choice(choice="meta device, then a broadcast of rank 0's weights", why=why))
    if options.gradient_accumulation_steps > 1:
        why = "gradients are reduce-scattered once per optimizer step; until then they stay unsharded in memory"
        choices.append(Choice(choice="set_requires_gradient_sync(last)", why=why))
    return tuple(choices)


def _explain_reshard(options: Options) -> tuple[Choice, ...]:
    """Say what the value of reshard_after_forward buys."""
    value = options.reshard_after_forward
    if value is None:
        why = "the default: blocks are freed after forward and gathered again in backward, the root stays gathered"
        return (Choice(choice="reshard_after_forward left out", why=why),)
    if value is True:
        why = "frees each block after forward; backward gathers it again"
    elif value is False:
        why = "keeps blocks whole from forward to backward: one gather less per step, for more memory"
    else:
        why = f"after forward a block shrinks to shards over {value} ranks, so that backward gathers among those alone"
    return (Choice(choice=f"reshard_after_forward={value!r} on blocks", why=why),)


def _caveats(options: Options) -> tuple[str, ...]:
    """Say what to watch for."""
    notes = ["Checkpoint, clip and compute norms on all ranks together: parameters are DTensors, so these communicate."]
    if options.meta_init:
        notes.append(
            "to_empty leaves buffers that no state dict holds (persistent=False) uninitialised: fill those yourself."
            " Drawing weights per rank instead gives every rank of a CPU mesh the same shard."
        )
    if options.cpu_offload:
        notes.append("Gradients of offloaded shards are on the CPU: clipping needs the Gloo half of the process group.")
    if options.strategy == "hsdp":
        notes.append("torchrun numbers ranks node by node: keep the shard size a divisor of the devices of a node.")
    return tuple(notes)


FSDP2 = Recipe(
    strategy="fsdp2",
    title="Train with FSDP2: fully_shard over all ranks.",
    parts=_parts,
    main=blocks.MAIN,
    methods=_methods,
    explain=_explain,
    caveats=_caveats,
)

HSDP = Recipe(
    strategy="hsdp",
    title="Train with HSDP: fully_shard inside shard groups, replicas across them.",
    parts=_parts,
    main=blocks.MAIN,
    methods=_methods,
    explain=_explain,
    caveats=_caveats,
)
