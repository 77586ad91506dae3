"""Links what a page documents by name to the entries of the API index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fsdp_mcp.models import IndexEntry

_PACKAGE = "torch"


class ApiLinks:
    """Finds API entries for the names on one page; names are relative to the module that the page is in.

    Args:
        uris: URI of the entry for each full path.
    """

    def __init__(self, uris: Mapping[str, str]) -> None:
        self._uris = uris
        self._module = ""

    def enter(self, module: str) -> None:
        """Read the names that follow as names in `module`."""
        self._module = module.strip()

    def link(self, name: str) -> str:
        """Return the full name as a Markdown link to its entry, or as code when the index has none."""
        name = name.strip().lstrip("~!").partition("(")[0]
        candidates = [f"{self._module}.{name}", name] if self._module else [name]
        candidates.append(f"{_PACKAGE}.{name}")
        for path in candidates:
            if path in self._uris:
                return f"[{path}]({self._uris[path]})"
        known = name.startswith((f"{_PACKAGE}.", self._module or f"{_PACKAGE}."))
        return f"`{name if known else candidates[0]}`"


def uris_of(entries: Iterable[IndexEntry]) -> dict[str, str]:
    """Return the URI of each API entry by its qualified name and by its other full paths."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.kind != "api" or "#" in entry.uri:
            continue
        found[entry.symbol] = entry.uri
        for name in entry.names:
            if name.startswith(f"{_PACKAGE}."):
                found.setdefault(name, entry.uri)
    return found
