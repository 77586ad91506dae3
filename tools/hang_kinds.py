"""Print which kinds of hangs run_on_gloo explains right: `python -m tools.hang_kinds [NAME ...]`.

Each script of tests/verify/scripts/hangs names the kind in its first line and marks the line at fault; right means that
kind, and an explanation that speaks of that line.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from fsdp_mcp.lab import Program
from fsdp_mcp.run_report import RunReport
from fsdp_mcp.verify.run import run_ranks

SCRIPTS = Path(__file__).parents[1] / "tests" / "verify" / "scripts" / "hangs"
TIMEOUT_SECONDS = 15.0
"""Long enough that a run which ends early is told from one that ran into the limit."""


@dataclass(frozen=True)
class Case:
    """A script that hangs, its kind and the line at fault."""

    name: str
    code: str
    kind: str
    line: int


def cases() -> list[Case]:
    """Return the scripts, by name."""
    found = []
    for path in sorted(SCRIPTS.glob("*.py")):
        code = path.read_text(encoding="utf-8")
        marked = [number for number, line in enumerate(code.splitlines(), 1) if "# <- here" in line]
        found.append(Case(path.stem, code, code.splitlines()[0].removeprefix("# hang: "), marked[0]))
    return found


def run(case: Case) -> RunReport:
    """Run a script on three ranks where it needs a rank outside a group, else on two."""
    size = 3 if "new_group([0, 1])" in case.code and case.name.startswith(("new_group", "wrong")) else 2
    return run_ranks(Program(files={"train.py": case.code}, world_size=size, timeout_seconds=TIMEOUT_SECONDS))


def right(case: Case, report: RunReport) -> bool:
    """Return whether the report names the kind and the line."""
    hang = report.hang
    return hang is not None and hang.kind == case.kind and f"train.py:{case.line}" in hang.explanation


def main() -> None:
    """Run the named scripts, or all, and print a line for each."""
    wanted = sys.argv[1:]
    counted = []
    for case in cases():
        if wanted and case.name not in wanted:
            continue
        report = run(case)
        counted.append(right(case, report))
        kind = report.hang.kind if report.hang else "no hang"
        print(f"{'right' if counted[-1] else 'WRONG'}  {case.name:32} {kind:28} {report.seconds:5.1f} s", flush=True)
        if wanted or not counted[-1]:
            print(report.render(), flush=True)
    print(f"{sum(counted)} of {len(counted)} explained right")


if __name__ == "__main__":
    main()
