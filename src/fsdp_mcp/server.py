"""Turns TOOLS into MCP: tool calls with progress and cancellation, resources, prompts, completions, start and end."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import anyio
import anyio.from_thread
import anyio.to_thread
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from fsdp_mcp import __version__, call, prompts, toolbox
from fsdp_mcp.call import Caller
from fsdp_mcp.errors import FsdpMcpError
from fsdp_mcp.models import Result
from fsdp_mcp.toolbox import Tool

logger = logging.getLogger("fsdp_mcp")

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")

_PATH_ARGUMENTS = ("path", "project_dir", "output_dir")
_ROOTS_SECONDS = 2.0
_GRACE_SECONDS = 0.3  # Claude Code sends SIGTERM 100 ms after SIGINT, and gives up soon after.
_RESOURCE_TOKENS = 9_000
_CONCURRENT_RUNS = 2  # Each starts up to 16 ranks.
_COMPLETIONS = 100  # The protocol's bound on the values of one completion.


@dataclass(frozen=True)
class Settings:
    """How to serve.

    Args:
        structured: advertise output schemas and return structured content beside the text.
        remote: the callers are not on this machine's terminal (HTTP): no paths, no roots.
        may_run: whether code may be run; tools that do nothing else are offered only then.
        python: the interpreter that `--python` named, if any.
    """

    structured: bool = False
    remote: bool = False
    may_run: bool = True
    python: Path | None = None

    def caller(self) -> Caller:
        """Return a caller with these rights that asked for no progress."""
        return Caller(roots=() if self.remote else (Path.cwd(),), may_run=self.may_run, python=self.python)

    def offered(self) -> tuple[Tool, ...]:
        """Return the tools to offer."""
        return tuple(tool for tool in toolbox.TOOLS if self.may_run or not tool.runs_code)


def build_server(settings: Settings) -> Server[Any]:
    """Return a server that offers everything this package can do under `settings`."""
    handlers = _Handlers(settings)
    server: Server[Any] = Server(
        "fsdp-mcp",
        version=__version__,
        title="PyTorch FSDP and torch.distributed expert",
        instructions=prompts.INSTRUCTIONS,
        website_url="https://docs.pytorch.org/docs/stable/distributed.html",
        lifespan=_lifespan,
        get_tool_input_schema=handlers.input_schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_completion=handlers.complete,
    )
    server.middleware.append(_WarmUp(settings))
    return server


@asynccontextmanager
async def _lifespan(_: Server[Any]) -> AsyncIterator[None]:
    """Cancelled calls end their ranks on their own; nothing else has to be held."""
    yield None


class _WarmUp:
    """Starts looking for torch and building the index once the first request was answered, never before."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started = False

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="fsdp-mcp-warm-up", daemon=True).start()
        return result

    def _run(self) -> None:
        call.enter(self._settings.caller())
        try:
            for line in toolbox.warm_up():
                logger.info(line)
        except FsdpMcpError as error:
            logger.warning(str(error))


