"""Every test here ends with a look for what a run may have left: processes and scratch folders."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from living_processes import processes_that_mention, wait_until_ended


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put scratch folders below a folder of the test; afterwards it has to be empty and no process may speak of it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    assert list(folder.iterdir()) == []
    if sys.platform.startswith("linux"):
        # One that is being ended may take a moment to go.
        assert wait_until_ended(processes_that_mention(str(folder)), seconds=10)


@pytest.fixture
def isolation(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what makes runs use one kind of isolation."""
    return lambda kind: monkeypatch.setenv("FSDP_MCP_ISOLATION", kind)
