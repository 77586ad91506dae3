"""The command `docs`: fetch the official pages, add, list and remove collections."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fsdp_mcp import call
from fsdp_mcp.command import add_python, local_caller
from fsdp_mcp.errors import EnvironmentProblem

if TYPE_CHECKING:
    from fsdp_mcp.library.commands import LibraryReport


def add_docs(command: argparse.ArgumentParser) -> None:
    """Make a parser that of `docs`: fetch, add, list and remove."""
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True)
    fetch = _add_verb(
        verbs, "fetch", "Download the official pages of a release into the cache", _DOCS_FETCH, _docs_fetch
    )
    fetch.add_argument("--torch", metavar="X", help="the release, such as 2.6 (default: that of your torch)")
    fetch.add_argument("--from", dest="source", metavar="WHERE", help="a mirror's address or a local folder")
    add = _add_verb(verbs, "add", "Index a folder of your own documents", _DOCS_ADD, _docs_add)
    add.add_argument("path", help="a folder, or one file")
    add.add_argument("--name", required=True, metavar="N", help="what the collection is called in URIs and lists")
    _add_verb(verbs, "list", "Tell what was fetched and added, and what was left out", "", _docs_list)
    remove = _add_verb(verbs, "remove", "Take a collection out of the search", "", _docs_remove)
    remove.add_argument("name", help="as `docs list` shows it")


_DOCS_FETCH = """
Downloads the sources of the pages on torch.distributed from the release's tag of pytorch/pytorch on GitHub, one after
another. Interrupted, it goes on where it stopped when run again. --from takes the address of a folder that holds
distributed.md or .rst (docs/source on a mirror, or the _sources of published pages), a checkout of pytorch/pytorch, or
its docs/source. Nothing is ever fetched unless you run this."""

_DOCS_ADD = """
Takes Markdown (MyST included) and reStructuredText. The documents stay where they are and are read from there: changed,
new and deleted ones count from the next search on, which then waits some seconds for the index. Hidden folders and
links are left out, and so is what is not UTF-8 text, longer than 1 MB, or beyond 2,000 documents."""


def _add_verb(
    verbs: Any, name: str, summary: str, text: str, run: Callable[[argparse.Namespace], LibraryReport]
) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=summary, description=f"{summary}.\n{text}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verb.set_defaults(parser=verb)
    verb.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_python(verb)
    verb.set_defaults(run=lambda options: _docs(options, run))
    return verb


def _docs(options: argparse.Namespace, run: Callable[[argparse.Namespace], LibraryReport]) -> int:
    """Run one verb, print what it did, and build the index that it changed, so that the next search has it."""
    call.enter(local_caller(options))
    report = run(options)
    print(report.model_dump_json() if options.json else report.render())
    if options.verb != "list":
        _bring_index_up_to_date()
    return 0


def _bring_index_up_to_date() -> None:
    from fsdp_mcp.index import build_index
    from fsdp_mcp.target import find_target

    try:
        build_index(find_target())
    except EnvironmentProblem as error:
        print(f"fsdp-mcp: the index is left for later: {error}", file=sys.stderr)


def _docs_fetch(options: argparse.Namespace) -> LibraryReport:
    from fsdp_mcp.library.commands import fetch_official
    from fsdp_mcp.target import require_torch

    version = options.torch or require_torch().torch_version or ""
    with _progress_bar("Fetching") as report:
        return fetch_official(version=version, source=options.source, report=report)


def _docs_add(options: argparse.Namespace) -> LibraryReport:
    from fsdp_mcp.library.commands import add_documents

    return add_documents(options.path, name=options.name)


def _docs_list(options: argparse.Namespace) -> LibraryReport:
    from fsdp_mcp.library.commands import list_collections

    return list_collections()


def _docs_remove(options: argparse.Namespace) -> LibraryReport:
    from fsdp_mcp.library.commands import remove_collection

    return remove_collection(options.name)


@contextmanager
def _progress_bar(title: str) -> Iterator[Callable[[float, float | None, str], None]]:
    """Show a bar on stderr that the function it gives moves on; nothing moves where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total, message: bar.update(task, completed=done, total=total, description=message)
