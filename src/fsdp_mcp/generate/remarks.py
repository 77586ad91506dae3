"""What is said of the choices that all recipes share."""

from __future__ import annotations

from fsdp_mcp.generate.recipe import Choice, Options
from fsdp_mcp.generate.versions import needs_prototype


def common_choices(options: Options) -> tuple[Choice, ...]:
    """Return the choices that no recipe makes for itself, with their reasons."""
    choices = []
    if options.recompute:
        why = "a block keeps its inputs alone and runs forward again in backward; applied before the model is wrapped"
        choices.append(Choice(choice="checkpoint(use_reentrant=False) around each block", why=why))
    if options.clip_grad_norm is not None:
        why = "the norm is over the gradients of all ranks, so every rank scales by the same factor"
        choices.append(Choice(choice=f"clip the gradient norm to {options.clip_grad_norm}", why=why))
    if options.checkpoint == "dcp":
        why = "every rank writes its shards, and another number of ranks can load them"
        choices.append(Choice(choice="torch.distributed.checkpoint", why=why))
    if options.cpu_offload:
        why = "collectives on CPU tensors need Gloo beside NCCL"
        choices.append(Choice(choice='backend "cpu:gloo,cuda:nccl" on GPUs', why=why))
    return tuple(choices)


def common_caveats(options: Options) -> tuple[str, ...]:
    """Return what to watch for whatever the recipe."""
    notes = []
    if options.checkpoint == "dcp":
        notes.append("All nodes have to see --checkpoint-dir. --resume starts fresh when it holds no checkpoint.")
    if options.model is not None:
        module = options.model.partition(":")[0]
        notes.append(
            f"make_batch and compute_loss fit token ids to logits. For another model, edit them, or define"
            f" make_batch(number, batch_size) and compute_loss(outputs, targets) in {module}."
        )
    if options.strategy in ("fsdp2", "hsdp") and needs_prototype(options.torch_version):
        notes.append(
            f"In torch {options.torch_version} fully_shard is a prototype, under torch.distributed._composable."
        )
    return tuple(notes)
