"""Builds the files of an answer: the script of a recipe, or the part of it that configures training."""

from __future__ import annotations

import re

from fsdp_mcp.generate import blocks
from fsdp_mcp.generate.assemble import fill, join_blocks
from fsdp_mcp.generate.flags import template_flags, template_values
from fsdp_mcp.generate.launch import launch_files
from fsdp_mcp.generate.recipe import Options, Part, Recipe
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
    """Return snippet.py: blocks of the script as they stand in it, and the lines of its `train` that use them."""
    used = [(part, _fill(part.template, options)) for part in _snippet_parts(recipe, options)]
    texts = [text for _, text in used]
    notes = ["Where these go:", *(f"- {_defined_names(text)}: {part.where}" for part, text in used)]
    notes += ["Your own:", *_readers_own("\n".join(texts), options)]
    header = "\n".join([f'"""{recipe.title}', "", *notes, '"""', "", _FUTURE])
    calls = [f"#     {line}" for line in _configuring_lines(_fill(recipe.main, options))]
    return "\n".join([join_blocks(texts, header=header), "", "# In your main function, in this order:", *calls, ""])


def _snippet_parts(recipe: Recipe, options: Options) -> tuple[Part, ...]:
    """Return the parts of a recipe, with the process group when offload asks for its backends, and the checkpoint."""
    before = (Part("before all else", blocks.START),) if options.cpu_offload else ()
    after = (Part("on all ranks; load after the optimizer is made", blocks.CHECKPOINT),)
    return (*before, *recipe.parts(options), *(after if options.checkpoint == "dcp" else ()))


def _readers_own(code: str, options: Options) -> list[str]:
    """Return what the blocks take from the reader's script, a line each."""
    lines = [f"- {name}: {what}" for name, what in _READERS_OWN.items() if re.search(rf"\b{name}\b", code)]
    requested = {"shard_size": options.shard_group, "reshard_after_forward": options.reshard_size}
    names = dict.fromkeys(re.findall(r"\bargs\.(\w+)", code))
    shown = [f"{name} ({requested[name]} here)" if name in requested else name for name in names]
    return [*lines, f"- args: {', '.join(shown)}"] if shown else lines


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


def _defined_names(block: str) -> str:
    """Return the names of the functions and classes of a block."""
    return ", ".join(re.findall(r"^(?:def|class) (\w+)", block, re.MULTILINE))


def _configuring_lines(main: str) -> list[str]:
    """Return the lines of the training function that call the blocks or make the optimizer."""
    wanted = ("shard_model(", "wrap_model(", "load_initial_weights(", "torch.optim.", "load_checkpoint(")
    used = (*wanted, "train_step(", "train_epoch(", "sync_optimizer(", "save_checkpoint(")
    return [line.strip() for line in main.splitlines() if any(name in line for name in used)]
