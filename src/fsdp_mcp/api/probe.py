"""Adds to C++ types what only a running torch knows: their docstrings and true defaults."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from fsdp_mcp.api.docstrings import document
from fsdp_mcp.api.signatures import shown_parameter
from fsdp_mcp.models import ApiParameter, ApiSymbol

_LOG = logging.getLogger(__name__)
_PROBE_SECONDS = 120
_KEPT_VARIABLES = ("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMP")
_UNKNOWN_DEFAULT = "..."
_PLAIN_PROPERTY = "self: handle"
_ENUM_MEMBERS = re.compile(r"(^|\n)Members:\s*(\n\s*\w+( : .*)?\s*)*$")
_OBJECT = re.compile(r"<[^<>]*>")


class Probe:
    """A process of the target interpreter that imports torch and reports docstrings; start it early, read it late."""

    def __init__(self, python: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fsdp-mcp-probe-", ignore_cleanup_errors=True)
        source = Path(__file__).with_name("probe_main.py").read_text(encoding="utf-8")
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = subprocess.Popen(
                [str(python), "-c", source],
                cwd=self._folder.name,
                env={**kept, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                start_new_session=os.name == "posix",
            )
        except OSError as error:
            _LOG.warning("no docstrings of C++ types: %s", error)

    def docstrings(self) -> dict[str, str]:
        """Return the docstrings by defining path; empty, and logged, when the process failed or took too long."""
        process = self._process
        if process is None:
            self._folder.cleanup()
            return {}
        try:
            output, _ = process.communicate(timeout=_PROBE_SECONDS)
            found = json.loads(output.splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
            process.kill()
            process.communicate()
            _LOG.warning("no docstrings of C++ types: %s", error)
            return {}
        finally:
            self._folder.cleanup()
        return {str(path): str(text) for path, text in found.items()} if isinstance(found, dict) else {}


def with_docstrings(symbols: Iterable[ApiSymbol], docstrings: Mapping[str, str]) -> tuple[ApiSymbol, ...]:
    """Return the symbols, those of C++ types documented from the docstrings of a running torch."""
    return tuple(_documented(symbol, docstrings) for symbol in symbols)


def _documented(symbol: ApiSymbol, docstrings: Mapping[str, str]) -> ApiSymbol:
    if not symbol.home.startswith("torch._C."):
        return symbol
    texts = [docstrings.get(symbol.home, ""), docstrings.get(f"{symbol.home}.__init__", "")]
    headers = [header for text in texts for header in signatures_in(text)]
    body = "\n\n".join(filter(None, map(prose_in, texts)))
    return document(_with_defaults(symbol, headers), body or None)


def _is_header(line: str) -> bool:
    return bool(re.match(r"^(\d+\. )?\w+\(.*\)( -> .*)?$", line)) or line.startswith("Overloaded function.")


def prose_in(docstring: str) -> str:
    """Return a pybind11 docstring without the signatures that pybind11 writes above it."""
    lines = [line for line in docstring.expandtabs().splitlines() if not _is_header(line.strip())]
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    text = "\n".join(line[margin:] for line in lines).strip("\n")
    return "" if text.strip() == _PLAIN_PROPERTY else _ENUM_MEMBERS.sub("", text).rstrip()


def signatures_in(docstring: str) -> list[dict[str, str]]:
    """Return the defaults by parameter name of each signature that pybind11 wrote into a docstring."""
    found = []
    for line in map(str.strip, docstring.splitlines()):
        if _is_header(line) and "(" in line:
            defaults = _defaults(re.sub(r"^\d+\. ", "", line))
            if defaults:
                found.append(defaults)
    return found


def _defaults(header: str) -> dict[str, str]:
    """Return the defaults in `name(self: X, a: int = 3) -> None`; values without a Python spelling are left out."""
    try:
        node = ast.parse(f"def {_OBJECT.sub(_UNKNOWN_DEFAULT, header)}: ...").body[0]
    except SyntaxError:
        return {}
    if not isinstance(node, ast.FunctionDef):
        return {}
    arguments = [*node.args.posonlyargs, *node.args.args]
    with_default = arguments[len(arguments) - len(node.args.defaults) :]
    pairs = [*zip(with_default, node.args.defaults, strict=True), *_keyword_only(node.args)]
    return {argument.arg: ast.unparse(default) for argument, default in pairs}


def _keyword_only(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr]]:
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [(argument, default) for argument, default in pairs if default is not None]


def _with_defaults(symbol: ApiSymbol, headers: Iterable[Mapping[str, str]]) -> ApiSymbol:
    """Return the symbol with the defaults that its stub leaves open, where all signatures agree on the name."""
    known: dict[str, str] = {}
    for header in headers:
        known.update(header)
    changed = {
        parameter.name: parameter.model_copy(update={"default": known[parameter.name]})
        for parameter in symbol.parameters
        if parameter.default == _UNKNOWN_DEFAULT and known.get(parameter.name, _UNKNOWN_DEFAULT) != _UNKNOWN_DEFAULT
    }
    if not changed or symbol.signature is None:
        return symbol
    signature = symbol.signature
    for parameter in symbol.parameters:
        if parameter.name in changed:
            signature = signature.replace(_shown(parameter), _shown(changed[parameter.name]))
    parameters = tuple(changed.get(parameter.name, parameter) for parameter in symbol.parameters)
    return symbol.model_copy(update={"parameters": parameters, "signature": signature})


def _shown(parameter: ApiParameter) -> str:
    return shown_parameter(parameter.name, parameter.type, parameter.default)
