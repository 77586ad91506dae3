"""What the whole suite shares: a cache of its own, and one event loop."""

from collections.abc import Iterator

import pytest

from fsdp_mcp import call


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache out of the tests; the index is built once a session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSDP_MCP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("FSDP_MCP_PYTHON", raising=False)
        patch.delenv("FSDP_MCP_TOKEN", raising=False)
        patch.delenv("FSDP_MCP_STRUCTURED", raising=False)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_caller() -> Iterator[None]:
    """Let no test inherit the caller that another one entered, nor the folder that it worked in."""
    before = call._CURRENT.set(None)
    yield
    call._CURRENT.reset(before)
