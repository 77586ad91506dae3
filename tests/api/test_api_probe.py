"""A running torch tells the docstrings of its C++ types; without one, nothing breaks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fsdp_mcp.api.catalogue import Catalogue
from fsdp_mcp.api.probe import Probe, prose_in, signatures_in, with_docstrings
from fsdp_mcp.models import ApiParameter, ApiSymbol

_PYBIND = (
    "__init__(self: torch._C.S, host: str, port: int, main: bool = False,"
    " wait: datetime.timedelta = datetime.timedelta(0, 300), op: torch._C.Op = <Op.SUM: 0>) -> None\n\n"
    "Creates a store.\n\nArgs:\n    host (str): Where to listen.\n"
)


def _store() -> ApiSymbol:
    return ApiSymbol(
        name="S",
        qualified_name="torch.S",
        kind="class",
        home="torch._C.S",
        signature="S(host: str, port: int, main: bool = ..., wait: timedelta = ..., op: Op = ...)",
        parameters=(
            ApiParameter(name="host", type="str"),
            ApiParameter(name="port", type="int"),
            ApiParameter(name="main", type="bool", default="..."),
            ApiParameter(name="wait", type="timedelta", default="..."),
            ApiParameter(name="op", type="Op", default="..."),
        ),
    )


def test_a_docstring_of_a_cpp_type_gives_text_descriptions_and_defaults() -> None:
    (told,) = with_docstrings([_store()], {"torch._C.S.__init__": _PYBIND})
    assert told.signature == (
        "S(host: str, port: int, main: bool = False, wait: timedelta = datetime.timedelta(0, 300), op: Op = ...)"
    )
    assert told.summary == "Creates a store."
    assert told.parameters[0].description == "Where to listen."
    assert [item.default for item in told.parameters] == [None, None, "False", "datetime.timedelta(0, 300)", "..."]


def test_symbols_of_python_files_and_undocumented_ones_stay_as_they_are() -> None:
    python = ApiSymbol(name="f", qualified_name="torch.f", kind="function", home="torch.f")
    assert with_docstrings([python, _store()], {"torch.f": "f() -> None\n\nOther."}) == (python, _store())


@pytest.mark.parametrize(
    ("docstring", "prose"),
    [
        ("wait(self: S) -> None\n\n\nWaits.\n", "Waits."),
        (
            "wait(*args, **kwargs)\nOverloaded function.\n\n1. wait(self: S) -> None\n\nOnce.\n\n"
            "2. wait(self: S, t: int) -> None\n\nTwice.",
            "Once.\n\n\nTwice.",
        ),
        ("\n    Indented.\n      More.\n", "Indented.\n  More."),
        ("Levels of detail.\n\nMembers:\n\n  OFF\n\n  INFO : More.", "Levels of detail."),
        ("Members:\n\n  SUM\n\n  AVG", ""),
        ("f(x: int) -> int\n", ""),
        ("", ""),
    ],
)
def test_the_signatures_above_a_docstring_are_no_prose(docstring: str, prose: str) -> None:
    assert prose_in(docstring) == prose


def test_a_signature_that_is_no_python_has_no_defaults() -> None:
    assert signatures_in("f(self: S, x: int = ]) -> None") == []


@pytest.mark.parametrize("python", [Path("/nonexistent/python"), Path(__file__)])
def test_an_interpreter_that_does_not_run_gives_nothing(python: Path) -> None:
    assert Probe(python).docstrings() == {}


def test_the_installed_torch_documents_its_stores(catalogue: Catalogue) -> None:
    docstrings = Probe(Path(sys.executable)).docstrings()
    symbols = {symbol.qualified_name: symbol for symbol in with_docstrings(catalogue, docstrings)}
    store = symbols["torch.distributed.TCPStore"]
    assert store.summary is not None
    assert store.signature is not None
    assert "= ..." not in store.signature
    assert all(item.description for item in store.parameters)
    assert symbols["torch.distributed.Store.set"].summary is not None
    documented = [name for name, symbol in symbols.items() if symbol.text and symbol.home.startswith("torch._C.")]
    assert len(documented) > 75
