"""Compares what two variants saved; run as a script by the target interpreter: two folders and the tolerance of a step.

Prints one line of JSON. Tolerances are per element, the reasons for them stand in `fsdp_mcp/verify/comparison.py`:
a gradient may differ by `tolerance * sqrt(step) * G`, G the largest gradient of that step in any parameter; a
final value by what gradients that differ so can have changed: `M * min(2, largest share of noise in its gradients)`,
M the farthest that any parameter moved, and the rounding of the value itself.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    Tensors = dict[str, torch.Tensor]


def main() -> None:
    """Compare and print."""
    first, second, tolerance = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    start = _load(first, "first"), _load(second, "first")
    end = _load(first, "last"), _load(second, "last")
    names = [name for name in start[0] if name in start[1]]
    moved = max([_largest(end[0][name] - start[0][name]) for name in names if name in end[0]] or [0.0])
    noise: Tensors = {}
    gradients, first_step = _gradients(first, second, tolerance, noise)
    result = {
        "names": len(names),
        "unmatched": sorted(set(start[0]) ^ set(start[1]))[:20],
        "left_out": sorted({name for folder in (first, second) for name in _left_out(folder)})[:20],
        "start": _worst(start, lambda name, value: tolerance * value.abs()),
        "gradients": gradients,
        "first_step": first_step,
        "parameters": _worst(
            end, lambda name, value: tolerance * value.abs() + moved * noise.get(name, torch.zeros(1)).clamp(max=2.0)
        ),
    }
    print(json.dumps(result))


def _gradients(first: Path, second: Path, tolerance: float, noise: Tensors) -> tuple[Any, int | None]:
    """Return the worst difference of any step and the first step over its tolerance; adds up the noise per element."""
    worst: Any = None
    first_step = None
    for step in _steps(first, second):
        pair = _load(first, f"gradient{step}"), _load(second, f"gradient{step}")
        scale = max([_largest(value) for value in pair[0].values()] or [0.0])
        allowed = tolerance * math.sqrt(step) * scale
        found = _worst(pair, lambda name, value: torch.full_like(value, allowed), scale)  # noqa: B023, used at once
        for name in set(pair[0]) & set(pair[1]):
            share = allowed / pair[0][name].abs().clamp(min=1e-300)
            noise[name] = torch.maximum(noise[name], share) if name in noise else share
        if found is None:
            continue
        found["step"] = step
        if first_step is None and found["ratio"] > 1:
            first_step = step
        if worst is None or found["ratio"] > worst["ratio"]:
            worst = found
    return worst, first_step


def _worst(pair: tuple[Tensors, Tensors], allowed: Any, scale: float | None = None) -> Any:
    """Return the element whose difference is largest in terms of what is allowed there; None without any."""
    worst: Any = None
    for name in pair[0]:
        if name not in pair[1] or pair[0][name].shape != pair[1][name].shape:
            continue
        value, other = pair[0][name], pair[1][name]
        difference = (value - other).abs()
        difference = torch.where(torch.isnan(value) & torch.isnan(other), torch.zeros_like(difference), difference)
        difference = torch.where(value == other, torch.zeros_like(difference), difference)  # infinities
        difference = torch.nan_to_num(difference, nan=math.inf)
        bound = allowed(name, value).expand_as(value)
        ratio = torch.where(difference == 0, torch.zeros_like(difference), difference / bound.clamp(min=1e-300))
        ratio = torch.nan_to_num(ratio, nan=math.inf, posinf=math.inf)
        at = int(ratio.argmax())
        if worst is None or float(ratio.view(-1)[at]) > worst["ratio"]:
            size = scale if scale is not None else _largest(value)
            worst = {
                "name": name,
                "ratio": min(1e300, float(ratio.view(-1)[at])),
                "absolute": min(1e300, float(difference.view(-1)[at])),
                "relative": min(1e300, float(difference.view(-1)[at]) / size) if size else 0.0,
                "tolerance": min(1e300, float(bound.reshape(-1)[at])),
            }
    return worst


def _largest(value: torch.Tensor) -> float:
    return float(torch.nan_to_num(value).abs().max()) if value.numel() else 0.0


def _steps(first: Path, second: Path) -> list[int]:
    """Return the steps that both variants saved."""
    found = [{int(text[1]) for text in _matches(folder, r"gradient(\d+)-")} for folder in (first, second)]
    return sorted(found[0] & found[1])


def _matches(folder: Path, pattern: str) -> list[Any]:
    return [match for match in (re.match(pattern, path.name) for path in folder.glob("*.pt")) if match]


def _left_out(folder: Path) -> list[str]:
    return [name for path in folder.glob("left_out-*.pt") for name in torch.load(path, weights_only=True)[0]]


def _load(folder: Path, what: str) -> Tensors:
    """Put whole tensors together from the pieces of all ranks; what is not complete is left out."""
    whole: Tensors = {}
    filled: dict[str, int] = {}
    for path in sorted(folder.glob(f"{what}-*.pt")):
        for name, shape, index, values in torch.load(path, weights_only=True):
            target = whole.setdefault(name, torch.zeros(shape, dtype=torch.float64))
            if list(target.shape) != shape:
                continue
            if index[:1] == ["flat"]:
                target.view(-1)[index[1] : index[2]] = values.reshape(-1).double()
            else:
                target[_at(index)] = values.double()
            filled[name] = filled.get(name, 0) + values.numel()
    return {name: value for name, value in whole.items() if filled.get(name, 0) >= value.numel()}


def _at(index: list[Any]) -> Any:
    """Return what selects the piece: one index tensor for each dimension, shaped to broadcast."""
    selected = []
    for dimension, held in enumerate(index):
        indices = torch.tensor(held[0]) if isinstance(held[0], list) else torch.arange(held[0], held[1])
        selected.append(indices.view([-1 if at == dimension else 1 for at in range(len(index))]))
    return tuple(selected) if selected else ...


if __name__ == "__main__":
    main()
