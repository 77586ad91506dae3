"""Links what a page documents by name to the entries of the API index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from fsdp_mcp.library.references import References
from fsdp_mcp.models import IndexEntry

_PACKAGE = "torch"


class ApiLinks:
    """Finds API entries for the names on one page; names are relative to the module that the page is in.

    Args:
        uris: URI of the entry for each full path.
        references: where references to other sections lead; none are known by default.
        page: name of the page, which names of pages are relative to.
    """

    def __init__(self, uris: Mapping[str, str], *, references: References | None = None, page: str = "") -> None:
        self._uris = uris
        self._module = ""
        self._references = references or References({}, {})
        self._page = page

    def reference(self, role: str, content: str) -> str | None:
        """Return the link of a role that refers to a section or a page; None when there is nothing known to link."""
        return self._references.role(role, content, page=self._page)

    def destination(self, target: str) -> str:
        """Return where the link of a page to `target` leads: a section of another page, or `target` as it stands."""
        return self._references.destination(target, page=self._page) or target

    def enter(self, module: str) -> None:
        """Read the names that follow as names in `module`."""
        self._module = module.strip()

    def link(self, name: str) -> str:
        """Return the full name as a Markdown link to its entry, or as code when the index has none."""
        path = self._path(name)
        return f"[{path}]({self._uris[path]})" if path in self._uris else f"`{path}`"

    @contextmanager
    def inside(self, owner: str) -> Iterator[None]:
        """Read the names within as members of the class `owner`, and afterwards as before."""
        outer = self._module
        self._module = self._path(owner)
        yield
        self._module = outer

    def members(self, module: str) -> list[str]:
        """Return the names in `module` that the index has, each entry once."""
        prefix = f"{module.strip()}."
        inside = [path for path in self._uris if path.startswith(prefix) and "." not in path.removeprefix(prefix)]
        return sorted({self._uris[path]: path for path in inside}.values())

    def _path(self, name: str) -> str:
        """Return the full path that `name` means here: one that the index has, else the likeliest."""
        name = name.strip().lstrip("~!").partition("(")[0]
        owner = self._module.rpartition(".")[2]
        if owner and name.startswith(f"{owner}."):
            name = name.removeprefix(f"{owner}.")  # A member that is written with its class, inside that class.
        candidates = [f"{self._module}.{name}", name] if self._module else [name]
        candidates.append(f"{_PACKAGE}.{name}")
        known = name.startswith((f"{_PACKAGE}.", self._module or f"{_PACKAGE}."))
        return next((path for path in candidates if path in self._uris), name if known else candidates[0])


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
