"""Downloads pages one after another over HTTP, patiently, or reads them from a folder."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Protocol

from fsdp_mcp import __version__, call
from fsdp_mcp.errors import EnvironmentProblem

USER_AGENT = f"fsdp-mcp/{__version__} (documentation on request; one connection at a time)"
_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 1.0
_TIMEOUT_SECONDS = 30
_LONGEST_WAIT_SECONDS = 60.0
_MOST_BYTES = 4_000_000
_BUSY = frozenset({429, 500, 502, 503, 504})
_GONE = frozenset({404, 410})


class Source(Protocol):
    """Where the sources of the documentation come from."""

    origin: str

    def read(self, path: str) -> bytes | None:
        """Return the file at `path` below the source, or None when it is not there."""


class WebSource:
    """The sources below an address.

    Args:
        address: of the folder that holds the pages.
    """

    def __init__(self, address: str) -> None:
        self.origin = address.rstrip("/")

    def read(self, path: str) -> bytes | None:
        """Return the file at `path`; None for one that the server does not have.

        A busy server is asked again, each time after a longer pause or the one that it named.

        Raises:
            EnvironmentProblem: the server cannot be reached, refuses, or stays busy.
        """
        url = f"{self.origin}/{path}"
        wait = _FIRST_PAUSE_SECONDS
        for _ in range(_ATTEMPTS - 1):
            try:
                return _get(url)
            except (OSError, ValueError, http.client.HTTPException) as error:
                if isinstance(error, urllib.error.HTTPError) and error.code in _GONE:
                    return None
                if not _is_passing(error):
                    raise EnvironmentProblem(_unreachable(url, error)) from None
                _pause(_named_pause(error, otherwise=wait))
            wait *= 2
        return self._read_at_last(url)

    def _read_at_last(self, url: str) -> bytes | None:
        try:
            return _get(url)
        except (OSError, ValueError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code in _GONE:
                return None
            raise EnvironmentProblem(_unreachable(url, error)) from None


def _is_passing(error: Exception) -> bool:
    """Return whether the same request may succeed in a while."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in _BUSY
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(cause, (TimeoutError, ConnectionResetError, http.client.HTTPException))


def _get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT, "Accept": "text/plain, */*"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310, folder_or_web checks it
        data: bytes = reply.read(_MOST_BYTES + 1)
        missing = int(reply.headers.get("Content-Length") or len(data)) - len(data)
    if missing > 0 and len(data) <= _MOST_BYTES:
        raise http.client.IncompleteRead(data, missing)
    return data


def _pause(seconds: float) -> None:
    """Wait, in steps short enough for Ctrl-C and for a caller that cancels."""
    until = time.monotonic() + min(seconds, _LONGEST_WAIT_SECONDS)
    while (left := until - time.monotonic()) > 0:
        call.check_cancelled()
        time.sleep(min(left, 0.2))


def _named_pause(error: Exception, *, otherwise: float) -> float:
    """Return the seconds that a Retry-After header names; a date in it is not read."""
    header = error.headers.get("Retry-After") if isinstance(error, urllib.error.HTTPError) else None
    return float(header) if header and header.strip().isdigit() else otherwise


def _unreachable(url: str, error: Exception) -> str:
    why = f"HTTP status {error.code}" if isinstance(error, urllib.error.HTTPError) else getattr(error, "reason", error)
    return (
        f"Could not fetch {url}: {why}. What has arrived is kept; run the command again to go on, or name a mirror "
        "or a local checkout of pytorch/pytorch with --from."
    )


class FolderSource:
    """The sources in a folder: a checkout of pytorch/pytorch, or its docs/source.

    Args:
        folder: the checkout or the folder with the pages.
    """

    def __init__(self, folder: Path) -> None:
        below = folder / "docs" / "source"
        self._folder = below if below.is_dir() else folder
        self.origin = str(self._folder.resolve())

    def read(self, path: str) -> bytes | None:
        """Return the file at `path`, or None when the folder does not have it.

        Raises:
            EnvironmentProblem: the file is there and cannot be read.
        """
        found = self._folder / path
        try:
            return found.read_bytes() if found.is_file() else None
        except OSError as error:
            raise EnvironmentProblem(f"{found} cannot be read: {error.strerror}.") from None
