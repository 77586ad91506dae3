"""generate_training_code: complete training scripts, proven on CPU Gloo before they are handed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from fsdp_mcp.generate.recipe import Options, Strategy
from fsdp_mcp.generate.result import TrainingCode
from fsdp_mcp.lab import Program
from fsdp_mcp.run_report import RunReport

What = Annotated[
    Literal["script", "snippet"],
    Field(description="snippet: only what configures sharding, precision, optimizer, clipping"),
]
Model = Annotated[str | None, Field(description="package.module:factory, no arguments. null: built-in transformer")]
BlockClasses = Annotated[
    list[str],
    Field(description="Class names of its repeated blocks; required with model by fsdp2, hsdp, checkpointing"),
]
ReshardAfterForward = Annotated[
    bool | int | None, Field(description="fsdp2, hsdp. int: divisor of the shard group. null: torch's default")
]
Recompute = Annotated[
    Literal["none", "full"], Field(description="full: blocks recompute their activations in backward")
]
ClipNorm = Annotated[float | None, Field(gt=0, allow_inf_nan=False, description="null: no clipping")]
ShardSize = Annotated[
    int | None, Field(ge=1, description="hsdp: ranks that share one model copy. null: devices_per_node")
]


def generate_training_code(
    strategy: Annotated[Strategy, Field(description="hsdp: shards within, replicates across groups")],
    *,
    what: What = "script",
    model: Model = None,
    block_classes: BlockClasses = [],  # noqa: B006
    project_dir: Annotated[str | None, Field(description="Folder that the model is imported from")] = None,
    precision: Annotated[Literal["fp32", "bf16"], Field(description="bf16 reduces gradients in fp32")] = "bf16",
    reshard_after_forward: ReshardAfterForward = None,
    cpu_offload: Annotated[bool, Field(description="fsdp2, hsdp, fsdp1")] = False,
    activation_checkpointing: Recompute = "none",
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=4096)] = 1,
    clip_grad_norm: ClipNorm = 1.0,
    checkpoint: Annotated[Literal["none", "dcp"], Field(description="dcp: sharded save and resume")] = "none",
    meta_init: Annotated[bool, Field(description="fsdp2, hsdp: only rank 0 builds the whole model")] = False,
    nodes: Annotated[int, Field(ge=1, le=10_000)] = 1,
    devices_per_node: Annotated[int, Field(ge=1, le=1024, description="GPUs, one rank each")] = 8,
    shard_size: ShardSize = None,
    launcher: Literal["torchrun", "slurm"] = "torchrun",
    join_example: Annotated[Literal["ddp", "custom_joinable"], Field(description="ddp_join")] = "ddp",
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0,
    torch_version: Annotated[str | None, Field(description="X.Y. null: the installed one")] = None,
    verify: Annotated[bool, Field(description="Run it on CPU Gloo ranks first")] = True,
    output_dir: Annotated[str | None, Field(description="Write the files there, over none that exists")] = None,
    prove: Callable[[Program], RunReport] | None = None,
) -> TrainingCode:
    """Write a complete training script for FSDP2, HSDP, FSDP1, DDP or DDP with Join, and run it before you get it.

    The script runs unchanged on GPUs (NCCL) and CPU (Gloo). The receipt shows a small run of it on 2 to 8 Gloo ranks,
    with falling loss and, with a checkpoint, a stop and a resume. Options that do not fit are refused with what would.

    Your own model maps token ids (batch, sequence) to logits (batch, sequence, vocabulary). For any other, its module
    defines make_batch(number, batch_size) -> (inputs, targets) and compute_loss(outputs, targets).
    To run code of your own, use run_on_gloo.
    """
    options = Options(
        strategy=strategy,
        what=what,
        model=model,
        block_classes=tuple(block_classes),
        project_dir=project_dir,
        precision=precision,
        reshard_after_forward=reshard_after_forward,
        cpu_offload=cpu_offload,
        activation_checkpointing=activation_checkpointing,
        gradient_accumulation_steps=gradient_accumulation_steps,
        clip_grad_norm=clip_grad_norm,
        checkpoint=checkpoint,
        meta_init=meta_init,
        nodes=nodes,
        devices_per_node=devices_per_node,
        shard_size=shard_size,
        launcher=launcher,
        join_example=join_example,
        seed=seed,
        torch_version=torch_version,
    )
    from fsdp_mcp.generate.answer import answer  # what does the work is loaded on the first call

    return answer(options, output_dir=output_dir, verify=verify, prove=prove)
