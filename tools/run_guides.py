"""Runs the examples of the guides on CPU Gloo and compares what they print: `make guides`.

A Python block whose first line is `# runs: N ranks` is a whole script. The `text` block after it holds what rank 0
prints. `python -m tools.run_guides fsdp2 ddp` runs those guides only, `--update` writes what was printed into the page.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

GUIDES = Path(__file__).resolve().parents[1] / "docs_corpus" / "guides"
_TIMEOUT_SECONDS = 120
# On torch 2.13 a Gloo thread may free the tensor of the last collective while Python shuts down; waiting for the
# interpreter lock then aborts the process, after its work is done. Remove when a DDP script ends well 100 times
# on a loaded machine.
_EXIT_RACE = "terminate called without an active exception"
_ATTEMPTS = 3
_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_RUNS = re.compile(r"# runs: (?P<ranks>[124]) ranks?$", re.MULTILINE)


class Block(NamedTuple):
    """One fenced block of a guide."""

    language: str
    code: str
    line: int
    start: int
    end: int


class Example(NamedTuple):
    """A script in a guide with what it has to print."""

    guide: str
    line: int
    ranks: int
    code: str
    expected: Block


class Outcome(NamedTuple):
    """What an example printed, and why it failed if it did."""

    output: str
    problem: str


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a Markdown text in order; the line is that of the first line of code."""
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        found.append(Block(match["language"], match["code"], line, match.start("code"), match.end("code")))
    return found


def examples(path: Path) -> Iterator[Example]:
    """Yield each script of the guide in `path`.

    Raises:
        ValueError: no `text` block follows a script.
    """
    found = blocks(path.read_text(encoding="utf-8"))
    for block, following in zip(found, [*found[1:], None], strict=True):
        runs = _RUNS.match(block.code)
        if block.language != "python" or runs is None:
            continue
        if following is None or following.language != "text":
            raise ValueError(f"{path.name}:{block.line}: a script is followed by a ```text block with its output.")
        yield Example(path.stem, block.line, int(runs["ranks"]), block.code, following)


def run(example: Example, *, python: str = sys.executable) -> Outcome:
    """Return what the ranks of `example` print on stdout; a run that the exit race of Gloo ended is repeated."""
    for _ in range(_ATTEMPTS):
        outcome = _run_once(example, python=python)
        if _EXIT_RACE not in outcome.problem:
            break
    return outcome


def _run_once(example: Example, *, python: str) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="guide-") as folder:
        script = Path(folder) / "example.py"
        script.write_text(example.code, encoding="utf-8")
        launcher = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={example.ranks}"]
        process = subprocess.Popen(
            [*launcher, str(script)],
            cwd=folder,
            env=_environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return Outcome("", f"still running after {_TIMEOUT_SECONDS} s")
        finally:
            _end_group(process)
    if process.returncode:
        race = f"{_EXIT_RACE}\n" if _EXIT_RACE in errors else ""
        return Outcome(output, f"exit status {process.returncode}\n{race}{errors[-3000:]}")
    expected = example.expected.code.strip()
    return Outcome(output, "" if output.strip() == expected else f"expected:\n{expected}\nprinted:\n{output.strip()}")


def _environment(folder: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def _end_group(process: subprocess.Popen[str]) -> None:
    if os.name == "posix":
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
    else:
        process.kill()
    process.wait()


def _update(path: Path, example: Example, output: str) -> None:
    text = path.read_text(encoding="utf-8")
    old = f"{example.code}```\n\n```text\n{example.expected.code}```"
    new = f"{example.code}```\n\n```text\n{output.strip()}\n```"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen guides and return how many examples failed, at most 1."""
    parser = argparse.ArgumentParser(description="Run the examples of the guides.")
    parser.add_argument("stems", nargs="*", help="guides to run; all without any")
    parser.add_argument("--update", action="store_true", help="write the output into the page")
    options = parser.parse_args(arguments)
    chosen = [GUIDES / f"{stem}.md" for stem in options.stems] or sorted(GUIDES.glob("*.md"))
    failed = 0
    for path in chosen:
        for example in list(examples(path)):
            outcome = run(example)
            if options.update and outcome.output and "exit status" not in outcome.problem:
                _update(path, example, outcome.output)
                outcome = outcome._replace(problem="")
            failed += bool(outcome.problem)
            print(f"{'FAIL' if outcome.problem else 'ok  '} {example.guide}.md:{example.line} ({example.ranks} ranks)")
            if outcome.problem:
                print(outcome.problem)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
