"""What generated files look like, for every combination of the matrix."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from generation_options import PROJECT, arguments, describe, pairwise_combinations

from fsdp_mcp import call
from fsdp_mcp.generate.answer import api_names
from fsdp_mcp.generate.code import build_script
from fsdp_mcp.generate.recipe import Options
from fsdp_mcp.generate.registry import RECIPES, find_recipe
from fsdp_mcp.generate.result import TrainingCode
from fsdp_mcp.generate.training_code import generate_training_code

PROBE = """
import pkgutil, sys
for name in sys.argv[1:]:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        print(name)
"""


@pytest.fixture(autouse=True)
def caller() -> Iterator[None]:
    call.enter(call.Caller(roots=(PROJECT,)))
    yield
    call.enter(call.Caller())


def generate(**given: object) -> TrainingCode:
    return generate_training_code(**{"verify": False, **given})


def content(code: TrainingCode, path: str) -> str:
    return next(file.content for file in code.files if file.path == path)


def options_of(combination) -> Options:
    given = arguments(combination)
    return Options(**{**given, "block_classes": tuple(given.get("block_classes", ()))})


def ruff(path: Path, *arguments_: str) -> str:
    isolated = () if "--config" in arguments_ else ("--isolated",)
    command = [sys.executable, "-m", "ruff", *arguments_, *isolated, "--no-cache", str(path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    return done.stdout + done.stderr if done.returncode else ""


def test_the_same_options_give_the_same_bytes() -> None:
    once, again = ([generate(**arguments(item)) for item in pairwise_combinations()] for _ in range(2))
    assert once == again


def test_every_script_passes_ruff_and_is_formatted(tmp_path: Path) -> None:
    for number, combination in enumerate(pairwise_combinations()):
        script = build_script(find_recipe(dict(combination)["strategy"]), options_of(combination))
        (tmp_path / f"script_{number}.py").write_text(script, encoding="utf-8")
    assert ruff(tmp_path, "check", "--output-format", "concise") == ""
    assert ruff(tmp_path, "format", "--diff", "--line-length", "120") == ""


def test_every_snippet_passes_ruff_but_for_the_readers_own_names(tmp_path: Path) -> None:
    snippets = [item for item in pairwise_combinations() if dict(item)["what"] == "snippet"]
    for number, combination in enumerate(snippets):
        snippet = content(generate(**arguments(combination)), "snippet.py")
        own = re.findall(r"^- (\w+):", snippet.partition("Your own:\n")[2], re.MULTILINE)
        (tmp_path / f"snippet_{number}.py").write_text(snippet, encoding="utf-8")
        (tmp_path / "ruff.toml").write_text(f"builtins = {own}", encoding="utf-8")
        command = ["check", "--output-format", "concise", "--config", str(tmp_path / "ruff.toml")]
        assert ruff(tmp_path / f"snippet_{number}.py", *command) == ""


@pytest.mark.parametrize("combination", pairwise_combinations(), ids=describe)
def test_every_block_of_a_snippet_is_literally_in_the_proven_script(combination) -> None:
    given = {**arguments(combination), "launcher": "torchrun"}
    script = content(generate(**{**given, "what": "script"}), "train.py")
    snippet = content(generate(**{**given, "what": "snippet"}), "snippet.py")
    for node in ast.parse(snippet).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert ast.get_source_segment(snippet, node) in script
    calls = [line.removeprefix("#     ") for line in snippet.splitlines() if line.startswith("#     ")]
    assert calls
    assert [line for line in calls if line not in script] == []


def test_a_script_of_the_built_in_model_is_short() -> None:
    lengths = {recipe.strategy: len(plain_script(recipe.strategy).splitlines()) for recipe in RECIPES}
    assert {name: length for name, length in lengths.items() if length > 170} == {}


def plain_script(strategy: str) -> str:
    return content(generate(strategy=strategy, nodes=2), "train.py")


def test_no_mark_or_placeholder_of_a_template_is_left() -> None:
    scripts = [build_script(find_recipe(dict(item)["strategy"]), options_of(item)) for item in pairwise_combinations()]
    assert [line for script in scripts for line in script.splitlines() if "#?" in line or "$" in line] == []


def test_every_torch_name_of_every_script_exists_in_the_installed_torch(tmp_path: Path) -> None:
    names = set()
    for combination in pairwise_combinations():
        options = options_of(combination)
        recipe = find_recipe(options.strategy)
        script = build_script(recipe, options)
        names.update(name.partition("#")[0] for name in api_names(recipe, options, script))
    command = [sys.executable, "-W", "ignore", "-c", PROBE, *sorted(names)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert len(names) > 40
    assert done.stdout == ""


def test_values_are_entered_as_python_literals() -> None:
    code = generate(strategy="fsdp2", seed=4294967295, clip_grad_norm=0.25, reshard_after_forward=4)
    script = content(code, "train.py")
    assert "SEED = 4294967295\n" in script
    assert "clip_grad_norm_(model.parameters(), 0.25)" in script
    assert '"--reshard-after-forward", type=int, default=4' in script


def test_sizes_of_the_cluster_are_arguments_with_the_requested_defaults() -> None:
    code = generate(strategy="hsdp", nodes=4, devices_per_node=4)
    assert '"--shard-size", type=int, default=4' in content(code, "train.py")


def test_code_that_was_not_asked_for_is_not_there() -> None:
    script = content(generate(strategy="fsdp2", precision="fp32", clip_grad_norm=None), "train.py")
    unwanted = ("bfloat16", "clip_grad", "checkpoint", "offload", "autocast", "replicate", "ACCUMULATION", "to_empty")
    assert [word for word in unwanted if word in script] == []


def test_fsdp1_says_that_it_is_deprecated_and_names_the_counterpart() -> None:
    code = generate(strategy="fsdp1")
    assert code.caveats[0].startswith("FSDP1 is deprecated upstream in favour of fully_shard")


def test_offload_asks_for_gloo_beside_nccl_and_pins_memory_only_with_an_accelerator() -> None:
    script = content(generate(strategy="fsdp2", cpu_offload=True), "train.py")
    assert 'init_process_group("cpu:gloo,cuda:nccl"' in script
    assert 'CPUOffloadPolicy(pin_memory=device.type != "cpu")' in script
