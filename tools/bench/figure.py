"""One measured figure, its budget, and the table of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Args:
        group: what it belongs to.
        name: what was measured.
        value: the figure.
        unit: of the value.
        reference: the same measure of what ours is compared with, in the same run.
        budget: bound of the ratio to the reference, of the value where there is no reference.
        at_least: whether the budget is a lower bound.
        note: what a reader has to know to repeat it.
    """

    group: str
    name: str
    value: float
    unit: str
    reference: float | None = None
    budget: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The value as a multiple of the reference."""
        return self.value / self.reference if self.reference else None

    @property
    def kept(self) -> bool | None:
        """Whether the budget is kept; None without one."""
        if self.budget is None:
            return None
        measured = self.value if self.ratio is None else self.ratio
        return measured >= self.budget if self.at_least else measured <= self.budget

    def as_dict(self) -> dict[str, object]:
        """Return the fields with the ratio and the verdict, for JSON."""
        return {**asdict(self), "ratio": self.ratio, "kept": self.kept}


def table_of(figures: Iterable[Figure]) -> Table:
    """Return a table with a line per figure."""
    table = Table(title="fsdp-mcp: measured against its budgets", title_justify="left")
    table.add_column("what")
    for heading in ("measured", "reference", "ratio", "budget"):
        table.add_column(heading, justify="right")
    table.add_column("kept")
    table.add_column("note", overflow="fold")
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            table.add_section()
        table.add_row(*_cells(figure))
    return table


def _cells(figure: Figure) -> list[str]:
    sign = ">=" if figure.at_least else "<="
    limit = "" if figure.budget is None else f"{sign} {figure.budget:g}{' x' if figure.reference else ''}"
    return [
        f"{figure.group}: {figure.name}",
        f"{_number(figure.value)} {figure.unit}",
        "" if figure.reference is None else f"{_number(figure.reference)} {figure.unit}",
        "" if figure.ratio is None else f"{figure.ratio:.2f} x",
        limit,
        {None: "", True: "[green]yes[/]", False: "[red]NO[/]"}[figure.kept],
        figure.note,
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}".rstrip("0").rstrip(".")
