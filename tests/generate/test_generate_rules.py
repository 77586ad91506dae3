"""What cannot be combined is refused, with the reason and what would work."""

from collections.abc import Iterator

import pytest
from generation_options import PROJECT

from fsdp_mcp import call, toolbox
from fsdp_mcp.errors import BadArgument, Forbidden
from fsdp_mcp.generate.training_code import generate_training_code

LANGUAGE = {"model": "tiny_models.language:build", "project_dir": str(PROJECT)}


@pytest.fixture(autouse=True)
def caller() -> Iterator[None]:
    call.enter(call.Caller(roots=(PROJECT,)))
    yield
    call.enter(call.Caller())


REFUSED = [
    (
        {"strategy": "ddp", "reshard_after_forward": 2},
        "reshard_after_forward=2 does not apply to ddp: it is an argument of fully_shard."
        " Leave it out, or use strategy fsdp2 or hsdp.",
    ),
    (
        {"strategy": "fsdp1", "reshard_after_forward": False},
        "reshard_after_forward=False does not apply to fsdp1: it is an argument of fully_shard."
        " Leave it out, or use strategy fsdp2 or hsdp.",
    ),
    (
        {"strategy": "ddp_join", "cpu_offload": True},
        "cpu_offload=True does not apply to ddp_join: DDP keeps model and optimizer on the device."
        " Leave it out, or use strategy fsdp2, hsdp or fsdp1.",
    ),
    (
        {"strategy": "fsdp1", "meta_init": True},
        "meta_init=True does not apply to fsdp1: the model is built on every rank before it is wrapped."
        " Leave it out, or use strategy fsdp2 or hsdp.",
    ),
    (
        {"strategy": "fsdp2", "shard_size": 4},
        "shard_size=4 does not apply to fsdp2: only hsdp has a shard group apart from the whole job."
        " Leave it out, or use strategy hsdp.",
    ),
    (
        {"strategy": "ddp", "join_example": "custom_joinable"},
        "join_example='custom_joinable' does not apply to ddp: only ddp_join has examples to choose from."
        " Leave it out, or use strategy ddp_join.",
    ),
    (
        {"strategy": "fsdp2", "model": "my model"},
        "model: got 'my model', expected package.module:factory, such as my_project.model:build.",
    ),
    (
        {"strategy": "ddp", "model": "a.class:build"},
        "model: got 'a.class:build', expected package.module:factory, such as my_project.model:build.",
    ),
    (
        {"strategy": "ddp", "model": "train:build"},
        "model: 'train:build' would be hidden by the generated train.py. Give that module another name.",
    ),
    (
        {"strategy": "fsdp2", "block_classes": ["Block"]},
        "block_classes needs model: the built-in transformer has its own blocks. Leave it out, or give model.",
    ),
    (
        {"strategy": "fsdp2", "project_dir": str(PROJECT)},
        "project_dir needs model: the built-in transformer imports nothing. Leave it out, or give model.",
    ),
    (
        {"strategy": "fsdp2", **LANGUAGE, "block_classes": ["a.Layer"]},
        "block_classes: 'a.Layer' is no class name. Give bare names, such as 'Block', without a module.",
    ),
    (
        {"strategy": "hsdp", "nodes": 2, **LANGUAGE},
        "block_classes is missing: hsdp shards block by block. Give the class names, such as ['TransformerBlock'].",
    ),
    (
        {"strategy": "ddp", "activation_checkpointing": "full", **LANGUAGE},
        "block_classes is missing: activation_checkpointing='full' recomputes block by block."
        " Give the class names, such as ['TransformerBlock'].",
    ),
    (
        {"strategy": "ddp", "block_classes": ["Layer"], **LANGUAGE},
        "block_classes does not apply to ddp without activation checkpointing: nothing is done per block."
        " Leave it out, or set activation_checkpointing='full'.",
    ),
    (
        {"strategy": "hsdp"},
        "hsdp needs two shard groups; one of 8 ranks is the whole job."
        " Use nodes=2, set shard_size to 2 or 4, or use fsdp2.",
    ),
    (
        {"strategy": "hsdp", "devices_per_node": 1},
        "hsdp needs two shard groups; one of 1 ranks is the whole job. Use nodes=2, take more devices, or use fsdp2.",
    ),
    (
        {"strategy": "hsdp", "nodes": 3, "devices_per_node": 2, "shard_size": 4},
        "shard_size=4 does not divide the 6 ranks. Use 2 or 3.",
    ),
    (
        {"strategy": "hsdp", "nodes": 2, "shard_size": 1},
        "A shard group of 1 rank shards nothing. Use shard_size=2 or more, or strategy ddp.",
    ),
    (
        {"strategy": "fsdp2", "reshard_after_forward": 3},
        "reshard_after_forward=3 does not divide the shard group of 8. Use 2, 4, true or false.",
    ),
    (
        {"strategy": "hsdp", "nodes": 2, "shard_size": 4, "reshard_after_forward": 8},
        "reshard_after_forward=8 does not divide the shard group of 4. Use 2, true or false.",
    ),
    (
        {"strategy": "fsdp2", "reshard_after_forward": 8},
        "reshard_after_forward=8: an integer has to be more than 1 and less than the shard group of 8 (true reshards"
        " over the whole group, false does not reshard). Use 2, 4, true or false.",
    ),
    (
        {"strategy": "fsdp2", "reshard_after_forward": 1},
        "reshard_after_forward=1: an integer has to be more than 1 and less than the shard group of 8 (true reshards"
        " over the whole group, false does not reshard). Use 2, 4, true or false.",
    ),
    (
        {"strategy": "fsdp2", "what": "snippet", "launcher": "slurm"},
        "launcher='slurm' does not apply to a snippet, which has no launch. Use what='script'.",
    ),
    (
        {"strategy": "fsdp2", "torch_version": "latest"},
        "torch_version: got 'latest', expected a release as X.Y or X.Y.Z, or null.",
    ),
    (
        {"strategy": "fsdp2", "project_dir": "nowhere", "model": "a:b", "block_classes": ["C"]},
        "project_dir: there is no folder 'nowhere'. Give the folder that holds the package.",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_a_combination_that_cannot_work_is_refused_with_what_would(given: dict[str, object], message: str) -> None:
    with pytest.raises(BadArgument) as refusal:
        generate_training_code(**given, verify=False)
    assert str(refusal.value) == message


MALFORMED = [
    ({"strategy": "fsdp3"}, "strategy: got 'fsdp3', expected one of fsdp2, hsdp, fsdp1, ddp, ddp_join."),
    ({"strategy": "ddp", "nodes": 0}, "nodes: got 0, expected a whole number at least 1 and at most 10000."),
    ({"strategy": "ddp", "precision": "fp16"}, "precision: got 'fp16', expected one of fp32, bf16."),
    ({"strategy": "ddp", "clip_grad_norm": -1}, "clip_grad_norm: got -1, expected a number or null more than 0."),
    (
        {"strategy": "ddp", "gradient_accumulation_steps": 0},
        "gradient_accumulation_steps: got 0, expected a whole number at least 1 and at most 4096.",
    ),
]


@pytest.mark.parametrize(("given", "message"), MALFORMED, ids=[message[:40] for _, message in MALFORMED])
def test_a_value_of_the_wrong_kind_is_refused_with_what_is_accepted(given: dict[str, object], message: str) -> None:
    tool = toolbox.find_tool("generate_training_code")
    with pytest.raises(BadArgument) as refusal:
        tool.call({**given, "verify": False})
    assert str(refusal.value).startswith(message[:-1])


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_clip_norm_that_is_no_finite_number_is_refused(value: str) -> None:
    with pytest.raises(BadArgument, match="clip_grad_norm"):
        toolbox.find_tool("generate_training_code").call({"strategy": "ddp", "clip_grad_norm": value})


@pytest.mark.parametrize("option", [{"output_dir": "out"}, {**LANGUAGE}])
def test_folders_are_refused_over_http(option: dict[str, object]) -> None:
    call.enter(call.Caller(roots=(), may_run=False))
    with pytest.raises(Forbidden, match="refused over HTTP"):
        generate_training_code("ddp", **option)
