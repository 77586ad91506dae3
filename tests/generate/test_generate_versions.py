"""Which torch a script needs follows from the names it uses and the recorded history."""

import re
from pathlib import Path

import pytest

from fsdp_mcp.api.history import oldest_torch
from fsdp_mcp.errors import BadArgument
from fsdp_mcp.generate import registry
from fsdp_mcp.generate.api_names import names_used
from fsdp_mcp.generate.training_code import generate_training_code

GENERATE = Path(registry.__file__).parent


def requires(strategy: str, **options: object) -> str:
    return generate_training_code(strategy, verify=False, **options).requires_torch


def test_names_are_read_through_imports_aliases_and_keywords() -> None:
    source = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(model, device):
    dist.init_process_group("nccl", device_id=device)
    return DDP(model, static_graph=True)
"""
    assert names_used(source) == (
        "torch.distributed.init_process_group",
        "torch.distributed.init_process_group#param-device_id",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.DistributedDataParallel#param-static_graph",
    )


def test_the_oldest_torch_is_that_of_the_newest_name_used() -> None:
    device_id = oldest_torch(["torch.distributed.init_process_group#param-device_id"])
    assert requires("ddp") == device_id
    assert requires("fsdp2") == oldest_torch(["torch.distributed.fsdp.fully_shard"])


def test_a_torch_that_has_fully_shard_as_a_prototype_gets_the_prototype_and_is_told() -> None:
    code = generate_training_code("fsdp2", torch_version="2.5", verify=False)
    assert "from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard\n" in code.files[0].content
    assert [caveat for caveat in code.caveats if "prototype" in caveat] != []
    assert code.requires_torch == oldest_torch(["torch.distributed._composable.fsdp.fully_shard"])


def test_a_torch_older_than_an_api_is_refused_with_the_api_and_its_release() -> None:
    with pytest.raises(BadArgument) as refusal:
        generate_training_code("fsdp2", meta_init=True, torch_version="2.3", verify=False)
    assert str(refusal.value) == (
        "torch 2.3 is too old: torch.distributed.checkpoint.state_dict.StateDictOptions(broadcast_from_rank0)"
        " needs torch 2.4 or newer. Give such a torch_version, or leave out the option that uses it."
    )


@pytest.mark.parametrize("version", ["2.6", "2.13", "2.13.0", "3.0"])
def test_a_torch_that_has_every_api_is_accepted(version: str) -> None:
    assert requires("fsdp2", torch_version=version) == "2.6"


def test_no_torch_release_is_a_literal_in_the_generator() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in GENERATE.glob("*.py")}
    found = {name: re.findall(r"(?<![\w.])[1-3]\.\d+(?:\.\d+)?\b(?!e)", text) for name, text in texts.items()}
    assert {name: hits for name, hits in found.items() if set(hits) - {"1.0"}} == {}  # 1.0 is the default clipping norm


def test_the_registry_holds_the_recipe_of_every_recipe_file() -> None:
    files = {path.stem for path in GENERATE.glob("*.py") if "= Recipe(" in path.read_text(encoding="utf-8")}
    assert files == {"fsdp2", "fsdp1", "ddp", "ddp_join"}
    assert [recipe.strategy for recipe in registry.RECIPES] == ["fsdp2", "hsdp", "fsdp1", "ddp", "ddp_join"]
