"""The HTTP service around the server: token, hosts, limits, health, workers."""

from __future__ import annotations

import hmac
import logging
import os
import socket
from collections.abc import Callable, MutableMapping
from dataclasses import asdict, dataclass
from json import dumps, loads
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.supervisors import Multiprocess

from fsdp_mcp import __version__
from fsdp_mcp.errors import BadArgument, EnvironmentProblem
from fsdp_mcp.server import Settings, build_server

logger = logging.getLogger("fsdp_mcp")

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BODY_BYTES = 4 * 1024 * 1024  # 1 MB of code, escaped, with room.
_CONNECTIONS = 256
_SHUTDOWN_SECONDS = 2
_WORKER_SETTINGS = "FSDP_MCP_HTTP_SERVICE"  # How a worker process learns what the first process was told.


@dataclass(frozen=True)
class Service:
    """Where and for whom to serve.

    Args:
        host: address to bind; anything but loopback needs a token.
        port: TCP port; 0 lets the system choose.
        workers: processes; more than one serves handshake-era clients statelessly.
        token: bearer token that every request except /health must carry, or None.
        allowed_hosts: further names by which clients reach this service.
        log_level: uvicorn's.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    log_level: str = "warning"


def read_token(token_file: Path | None) -> str | None:
    """Return the token in `token_file`, else the one in FSDP_MCP_TOKEN, else None.

    Raises:
        BadArgument: the file cannot be read or is empty.
    """
    if token_file is None:
        return os.environ.get("FSDP_MCP_TOKEN") or None
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadArgument(f"--token-file: {token_file} cannot be read ({error.strerror}).") from None
    if not token:
        raise BadArgument(f"--token-file: {token_file} is empty. Put a long random text into it.")
    return token


def serve_http(settings: Settings, service: Service) -> None:
    """Serve MCP at /mcp and a health check at /health until SIGTERM or SIGINT.

    Raises:
        BadArgument: another address than loopback without a token; a port or a number of workers that cannot be.
        EnvironmentProblem: the port is taken or the address is not this machine's.
    """
    if not 0 <= service.port <= 65_535:
        raise BadArgument(f"--port: got {service.port}, expected 0 to 65535, where 0 lets the system choose.")
    if service.workers < 1:
        raise BadArgument(f"--workers: got {service.workers}, expected at least 1.")
    if service.host not in _LOOPBACK and not service.token:
        raise BadArgument(
            f"--host: {service.host} is reachable from outside, so a token is needed. "
            "Set FSDP_MCP_TOKEN or --token-file, or bind to 127.0.0.1."
        )
    listener = _listen(service.host, service.port)
    port = listener.getsockname()[1]
    logger.warning("Serving MCP at http://%s:%d/mcp (health check at /health)", service.host, port)
    if service.workers > 1:
        _serve_with_workers(settings, service, listener)
        return
    uvicorn.Server(_config(lambda: build_app(settings, service), service)).run(sockets=[listener])


def _serve_with_workers(settings: Settings, service: Service, listener: socket.socket) -> None:
    logger.warning("%d workers: handshake-era clients get neither progress nor cancellation.", service.workers)
    told = {**asdict(settings), "python": str(settings.python) if settings.python else None}
    os.environ[_WORKER_SETTINGS] = dumps([told, asdict(service)])
    config = _config("fsdp_mcp.http:worker_app", service)
    Multiprocess(config, sockets=[listener]).run()


def worker_app() -> ASGIApp:
    """Build the app in a worker process from what the first process left in the environment."""
    settings, service = loads(os.environ.pop(_WORKER_SETTINGS))
    python = Path(settings.pop("python")) if settings["python"] else settings.pop("python")
    allowed_hosts = tuple(service.pop("allowed_hosts"))
    return build_app(Settings(**settings, python=python), Service(**service, allowed_hosts=allowed_hosts))


def _config(app: str | Callable[[], ASGIApp], service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=True,
        workers=service.workers,
        log_level=service.log_level,
        access_log=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        server_header=False,
    )


def _listen(host: str, port: int) -> socket.socket:
    """Return a bound socket whose protocol number is TCP's: asyncio turns Nagle's delay off only then.

    Remove the protocol number when uvicorn sets TCP_NODELAY for inherited sockets itself (uvicorn issue 3149).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name != "nt":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise EnvironmentProblem(
            f"Port {port} on {host} cannot be bound ({error.strerror}). Choose another with --port, or stop its owner."
        ) from None
    listener.set_inheritable(True)
    return listener


def build_app(settings: Settings, service: Service) -> ASGIApp:
    """Return the ASGI application: MCP at /mcp behind the token, /health open."""
    app = build_server(settings).streamable_http_app(
        stateless_http=service.workers > 1,
        max_request_body_size=_BODY_BYTES,
        transport_security=_security(service),
        custom_starlette_routes=[Route("/health", _health)],
    )
    return TokenGate(app, service.token) if service.token else app


def _security(service: Service) -> TransportSecuritySettings:
    """Accept the Host and Origin headers of loopback, of the bound address and of the named hosts."""
    named = [*_LOOPBACK[:2], "[::1]", *service.allowed_hosts]
    if service.host not in ("0.0.0.0", "::", *_LOOPBACK):  # noqa: S104, compared, not bound
        named.append(f"[{service.host}]" if ":" in service.host else service.host)
    hosts = [pattern for name in named for pattern in (name, f"{name}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
    )


async def _health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "ok", "version": __version__})


class TokenGate:
    """Lets a request through when it carries the bearer token; /health is open."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 without the token, else hand the request on."""
        if scope["type"] != "http" or scope["path"] == "/health" or self._is_authorised(scope):
            await self._app(scope, receive, send)
            return
        response = PlainTextResponse(
            "A bearer token is required: send the header 'Authorization: Bearer <token>'.\n",
            status_code=401,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await response(scope, receive, send)

    def _is_authorised(self, scope: MutableMapping[str, Any]) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self._expected)
