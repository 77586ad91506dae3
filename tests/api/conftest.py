"""A small torch of our own, written file by file, and the installed one, read once."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.api.docstrings import document
from fsdp_mcp.api.extract import TorchApi, extract_api, read_torch
from fsdp_mcp.api.pages import with_page
from fsdp_mcp.models import ApiSymbol

Read = Callable[[Mapping[str, str]], dict[str, ApiSymbol]]


@pytest.fixture
def write_torch(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Return a function that writes files below a torch folder, each text dedented, and returns the folder."""

    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / "torch" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text), encoding="utf-8")
            for folder in path.relative_to(tmp_path / "torch").parents:
                package = tmp_path / "torch" / folder / "__init__.py"
                if not package.exists():
                    package.write_text("", encoding="utf-8")
        return tmp_path / "torch"

    return write


@pytest.fixture
def read(write_torch: Callable[[Mapping[str, str]], Path]) -> Read:
    """Return a function that reads such a torch into its symbols by qualified name."""

    def symbols(files: Mapping[str, str]) -> dict[str, ApiSymbol]:
        return {symbol.qualified_name: symbol for symbol in extract_api(write_torch(files))}

    return symbols


@pytest.fixture(scope="session")
def torch_dir() -> Path:
    """The folder of the installed torch, found without importing it."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture(scope="session")
def torch_version(torch_dir: Path) -> str:
    """The version of the installed torch, X.Y.Z."""
    from fsdp_mcp.target import _read_versions

    return _read_versions(torch_dir)["__version__"].partition("+")[0]


@pytest.fixture(scope="session")
def torch_api(torch_dir: Path) -> TorchApi:
    """What the installed torch offers."""
    return read_torch(torch_dir)


@pytest.fixture(scope="session")
def catalogue(torch_api: TorchApi, torch_version: str) -> Catalogue:
    """The catalogue of the installed torch."""
    symbols = [with_page(document(raw.symbol, raw.docstring)) for raw in torch_api.symbols]
    return Catalogue.of(symbols, torch_version=torch_version)
