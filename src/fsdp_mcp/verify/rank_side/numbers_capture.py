"""Saves gradients and parameters of a rank, for the comparison of two variants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .numbers_layout import Layout, Piece, local

MOST_BYTES = 256 << 20
"""Of all ranks together, files of one variant. Each parameter and each step is saved whole or not at all."""
MOST_PARAMETER_BYTES = 64 << 20
MOST_STEPS = 50


class Capture:
    """Writes `<what>-<rank>-<part>.pt` files: lists of name, shape, index and values."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder = folder
        self._rank = rank
        self._chosen: set[str] = set()
        self._steps = 0
        self._parts: dict[str, int] = {}
        folder.mkdir(exist_ok=True)

    def choose(self, layout: Layout) -> None:
        """Choose parameters up to the bound by their whole size, so that every rank chooses alike."""
        total = 0
        pieces = {piece.name: piece for found in layout.pieces.values() for piece in found}
        for piece in pieces.values():
            total += torch.Size(piece.shape).numel() * 4
            if total > MOST_PARAMETER_BYTES:
                break
            self._chosen.add(piece.name)
        left_out = [name for name in pieces if name not in self._chosen]
        self._steps = min(MOST_STEPS, MOST_BYTES // max(1, min(total, MOST_PARAMETER_BYTES)) - 2)
        torch.save([left_out, self._steps], self._folder / f"left_out-{self._rank}.pt")

    def gradients(self, layout: Layout, step: int, parameters: list[Any]) -> None:
        """Save the gradients that a step uses."""
        if step <= self._steps:
            self._save(layout, f"gradient{step}", [(p, p.grad) for p in parameters if p.grad is not None])

    def parameters(self, layout: Layout, when: str, parameters: list[Any]) -> None:
        """Save parameters as they are now, `first` or `last`."""
        self._save(layout, when, [(p, p) for p in parameters])

    def _save(self, layout: Layout, what: str, pairs: list[tuple[Any, Any]]) -> None:
        rows = []
        for parameter, value in pairs:
            for piece in layout.pieces.get(id(parameter), []):
                row = self._row(piece, local(value)) if piece.owner and piece.name in self._chosen else None
                if row is not None:
                    rows.append(row)
        part = self._parts[what] = self._parts.get(what, 0) + 1
        path = self._folder / f"{what}-{self._rank}-{part}.pt"
        torch.save(rows, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def _row(self, piece: Piece, value: torch.Tensor) -> list[Any] | None:
        held = piece.of(value)
        if held.numel() != piece.numel or not piece.numel:
            return None
        return [piece.name, list(piece.shape), piece.where, held.clone()]
