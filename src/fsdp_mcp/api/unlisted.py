"""APIs that no reader of files finds, answered from a table: private names and what a binding has beyond its stub."""

from __future__ import annotations

from fsdp_mcp.api.answer import ApiAnswer, Detail
from fsdp_mcp.api.catalogue import expanded
from fsdp_mcp.api.changes import Change, Status
from fsdp_mcp.corpus import load_facts
from fsdp_mcp.models import SymbolKind, Value
from fsdp_mcp.releases import release_numbers


class Unlisted(Value):
    """One row of `facts/api_unlisted.yaml`."""

    name: str
    kind: SymbolKind
    since: str | None = None
    deprecated_since: str | None = None
    replaced_by: str | None = None
    note: str
    source: str


def unlisted_answer(wanted: str, *, version: str, detail: Detail) -> ApiAnswer | None:
    """Return what the table knows of a name or the end of one, None for nothing."""
    name = expanded(wanted)
    rows = load_facts("api_unlisted", Unlisted)
    row = next((row for row in rows if f".{row.name}".endswith((f".{name}", f".{wanted}"))), None)
    if row is None:
        return None
    status = _status(row, version)
    return ApiAnswer(
        name=row.name.rpartition(".")[2],
        qualified_name=row.name,
        kind=row.kind,
        status=status,
        signature=None,
        parameters=(),
        returns=None,
        summary=row.note,
        text=row.note,
        since=row.since,
        since_exact=True,
        until=None,
        changes=(Change(version=row.deprecated_since, change="deprecated"),) if row.deprecated_since else (),
        other_paths=(),
        replaced_by=None if status == "not_yet" else row.replaced_by,
        page=None,
        url=None,
        source=None,
        torch_version=version,
        warnings=(),
        detail=detail,
    )


def _status(row: Unlisted, version: str) -> Status:
    asked = release_numbers(version)
    if row.since and row.since != "2.0" and release_numbers(row.since) > asked:
        return "not_yet"
    is_marked = row.deprecated_since is not None and release_numbers(row.deprecated_since) <= asked
    return "deprecated" if is_marked else "available"
