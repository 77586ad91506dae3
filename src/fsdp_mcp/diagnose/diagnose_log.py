"""diagnose_log: which rank failed first, why, and what to do, from logs as they are."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fsdp_mcp import call
from fsdp_mcp.diagnose.answer import LogDiagnosis
from fsdp_mcp.errors import BadArgument, Forbidden
from fsdp_mcp.models import Diagnosis

_MOST_TEXT_BYTES = 16 << 20
_MOST_FILES = 4096
_NO_LOGS = frozenset(
    (
        *(".py", ".pyc", ".ipynb", ".sh", ".c", ".cpp", ".cu", ".so", ".whl", ".yaml", ".yml", ".toml", ".md", ".rst"),
        *(".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".distcp", ".npy", ".npz", ".parquet", ".arrow", ".csv"),
        *(".png", ".jpg", ".pdf", ".zip", ".tar"),
    )
)


def diagnose_log(
    log: Annotated[str | None, Field(description="Text of the log")] = None,
    *,
    path: Annotated[str | None, Field(description="File, folder or glob (also .gz), instead of log")] = None,
    torch_version: Annotated[str | None, Field(description="X.Y that wrote it")] = None,
    mask: Annotated[bool, Field(description="Hide hosts, addresses, users")] = False,
) -> LogDiagnosis:
    """Name the cause of a failed or hung distributed job from its log: first failing rank, evidence lines, fix.

    Use it on NCCL, Gloo, torchrun, FSDP and CUDA errors, time-outs and flight-recorder dumps; give all ranks' logs.
    """
    from fsdp_mcp.diagnose import explain, reading  # what does the work is loaded on the first call

    _check_version(torch_version)
    if (log is None) == (path is None):
        both = "both" if log is not None else "neither"
        raise BadArgument(f"Give exactly one of log (the text) and path (a file, folder or glob); got {both}.")
    if path is not None:
        return explain.explain_files(_files(path), torch_version=torch_version, mask=mask)
    return explain.explain(reading.lines_of_text(_checked(log or "")), torch_version=torch_version, mask=mask)


def known_failure(log: str) -> Diagnosis | None:
    """Return the known failure that a log shows, if a line of it says so rather than a comparison of ranks."""
    from fsdp_mcp.diagnose import explain
    from fsdp_mcp.diagnose.reading import lines_of_text

    return explain.known_failure(lines_of_text(log))


def diagnose_files(names: Sequence[str], *, torch_version: str | None = None, mask: bool = False) -> LogDiagnosis:
    """Name the cause of a failure from several files, folders or globs together, as the command line gives them."""
    from fsdp_mcp.diagnose import explain

    _check_version(torch_version)
    files = list(dict.fromkeys(file for name in names for file in _files(name)))
    return explain.explain_files(_not_too_many(files), torch_version=torch_version, mask=mask)


def diagnose_stream(stream: BufferedReader, *, torch_version: str | None = None, mask: bool = False) -> LogDiagnosis:
    """Name the cause of a failure from a log of any size that comes through a pipe."""
    from fsdp_mcp.diagnose import explain, reading

    _check_version(torch_version)
    return explain.explain(reading.lines_of_stream(stream), torch_version=torch_version, mask=mask)


def _check_version(version: str | None) -> None:
    if version is not None and not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
        raise BadArgument(f"torch_version: got {version[:40]!r}, expected X.Y such as 2.6.")


def _checked(log: str) -> str:
    """Return the text of a log unless it is empty or too long to be passed as text."""
    if not log.strip():
        raise BadArgument("log: got no text. Paste the log, or give path.")
    if len(log) > _MOST_TEXT_BYTES:
        raise BadArgument(f"log: got {len(log):,} characters, {_MOST_TEXT_BYTES >> 20} MB at most. Give path instead.")
    return log


def _files(path: str) -> Sequence[Path]:
    """Return the files that a path, folder or glob names, in name order."""
    if not path.strip():
        raise BadArgument("path: got an empty text. Give a file, a folder of logs or a glob; . is the whole folder.")
    if glob.has_magic(path) and not Path(path).exists():
        return _matching(path)
    found = call.allowed_path(path, argument="path")
    if found.is_dir():
        files = sorted(file for file in found.rglob("*") if file.is_file() and _may_be_log(file) and _is_open(file))
    else:
        files = [found] if found.is_file() else []
    if not files:
        raise BadArgument(f"path: there is no log at {path!r}. Give a file, a folder of logs or a glob.")
    return _not_too_many(files)


def _may_be_log(file: Path) -> bool:
    """Return whether a file found in a folder may be a log or a dump: no program, no document, no weights."""
    return not file.name.startswith(".") and file.suffix.lower() not in _NO_LOGS


def _is_open(file: Path) -> bool:
    """Return whether a file found in a folder lies where the caller may read, also when it is a link."""
    try:
        call.allowed_path(str(file), argument="path")
    except (BadArgument, Forbidden):
        return False
    return os.access(file, os.R_OK)


def _matching(pattern: str) -> Sequence[Path]:
    """Return the files that a glob names; each has to lie where the caller may read."""
    root = next(iter(call.current().roots), Path())
    names = glob.glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207, Path.glob takes no absolute pattern
    files = sorted(file for name in names if (file := call.allowed_path(name, argument="path")).is_file())
    if not files:
        raise BadArgument(f"path: no file matches {pattern!r} below {root}.")
    return _not_too_many(files)


def _not_too_many(files: Sequence[Path]) -> Sequence[Path]:
    if len(files) > _MOST_FILES:
        raise BadArgument(f"path: {len(files):,} files, {_MOST_FILES:,} at most. Give a narrower glob.")
    return files
