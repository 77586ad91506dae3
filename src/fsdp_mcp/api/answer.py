"""What lookup_api returns, and how it reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fsdp_mcp.api.changes import Change, Status
from fsdp_mcp.models import ApiParameter, Result, SymbolKind
from fsdp_mcp.releases import release_numbers

Detail = Literal["summary", "signature", "full"]
_SUMMARY_CHARACTERS = 300
_TABLE_CHARACTERS = 650
_ONE_LINE_SIGNATURE = 100
_SHOWN_CHANGES = 3
_SHOWN_LATER = 1
_MOST_OWN = 5
_SETTINGS = ("env_var", "option")  # Their text is short and is what was asked for.
_SHOWN_MEMBERS = 12


class ApiAnswer(Result):
    """What there is to know of one API."""

    name: str = Field(description="Last part of the qualified name")
    qualified_name: str = Field(description="Most public path")
    kind: SymbolKind
    status: Status = Field(description="In the torch that torch_version names")
    signature: str | None
    parameters: tuple[ApiParameter, ...]
    returns: str | None
    summary: str | None = Field(description="First paragraph of the docstring")
    text: str | None = Field(description="Docstring without the parameters, as Markdown")
    since: str | None = Field(description="First release that has it; 2.0 means 2.0 or earlier")
    since_exact: bool = Field(description="False for C++ types whose stub may be late")
    until: str | None = Field(description="Last release that has it")
    changes: tuple[Change, ...] = Field(description="Oldest first")
    members: tuple[str, ...] = Field(default=(), description="What a class defines or a module contains")
    other_paths: tuple[str, ...]
    replaced_by: str | None = Field(description="What to use instead")
    page: str | None = Field(description="Name of the official page")
    url: str | None
    source: str | None = Field(description="File and line in torch")
    torch_version: str | None = Field(description="The torch that the answer is about")
    warnings: tuple[str, ...]
    detail: Detail = Field(default="summary", exclude=True, description="How much render shows")

    def render(self) -> str:
        """Return signature, summary and parameters as `detail` asks, then status, history and where to read on."""
        blocks = [self._head(), *self._described(), self._footer()]
        return "\n\n".join(block for block in blocks if block)

    def _head(self) -> str:
        version = f", torch {self.torch_version}" if self.torch_version else ""
        head = f"**{self.qualified_name}** ({self.kind}{version}; {self._history()})"
        notes = [f"- {note}" for note in self.warnings]
        instead = [f"- Use instead: `{self.replaced_by}`"] if self.replaced_by else []
        language = "" if self.kind == "option" else "python"
        code = [f"```{language}\n{wrapped(self.signature)}\n```"] if self.signature else []
        return "\n".join([head, *notes, *instead, *code])

    def _history(self) -> str:
        words = [self.status.replace("_", " ")]
        if self.since:
            words.append(f"since {'' if self.since_exact else 'at the latest '}{self.since}")
        if self.until:
            words.append(f"last in {self.until}")
        return ", ".join(words)

    def _described(self) -> list[str]:
        if self.detail == "signature":
            return []
        if self.detail == "full" or self.kind in _SETTINGS:
            return [self.text or "", self._full_table(), self._member_line(len(self.members))]
        summary = shortened(self.summary or "", _SUMMARY_CHARACTERS)
        return [summary, self._short_table(), self._member_line(_SHOWN_MEMBERS)]

    def _member_line(self, most: int) -> str:
        """Return the names of the members, those of a dataclass that are its parameters left out."""
        fields = {item.name for item in self.parameters}
        names = [name for name in self.members if name not in fields]
        more = f", and {len(names) - most} more (detail='full')" if len(names) > most else ""
        return f"{'Contains' if self.kind == 'module' else 'Members'}: {', '.join(names[:most])}{more}" if names else ""

    def _short_table(self) -> str:
        """Return a line for each public parameter that has something to say, its description cut."""
        shown = [item for item in self.parameters if not item.name.lstrip("*").startswith("_")]
        told = [item for item in shown if item.description or self._since(item)]
        limit = max(50, min(220, _TABLE_CHARACTERS // max(len(told), 1)))
        return "\n".join(self._row(item, shortened(item.description or "", limit)) for item in told)

    def _full_table(self) -> str:
        rows = [self._row(item, (item.description or "").replace("\n", "\n  ")) for item in self.parameters]
        return "**Parameters:**\n\n" + "\n".join(rows) if rows else ""

    def _row(self, parameter: ApiParameter, description: str) -> str:
        since = self._since(parameter)
        head = f"- `{parameter.name}`" + (f" (since {since})" if since else "")
        return f"{head}: {description}" if description else head

    def _since(self, parameter: ApiParameter) -> str | None:
        """Return the release of a parameter that came later than the API itself."""
        later = parameter.since and self.since and release_numbers(parameter.since) > release_numbers(self.since)
        return parameter.since if later else None

    def _footer(self) -> str:
        full = self.detail == "full"
        shown = self.changes if full else self._near_changes()
        more = len(self.changes) - len(shown)
        lines = [f"- {item.version}: {item.change if full else shortened(item.change, 200)}" for item in shown]
        if more:
            lines.insert(0, f"Changes ({len(shown)} of {len(self.changes)}; detail='full' has all):")
        elif lines:
            lines.insert(0, "Changes:")
        if self.other_paths and full:
            lines.append(f"Also importable as: {', '.join(self.other_paths)}")
        lines.append(" · ".join(part for part in (self.url, self.source) if part))
        return "\n".join(line for line in lines if line)

    def _near_changes(self) -> tuple[Change, ...]:
        """Return the changes nearest to the release that the answer is about: those up to it, then what came after."""
        asked = release_numbers(self.torch_version) if self.torch_version else (0,)
        before = [item for item in self.changes if release_numbers(item.version) <= asked]
        after = [item for item in self.changes if release_numbers(item.version) > asked]
        latest = before[-1].version if before else None
        own = [item for item in before if item.version == latest]
        earlier = max(_SHOWN_CHANGES - len(after[:_SHOWN_LATER]), min(len(own), _MOST_OWN))
        return (*before[-earlier:], *after[: max(_SHOWN_CHANGES - len(before), _SHOWN_LATER)])


def wrapped(signature: str) -> str:
    """Return a signature with one parameter a line when it is long; brackets inside a parameter stay together."""
    return "\n".join(_wrapped_line(line) for line in signature.split("\n"))


def _wrapped_line(line: str) -> str:
    opening, closing = line.find("("), line.rfind(")" if ") -> " not in line else ") -> ")
    if len(line) <= _ONE_LINE_SIGNATURE or opening < 0 or closing < 0:
        return line
    parts, depth, start = [], 0, opening + 1
    for at in range(start, closing):
        depth += (line[at] in "([{") - (line[at] in ")]}")
        if line[at] == "," and depth == 0:
            parts.append(line[start:at].strip())
            start = at + 1
    parts.append(line[start:closing].strip())
    return f"{line[: opening + 1]}\n" + "".join(f"    {part},\n" for part in parts) + line[closing:]


def shortened(text: str, limit: int) -> str:
    """Return the first sentences of `text` that fit in `limit` characters, else its beginning with an ellipsis."""
    flat = " ".join(text.split())
    if len(flat) <= limit:
        return flat
    head = flat[:limit]
    end = max(head.rfind(". "), head.rfind("; "))
    return head[: end + 1] if end >= limit // 3 else head[: head.rfind(" ")].rstrip(" ,;:-") + " …"
