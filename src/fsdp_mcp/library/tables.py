"""Turns the tables of reStructuredText, and the directives that make tables, into Markdown tables."""

from __future__ import annotations

import csv
import re
from itertools import pairwise, zip_longest

_GRID_RULE = re.compile(r"\+(?:[-=]+\+)+\Z")
_SIMPLE_RULE = re.compile(r"=+(?: +=+)+\Z")
_ROW = re.compile(r"^\s*[*-] +[*-](?: |\Z)")
_CELL = re.compile(r"^\s*[*-](?: |\Z)")

Row = list[str]


def starts_table(line: str) -> bool:
    """Return whether a grid table or a simple table may begin with this line."""
    return bool(_GRID_RULE.match(line) or _SIMPLE_RULE.match(line))


def end_of_table(lines: list[str], start: int) -> int:
    """Return the line after the table that begins at `start`."""
    if _GRID_RULE.match(lines[start]):
        end = start
        while end < len(lines) and lines[end].startswith(("+", "|")):
            end += 1
        return end
    rules = [at for at in range(start, len(lines)) if lines[at] == lines[start]]
    closing = [at for at in rules[1:] if at + 1 == len(lines) or not lines[at + 1].strip()]
    return closing[0] + 1 if closing else start + 1


def table(lines: list[str]) -> str | None:
    """Return a grid table or a simple table as Markdown; None when its columns cannot be told."""
    return _grid(lines) if lines[0].startswith("+") else _simple(lines)


def _grid(lines: list[str]) -> str | None:
    if not _GRID_RULE.match(lines[-1]):
        return None
    edges = sorted({at for line in lines if line.startswith("+") for at, mark in enumerate(line) if mark == "+"})
    header: list[Row] = []
    rows: list[Row] = []
    current: list[Row] = []
    for line in lines[1:]:
        cells = _cells_between(line, edges) if line.startswith("|") else []
        if cells is None or not (cells or _GRID_RULE.match(line)):
            return None
        if cells:
            current.append(cells)
            continue
        rows += [_joined(current)] if current else []
        current = []
        if "=" in line:
            header, rows = rows, []
    return markdown(rows, header=_joined(header) if header else None)


def _cells_between(line: str, edges: list[int]) -> Row | None:
    """Return the text of each column; what spans several stands in each of them."""
    bars = [edge for edge in edges if edge < len(line) and line[edge] == "|"]
    if not bars or bars[-1] != edges[-1]:
        return None
    cells: Row = []
    for left, right in pairwise(bars):
        spanned = sum(left < edge <= right for edge in edges)
        cells += [line[left + 1 : right].strip()] * spanned
    return cells


def _simple(lines: list[str]) -> str | None:
    rule = lines[0]
    starts = [match.start() for match in re.finditer(r"=+", rule)]
    if len(lines) < 3 or lines[-1] != rule:
        return None
    inner = [line for line in lines[1:-1] if line.strip()]
    middle = inner.index(rule) if rule in inner else 0
    header = [_cut(line, starts) for line in inner[:middle]]
    rows = [_cut(line, starts) for line in inner[middle:] if line != rule]
    return markdown(_continued(rows), header=_joined(header) if header else None)


def _cut(line: str, starts: list[int]) -> Row:
    return [line[left:right].strip() for left, right in pairwise([*starts, None])]


def _continued(rows: list[Row]) -> list[Row]:
    """Join a row whose first cell is empty to the one above, which it continues."""
    whole: list[Row] = []
    for row in rows:
        if whole and not row[0]:
            whole[-1] = _joined([whole[-1], row])
        else:
            whole.append(row)
    return whole


def _joined(rows: list[Row]) -> Row:
    """Return one row whose cells are those of `rows` one after another, without repetitions."""
    return [" ".join(dict.fromkeys(filter(None, column))) for column in zip_longest(*rows, fillvalue="")]


def list_table(body: str, *, header_rows: int) -> str | None:
    """Return the Markdown of a `list-table`, an outer list of rows, each a list of cells; None when it is no such."""
    if "```" in body or not _ROW.match(body.lstrip("\n")):
        return None
    rows: list[Row] = []
    for line in body.split("\n"):
        if _ROW.match(line):
            rows.append([_ROW.sub("", line).strip()])
        elif rows and _CELL.match(line):
            rows[-1].append(_CELL.sub("", line).strip())
        elif rows and line.strip():
            rows[-1][-1] = f"{rows[-1][-1]} {line.strip()}".strip()
    return _with_header(rows, header_rows)


def csv_table(body: str, *, header: str) -> str | None:
    """Return the Markdown of a `csv-table`; None when it cannot be read."""
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(body.split("\n"), skipinitialspace=True) if row]
    except csv.Error:
        return None
    names = next(csv.reader([header], skipinitialspace=True), [])
    return _with_header([names, *rows], 1) if names else _with_header(rows, 0)


def _with_header(rows: list[Row], header_rows: int) -> str | None:
    header = _joined(rows[:header_rows]) if header_rows else None
    return markdown(rows[header_rows:], header=header)


def markdown(rows: list[Row], *, header: Row | None) -> str | None:
    """Return a Markdown table; None when there is none to show."""
    width = max((len(row) for row in [*rows, header or []]), default=0)
    if not width:
        return None
    shown = [header or [], ["---"] * width, *rows]
    return "\n".join(f"| {' | '.join(_escaped([*row, *[''] * (width - len(row))]))} |" for row in shown)


def _escaped(row: Row) -> Row:
    return [cell.replace("|", r"\|") for cell in row]
