"""Compares two variants of a run: losses, gradients of each step and final parameters, against what rounding explains.

**Tolerance.** Two variants that compute the same mathematics differ by the order of their sums. A sum of n products has
a relative error of about `eps * sqrt(n)` when the roundings are independent (Higham, Accuracy and Stability of
Numerical Algorithms; the bound without independence has n in place of its root). One step may therefore differ by

    loss:      eps32 * sqrt(n)            +  eps_low / 2
    gradients: (eps32 * sqrt(n)  +  eps_low / 2) * sqrt(D)

- n: the largest dimension of a parameter, at least 256 for the examples of a batch, times the world size.
- D: the number of parameter tensors, for as many layers pass the error on.
- eps_low: of the lowest precision that products are computed in when that is below float32. Such products are summed
  in float32 and rounded once, so it has no root of n. eps32 is that of float64 where every tensor is float64.

relative to the loss, and to the largest gradient of the step in any parameter: a gradient that is zero in exact
arithmetic is noise at that scale. Step t starts from parameters that already differ by the roundings of t steps, so it
is given sqrt(t) times as much.
A final parameter may differ by what the gradients allow: an optimizer that divides by the gradient's own size, such as
Adam, turns noise in a gradient near zero into a whole step, so an element may differ by the share of noise in its
gradients, at most 2, times the farthest that any parameter moved.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fsdp_mcp.errors import EnvironmentProblem
from fsdp_mcp.lab import Comparison, Difference, Program
from fsdp_mcp.target import Target
from fsdp_mcp.verify import launch
from fsdp_mcp.verify.launch import Facts
from fsdp_mcp.verify.run_numbers import RankNumbers

_EPSILON = {"torch.float64": 2.0**-52, "torch.float32": 2.0**-23, "torch.float16": 2.0**-10, "torch.bfloat16": 2.0**-7}
_EIGHT_BITS = 2.0**-3
_LEAST_TERMS = 256
_COMPARE_SECONDS = 120
_PARAMETERS_IN_WORDS = 3


def variants(program: Program, second: str | Program) -> tuple[Program, Program]:
    """Return both programs, with their gradients and parameters kept.

    Args:
        program: the first.
        second: another program, or what to change in the first: `single_process` or `ddp`.
    """
    if second == "single_process":
        both = replace(program, variant="without_dropout")
        return both, replace(both, world_size=1, nodes=1)
    first = replace(program, variant="as_is")
    if isinstance(second, Program):
        return first, replace(second, variant="as_is")
    return first, replace(program, variant="ddp")


@dataclass(frozen=True)
class Variant:
    """One of the runs: what was started, what came of it, and what its ranks recorded."""

    facts: Facts
    numbers: list[RankNumbers]
    world_size: int
    failure: str | None

    @property
    def losses(self) -> list[float]:
        """Return the loss of each step, the mean over ranks that have one."""
        steps = min((len(rank.losses) for rank in self.numbers if rank.losses), default=0)
        ranks = [rank.losses for rank in self.numbers if rank.losses]
        return [sum(losses[step] for losses in ranks) / len(ranks) for step in range(steps)]


def compare(first: Variant, second: Variant, kind: str, target: Target) -> Comparison:
    """Return how far the second variant is from the first."""
    if second.failure is not None:
        return Comparison(variant=kind, equal=None, notes=(f"The second variant failed: {second.failure}",))
    if first.failure is not None:
        return Comparison(variant=kind, equal=None, notes=("The first variant failed, see above.",))
    numbers = [*first.numbers, *second.numbers]
    tolerance = step_tolerance(numbers, max(first.world_size, second.world_size))
    losses, loss_step = _losses(first.losses, second.losses, tolerance.loss)
    found = _tensors(first.facts, second.facts, tolerance.gradient, target)
    gradients, parameters, start = (_difference(found[key]) for key in ("gradients", "parameters", "start"))
    steps = [step for step in (loss_step, found["first_step"]) if step is not None]
    same_length = len(first.losses) == len(second.losses)
    compared = [difference for difference in (losses, gradients, parameters) if difference is not None]
    same_start = start is None or start.within
    notes = _notes(found, min(steps, default=None), same_start=same_start, kind=kind)
    if _lowest_precision(numbers) > _EPSILON["torch.float32"]:
        notes = (*notes, "The tolerance is that of the low precision in use; in float32 smaller differences show.")
    if any(rank.dropout for rank in numbers):
        notes = (*notes, "Dropout was off in both: ranks together draw other masks than one process.")
    most = max((rank.tensors for rank in numbers), default=0)
    if found["names"] < most:
        notes = (*notes, f"Gradients and values of {found['names']} of {most} parameters were compared.")
    if not same_length:
        notes = (f"Steps: {len(first.losses)} and {len(second.losses)}.", *notes)
    equal = same_length and same_start and all(difference.within for difference in compared)
    return Comparison(
        variant=kind,
        losses=losses,
        gradients=gradients,
        parameters=parameters,
        equal=equal if compared else None,
        first_step=min(steps, default=None),
        notes=notes if compared else ("Nothing to compare: no loss.backward() and optimizer step was seen.",),
    )


class Tolerance(NamedTuple):
    """Relative differences that rounding explains in one step, by the formulas above."""

    loss: float
    gradient: float


def step_tolerance(numbers: Sequence[RankNumbers], world_size: int) -> Tolerance:
    """Return what rounding explains for ranks of these precisions and sizes."""
    lowest = _lowest_precision(numbers)
    single = min(lowest, _EPSILON["torch.float32"])
    terms = world_size * max([_LEAST_TERMS, *(rank.largest_dimension for rank in numbers)])
    loss = single * math.sqrt(terms) + (lowest / 2 if lowest > single else 0.0)
    return Tolerance(loss, loss * math.sqrt(max([1, *(rank.tensors for rank in numbers)])))


def _lowest_precision(numbers: Sequence[RankNumbers]) -> float:
    known = [_EPSILON.get(name, _EIGHT_BITS) for rank in numbers for name in rank.precisions if "float" in name]
    return max(known, default=_EPSILON["torch.float32"])


def _losses(first: list[float], second: list[float], tolerance: float) -> tuple[Difference | None, int | None]:
    """Return the worst difference of losses, in terms of its tolerance, and the first step over it."""
    worst: Difference | None = None
    most = -1.0
    over = None
    for step, (one, other) in enumerate(zip(first, second, strict=False), start=1):
        size = max(abs(one), abs(other)) if math.isfinite(one) and math.isfinite(other) else 1.0
        absolute = 0.0 if one == other or (math.isnan(one) and math.isnan(other)) else abs(one - other)
        absolute = absolute if math.isfinite(absolute) else 1e300
        allowed = tolerance * math.sqrt(step) * size
        ratio = absolute / allowed if allowed else float(absolute > 0) * 1e300
        if ratio > 1 and over is None:
            over = step
        if ratio > most:
            most = ratio
            relative = absolute / size if size else 0.0
            worst = Difference(
                absolute=absolute, relative=relative, tolerance=allowed, within=ratio <= 1, step=step, name=None
            )
    return worst, over


def _difference(found: dict[str, Any] | None) -> Difference | None:
    if found is None:
        return None
    return Difference(
        absolute=found["absolute"],
        relative=found["relative"],
        tolerance=found["tolerance"],
        within=found["ratio"] <= 1,
        name=found["name"],
        step=found.get("step"),
    )


def _notes(found: dict[str, Any], step: int | None, *, same_start: bool, kind: str) -> tuple[str, ...]:
    """Say what limits the comparison, and what a difference at the very start means."""
    notes = []
    if not same_start:
        notes.append(
            f"The variants start from different parameters ({found['start']['name']} by"
            f" {found['start']['absolute']:.2g}): initialise before sharding or load the same weights, then compare."
        )
    elif step == 1 and kind == "single_process":
        notes.append(
            "Step 1 differs although the parameters start equal: one process gets other data than the ranks together"
            " (each rank has to take its equal share of one global batch), or the loss is no mean over it."
        )
    elif step == 1 and found["names"]:
        notes.append("Step 1 differs although the parameters start equal: data, loss or forward differ.")
    if kind == "ddp":
        notes.append("DDP ran without FSDP's mixed precision and offloading.")
    for key, text in (("unmatched", "only one variant has"), ("left_out", "too large to compare:")):
        if found[key]:
            more = len(found[key]) - _PARAMETERS_IN_WORDS
            notes.append(
                f"Parameters: {text} {', '.join(found[key][:_PARAMETERS_IN_WORDS])}"
                + (f" and {more} more" if more > 0 else "")
            )
    return tuple(notes)


def _tensors(first: Facts, second: Facts, tolerance: float, target: Target) -> dict[str, Any]:
    """Compare what the ranks saved, in the target interpreter and contained as the ranks are."""
    script = Path(__file__).with_name("rank_side") / "numbers_compare.py"
    program = Program(
        files={"compare.py": script.read_text(encoding="utf-8")},
        entry="compare.py",
        arguments=(str(first.folders.scratch / "numbers"), str(second.folders.scratch / "numbers"), repr(tolerance)),
        world_size=1,
        timeout_seconds=_COMPARE_SECONDS,
    )
    with launch.scratch_folder() as scratch:
        rank = launch.run_program(program, target, scratch).ranks[0]
    try:
        found: dict[str, Any] = json.loads(rank["output"].strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise EnvironmentProblem(f"The comparison did not finish: {rank['output'][-500:]}") from None
    return found
