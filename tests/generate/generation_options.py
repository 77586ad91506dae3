"""The options that each strategy takes, and combinations in which every pair of them meets."""

import random
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import combinations
from pathlib import Path

PROJECT = Path(__file__).parent / "project"

COMMON: dict[str, tuple[object, ...]] = {
    "what": ("script", "snippet"),
    "model": (None, "tiny_models.language:build", "tiny_models.vision:build"),
    "precision": ("bf16", "fp32"),
    "activation_checkpointing": ("none", "full"),
    "gradient_accumulation_steps": (1, 3),
    "clip_grad_norm": (1.0, None),
    "checkpoint": ("none", "dcp"),
    "nodes": (1, 2),
    "launcher": ("torchrun", "slurm"),
    "seed": (0, 7),
}
FULLY_SHARDED = {
    **COMMON,
    "reshard_after_forward": (None, True, False, 2),
    "cpu_offload": (False, True),
    "meta_init": (False, True),
    "torch_version": (None, "2.5"),
}
DOMAINS: dict[str, dict[str, tuple[object, ...]]] = {
    "fsdp2": FULLY_SHARDED,
    "hsdp": {**FULLY_SHARDED, "shard_size": (4, 2)},
    "fsdp1": {**COMMON, "cpu_offload": (False, True)},
    "ddp": COMMON,
    "ddp_join": {**COMMON, "join_example": ("ddp", "custom_joinable")},
}
BLOCKS = {"tiny_models.language:build": ["Layer"], "tiny_models.vision:build": ["Stage"]}

Combination = tuple[tuple[str, object], ...]


@lru_cache(maxsize=1)
def pairwise_combinations() -> tuple[Combination, ...]:
    """Return combinations that hold, for each strategy, every pair of option values which go together.

    The same at each call.
    """
    chance = random.Random(0)
    pool = [_draw(chance) for _ in range(4000)]
    return _cover(pool, lambda combination: ((combination[0], *pair) for pair in combinations(combination, 2)))


def sample() -> tuple[Combination, ...]:
    """Return the combinations of the matrix that hold every value of every option once at least, with its strategy."""
    return _cover(pairwise_combinations(), lambda combination: ((item,) for item in combination))


def arguments(combination: Combination) -> dict[str, object]:
    """Return the arguments of generate_training_code for a combination."""
    given = dict(combination)
    model = given.get("model")
    needs_blocks = given["strategy"] in ("fsdp2", "hsdp", "fsdp1") or given["activation_checkpointing"] == "full"
    if model is not None:
        given["project_dir"] = str(PROJECT)
        given["block_classes"] = BLOCKS[str(model)] if needs_blocks else []
    return given


def describe(combination: Combination) -> str:
    """Return a short name: the strategy and the values that are not the first of their option."""
    given = dict(combination)
    domain = DOMAINS[str(given["strategy"])]
    changed = [f"{name}={value}" for name, value in combination if name != "strategy" and value != domain[name][0]]
    return " ".join([str(given["strategy"]), *changed])


def _draw(chance: random.Random) -> Combination:
    """Return one combination that the rules accept."""
    strategy = chance.choice(list(DOMAINS))
    drawn: dict[str, object] = {"strategy": strategy}
    drawn.update({name: chance.choice(values) for name, values in DOMAINS[strategy].items()})
    if drawn["what"] == "snippet":
        drawn["launcher"] = "torchrun"
    if drawn.get("shard_size") == 2 and drawn["reshard_after_forward"] == 2:
        drawn["shard_size"] = 4
    return tuple(drawn.items())


def _cover(
    pool: Iterable[Combination], targets_of: Callable[[Combination], Iterable[object]]
) -> tuple[Combination, ...]:
    """Return members of the pool, the most useful first, that together hold every target that any of them holds."""
    held = {combination: frozenset(targets_of(combination)) for combination in pool}
    missing: frozenset[object] = frozenset().union(*held.values())
    chosen: list[Combination] = []
    while missing:
        best = max(held, key=lambda combination: len(held[combination] & missing))
        chosen.append(best)
        missing -= held[best]
    return tuple(chosen)


def option_values(chosen: Iterable[Combination]) -> set[tuple[str, object]]:
    """Return every option value that occurs."""
    return {item for combination in chosen for item in combination}
