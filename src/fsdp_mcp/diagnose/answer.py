"""The answer of diagnose_log: findings with their evidence, and what each rank was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from fsdp_mcp.models import Result, Value

Role = Literal["origin", "victim", "healthy", "silent"]


class Evidence(Value):
    """A line of the log."""

    line: int = Field(description="Number in its file, from 1")
    text: str
    file: str | None = Field(description="Its file; null for text that was given")


class Finding(Value):
    """A cause."""

    id: str = Field(description="Of the page fsdp://failures/{id}")
    title: str
    confidence: Literal["high", "medium", "low"]
    rank: int | None = Field(description="The rank that failed first")
    evidence: tuple[Evidence, ...]
    cause: str
    fix: str
    next_evidence: str = Field(description="What would settle it")
    url: str


class RankRole(Value):
    """What a rank was in the failure."""

    rank: int
    role: Role
    first_error_line: int | None
    seconds_after_first: float | None = Field(
        description="From the first failure of any rank to this rank's, by the log's time stamps"
    )


class LogDiagnosis(Result):
    """What a log shows: the cause with its evidence, or that there is none that is known."""

    verdict: Literal["found", "none"]
    summary: str
    findings: tuple[Finding, ...]
    ranks: tuple[RankRole, ...]

    @property
    def negative(self) -> bool:
        """Whether a failure was found."""
        return self.verdict == "found"

    def render(self) -> str:
        """Return the cause, the fix, the lines that show it, and the ranks."""
        parts = [self.summary]
        for number, finding in enumerate(self.findings):
            parts.append(_rendered(finding) if number == 0 else _rendered_briefly(finding))
        if len(self.ranks) > 1:
            parts.append(f"Ranks: {_roles(self.ranks)}.")
        return "\n\n".join(parts)


def _rendered(finding: Finding) -> str:
    quoted = "\n".join(f"{each.file + ':' if each.file else ''}{each.line}: {each.text}" for each in finding.evidence)
    lines = [
        f"Cause: {finding.cause}",
        f"Fix: {finding.fix}",
        f"Evidence (quoted from the log):\n```\n{quoted.replace('```', '` ` `')}\n```",
        f"If that does not settle it: {finding.next_evidence}",
        f"More: read_doc('fsdp://failures/{finding.id}') · {finding.url}",
    ]
    return "\n\n".join(lines)


def _rendered_briefly(finding: Finding) -> str:
    where = finding.evidence[0]
    return f"Also possible: {finding.title} (line {where.line}). {finding.cause.split('. ')[0].rstrip('.')}."


def _roles(ranks: Sequence[RankRole]) -> str:
    roles: tuple[Role, ...] = ("origin", "victim", "healthy", "silent")
    by_role = {role: spans(each.rank for each in ranks if each.role == role) for role in roles}
    return "; ".join(f"{role} {numbers}" for role, numbers in by_role.items() if numbers)


def spans(ranks: Iterable[int | None]) -> str:
    """Write ranks as `0-3, 5`."""
    found: list[list[int]] = []
    for rank in sorted({rank for rank in ranks if rank is not None}):
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
