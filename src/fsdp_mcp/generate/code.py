"""Builds the files of an answer: the script of a recipe, or the part of it that configures training."""

from __future__ import annotations

import re

from fsdp_mcp.generate import blocks
from fsdp_mcp.generate.assemble import fill, join_blocks
from fsdp_mcp.generate.launch import launch_files
from fsdp_mcp.generate.recipe import Options, Recipe, template_flags, template_values
from fsdp_mcp.models import GeneratedFile

_FUTURE = "from __future__ import annotations"
_READERS_OWN = {
    "Block": "the class of the repeated blocks",
    "Transformer": "the class of the model",
    "build_model": "makes the model",
    "load_batch": "gives inputs and targets of batch `number`",
    "compute_loss": "takes outputs and targets",
    "ACCUMULATION_STEPS": "micro-batches of an optimizer step",
}
"""Names that a snippet takes from the script of the reader."""


def build_script(recipe: Recipe, options: Options) -> str:
    """Return train.py."""
    model = blocks.MODEL if options.model is None else _import_model(options.model) + blocks.USER_MODEL
    checkpoint = (blocks.CHECKPOINT,) if options.checkpoint == "dcp" else ()
    parts = (part.template for part in recipe.parts(options))
    templates = (blocks.CONSTANTS, model, blocks.START, *parts, *checkpoint, blocks.ARGUMENTS, recipe.main)
    header = f'"""{recipe.title}"""\n\n{_FUTURE}'
    return join_blocks([_fill(template, options) for template in templates], header=header)


def build_snippet(recipe: Recipe, options: Options) -> str:
    """Return snippet.py: blocks of the script as they stand in it, and the lines of its `main` that use them."""
    parts = recipe.parts(options)
    used = [_fill(part.template, options) for part in parts]
    order = [f"{_first_name(text)}: {part.where}" for part, text in zip(parts, used, strict=True)]
    if options.checkpoint == "dcp":
        used.append(_fill(blocks.CHECKPOINT, options))
        order.append("save_checkpoint, load_checkpoint: on all ranks, loading after the optimizer is made")
    if options.cpu_offload:
        used.insert(0, _fill(blocks.START, options))
        order.insert(0, "start_process_group: before all else")
    notes = "\n".join(f"- {line}" for line in order)
    body = "\n".join(used)
    yours = ", ".join(f"{name} ({what})" for name, what in _READERS_OWN.items() if re.search(rf"\b{name}\b", body))
    header = f'"""{recipe.title}\n\nWhere these go:\n{notes}\nYour own: {yours}.\n"""\n\n{_FUTURE}'
    calls = "\n".join(f"#     {line}" for line in _configuring_lines(_fill(recipe.main, options)))
    return join_blocks(used, header=header) + f"\n\n# In your main function, in this order:\n{calls}\n"


def answer_files(recipe: Recipe, options: Options, script: str) -> tuple[GeneratedFile, ...]:
    """Return the files of the answer, the entry point first."""
    if options.what == "snippet":
        return (GeneratedFile(path="snippet.py", content=build_snippet(recipe, options)),)
    return (GeneratedFile(path="train.py", content=script), *launch_files(options))


def _fill(template: str, options: Options) -> str:
    return fill(template, flags=template_flags(options), values=template_values(options))


def _import_model(model: str) -> str:
    """Return the imports of the reader's model; its two names are checked identifiers."""
    module, _, factory = model.partition(":")
    return f"import {module} as model_module\nfrom {module} import {factory} as build_model\n"


def _first_name(block: str) -> str:
    """Return the name of the first function or class of a block."""
    line = next(line for line in block.splitlines() if line.startswith(("def ", "class ")))
    return line.split()[1].partition("(")[0]


def _configuring_lines(main: str) -> list[str]:
    """Return the lines of `main` from the model to the last training call that set training up."""
    wanted = ("shard_model(", "wrap_model(", "load_initial_weights(", "torch.optim.", "load_checkpoint(")
    used = (*wanted, "train_step(", "train_epoch(", "sync_optimizer(", "save_checkpoint(")
    return [line.strip() for line in main.splitlines() if any(name in line for name in used)]
