"""The diagnosis for people at a terminal: ranks as rows, the time of their first failure as a column."""

from __future__ import annotations

from rich.console import Console, Group
from rich.markdown import Markdown
from rich.table import Table

from fsdp_mcp.diagnose.answer import LogDiagnosis, RankRole, Role

_STYLES: dict[Role, str] = {"origin": "bold red", "victim": "yellow", "healthy": "green", "silent": "magenta"}
_BAR = 30
_MOST_ROWS = 32


def show(diagnosis: LogDiagnosis, console: Console) -> None:
    """Print the diagnosis, with a table of the ranks where there are several."""
    text = Markdown(diagnosis.render())
    console.print(Group(text, _table(diagnosis.ranks)) if len(diagnosis.ranks) > 1 else text)


def _table(ranks: tuple[RankRole, ...]) -> Table:
    """Return a row for each rank in the order of its first failure: the origin, then who followed."""
    table = Table(title="first failure of each rank, in time", title_justify="left")
    table.add_column("rank", justify="right")
    for name in ("role", "line", "after", "time"):
        table.add_column(name)
    ordered = sorted(ranks, key=_by_time)
    longest = max((each.seconds_after_first or 0 for each in ranks), default=0)
    for each in ordered[:_MOST_ROWS]:
        table.add_row(*_row(each, longest), style=_STYLES[each.role])
    if len(ordered) > _MOST_ROWS:
        table.caption = f"and {len(ordered) - _MOST_ROWS} more ranks"
    return table


def _by_time(each: RankRole) -> tuple[bool, bool, float, int]:
    unknown = each.seconds_after_first is None
    return each.role != "origin", unknown, each.seconds_after_first or 0.0, each.rank


def _row(each: RankRole, longest: float) -> tuple[str, ...]:
    line = "" if each.first_error_line is None else str(each.first_error_line)
    after = each.seconds_after_first
    if after is None:
        return str(each.rank), each.role, line, "", ""
    dots = round(_BAR * after / longest) if longest else 0
    return str(each.rank), each.role, line, f"+{after:.1f} s", "·" * dots + "●"