class _Handlers:
    """The request handlers; each is one protocol method."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runs: anyio.CapacityLimiter | None = None

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        return next((tool.input_schema() for tool in self._settings.offered() if tool.name == name), None)

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[self._describe(tool) for tool in self._settings.offered()])

    def _describe(self, tool: Tool) -> types.Tool:
        return types.Tool(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema(),
            output_schema=tool.output_schema() if self._settings.structured else None,
            annotations=types.ToolAnnotations(
                read_only_hint=tool.read_only,
                destructive_hint=False,
                idempotent_hint=tool.idempotent,
                open_world_hint=False,
            ),
        )

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            tool = toolbox.find_tool(params.name, offered=self._settings.offered())
            result = await self._run(context, tool, params.arguments or {})
        except FsdpMcpError as error:
            return _failure(str(error))
        except Exception:
            logger.exception("Unexpected failure in %s", params.name)
            return _failure(f"{params.name} failed unexpectedly; the server's log on stderr has the details.")
        structured = result.model_dump(mode="json") if self._settings.structured else None
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=result.render())], structured_content=structured
        )

    async def _run(self, context: Context, tool: Tool, arguments: Mapping[str, object]) -> Result:
        roots = () if self._settings.remote else await _roots(context, arguments)
        call.enter(self._settings.caller())
        if tool.quick and toolbox.is_ready():
            return tool.call(arguments)
        if tool.starts_ranks and self._runs is None:
            self._runs = anyio.CapacityLimiter(_CONCURRENT_RUNS)
        limiter = self._runs if tool.starts_ranks else None
        return await _in_thread(context, self._settings, roots, lambda: tool.call(arguments), limiter)

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        guides = await self._quietly(context, toolbox.guides)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=f"fsdp://guides/{guide.stem}",
                    name=guide.stem,
                    title=guide.title,
                    description=guide.summary,
                    mime_type="text/markdown",
                )
                for guide in guides
            ]
        )

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template="fsdp://guides/{name}",
                    name="guide",
                    title="Guide",
                    description="A guide on one topic, with its official sources.",
                    mime_type="text/markdown",
                ),
                types.ResourceTemplate(
                    uri_template="fsdp://api/{symbol}",
                    name="api",
                    title="API entry",
                    description="Signature, parameters and docstring of an API in the installed torch.",
                    mime_type="text/markdown",
                ),
                types.ResourceTemplate(
                    uri_template="fsdp://failures/{id}",
                    name="failure",
                    title="Known failure",
                    description="How a failure shows in logs, its cause, its fix and what to look at next.",
                    mime_type="text/markdown",
                ),
            ]
        )

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        tool = toolbox.find_tool("read_doc")
        arguments = {"uri": unquote(uri), "max_tokens": _RESOURCE_TOKENS}
        try:
            result = await self._quietly(context, lambda: tool.call(arguments))
        except FsdpMcpError as error:
            raise MCPError(types.INVALID_PARAMS, str(error), {"uri": uri}) from None
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="text/markdown", text=result.render())]
        )

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=prompt.name,
                    title=prompt.title,
                    description=prompt.description,
                    arguments=[
                        types.PromptArgument(name=name, description=description, required=required)
                        for name, description, required in prompt.arguments
                    ],
                )
                for prompt in prompts.PROMPTS
            ]
        )

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        try:
            prompt = prompts.find_prompt(params.name)
            text = prompt.fill(params.arguments or {})
        except FsdpMcpError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=prompt.description, messages=[message])

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = await self._quietly(context, lambda: self._values(params))
        return types.CompleteResult(
            completion=types.Completion(
                values=values[:_COMPLETIONS], total=len(values), has_more=len(values) > _COMPLETIONS
            )
        )

    def _values(self, params: types.CompleteRequestParams) -> list[str]:
        reference, typed = params.ref, params.argument.value.casefold()
        if not isinstance(reference, types.ResourceTemplateReference):
            return []
        names = toolbox.api_names() if "api" in reference.uri else [guide.stem for guide in toolbox.guides()]
        starts = [name for name in names if name.casefold().startswith(typed)]
        return starts + [name for name in names if typed in name.casefold() and name not in set(starts)]

    async def _quietly(self, context: Context, work: Callable[[], T]) -> T:
        return await _in_thread(context, self._settings, self._settings.caller().roots, work)


async def _in_thread(
    context: Context,
    settings: Settings,
    roots: tuple[Path, ...],
    work: Callable[[], T],
    limiter: anyio.CapacityLimiter | None = None,
) -> T:
    """Run `work` in a worker thread for the caller behind `context`.

    When the call is cancelled this returns at once; the thread sees `is_cancelled` and ends what it started.
    """
    cancelled = threading.Event()

    def report(done: float, total: float | None, message: str) -> None:
        anyio.from_thread.run(context.session.report_progress, done, total, message)

    caller = Caller(
        report=report, is_cancelled=cancelled.is_set, roots=roots, may_run=settings.may_run, python=settings.python
    )

    def run() -> T:
        call.enter(caller)
        return work()

    try:
        return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
    finally:
        cancelled.set()


async def _roots(context: Context, arguments: Mapping[str, object]) -> tuple[Path, ...]:
    """Return the working directory and, when a path is at stake, the folders that the client declares as roots."""
    here = (Path.cwd(),)
    capabilities = context.session.client_capabilities
    if not any(arguments.get(name) for name in _PATH_ARGUMENTS):
        return here
    if capabilities is None or capabilities.roots is None or not context.session.can_send_request:
        return here
    try:
        with warnings.catch_warnings(), anyio.fail_after(_ROOTS_SECONDS):
            warnings.simplefilter("ignore")  # Deprecated for 2026-07-28; handshake-era clients have nothing else.
            listed = await context.session.list_roots()
    except (TimeoutError, MCPError):
        return here
    return here + tuple(path for root in listed.roots if (path := _folder(str(root.uri))) is not None)


def _folder(uri: str) -> Path | None:
    parts = urlsplit(uri)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def serve_stdio(settings: Settings) -> None:
    """Serve one client over stdin and stdout until stdin closes, SIGTERM or SIGINT; running ranks are ended."""
    anyio.run(_serve_stdio, build_server(settings))


async def _serve_stdio(server: Server[Any]) -> None:
    async with anyio.create_task_group() as group:
        if os.name != "nt":
            group.start_soon(_end_on_signal, group.cancel_scope)
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())
        group.cancel_scope.cancel()
    await _wait_for_calls()


async def _end_on_signal(scope: anyio.CancelScope) -> None:
    """Cancel the server on the first signal; a blocked read of stdin cannot be interrupted, so leave after a grace."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            timer = threading.Timer(_GRACE_SECONDS, os._exit, (128 + number,))
            timer.daemon = True
            timer.start()
            scope.cancel()
            return


async def _wait_for_calls() -> None:
    """Give cancelled calls a moment to end their ranks; what is left then dies with this process."""
    limiter = anyio.to_thread.current_default_thread_limiter()
    with anyio.move_on_after(_GRACE_SECONDS):
        while limiter.borrowed_tokens > 0:
            await anyio.sleep(0.01)
