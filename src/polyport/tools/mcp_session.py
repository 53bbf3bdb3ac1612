"""One session with an MCP server, on the official SDK. The only module of the toolset that imports it, so import it late.

Opened by the pool, or for one operation by the toolset itself. Gives plain Structs and Parts; the SDK's errors become ours:
Lost for a lost connection, AgentError for what the server refuses, Unavailable when it cannot be reached.
"""

import base64
import binascii
import logging
import os
import shutil
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread
import httpx2
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client, types
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.types import CONNECTION_CLOSED, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from polyport.data.content import Blob, Content, FileData, Part
from polyport.errors import AgentError, LimitExceeded, PolyportError, Unavailable
from polyport.tools.mcp_data import (
    CallResult,
    HttpServer,
    Lost,
    McpArgumentInfo,
    McpLimits,
    McpPromptInfo,
    McpResourceInfo,
    McpToolInfo,
    StdioServer,
)
from polyport.tools.mcp_pool import Key
from polyport.version import VERSION

log = logging.getLogger("polyport.mcp")

T = TypeVar("T")

_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
os.getppid() == int(sys.argv[1]) or os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Asks Linux to kill this process when its parent dies (PR_SET_PDEATHSIG), checks that it has not died yet, and becomes the
server. A server that ignores the end of its stdin would outlive us otherwise (FR-208)."""


class _Session(ClientSession):
    """Without the SDK's own check of results: it raises, and matches patterns of strangers without a bound in time."""

    async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
        return None


class McpSession:
    """What a toolset asks of a server. May be used by many tasks at one time."""

    def __init__(
        self,
        session: ClientSession,
        dispatcher: JSONRPCDispatcher[Any],
        limits: McpLimits,
        where: str,
        statuses: list[int],
    ) -> None:
        self._session = session
        self._dispatcher = dispatcher
        self._limits = limits
        self._where = where
        self._statuses = statuses

    async def alive(self) -> bool:
        """Whether the server answers a ping in time."""
        try:
            with anyio.fail_after(self._limits.ping_timeout_s):
                await self._session.send_ping()
        except MCPError as error:
            return error.code == METHOD_NOT_FOUND  # there is no ping in newer protocols, but it did answer
        except Exception as error:  # noqa: BLE001  whatever it was, nobody answered
            log.debug("%s: no answer to a ping: %s", self._where, type(error).__name__)
            return False
        return True

    async def tools(self) -> list[McpToolInfo]:
        return [tool_info(t) for t in await self._pages(self._tools_page)]

    async def resources(self) -> list[McpResourceInfo]:
        return [
            McpResourceInfo(
                uri=r.uri,
                name=r.title or r.name,
                description=r.description or "",
                mime_type=r.mime_type or "",
                size=r.size,
            )
            for r in await self._pages(self._resources_page)
        ]

    async def prompts(self) -> list[McpPromptInfo]:
        return [prompt_info(p) for p in await self._pages(self._prompts_page)]

    async def read(self, uri: str) -> list[Part]:
        result = await self._ask(lambda: self._session.read_resource(uri))
        return [_resource_part(c) for c in result.contents]

    async def prompt(self, name: str, args: dict[str, str]) -> list[Content]:
        result = await self._ask(lambda: self._session.get_prompt(name, args))
        return [
            Content(role="model" if m.role == "assistant" else "user", parts=[_part(m.content)])
            for m in result.messages
        ]

    async def call(self, name: str, args: dict[str, Any]) -> CallResult:
        result = await self._ask(lambda: self._session.call_tool(name, args))
        return CallResult(
            parts=[_part(block) for block in result.content],
            structured=result.structured_content,
            has_structured="structured_content" in result.model_fields_set,
            is_error=result.is_error,
        )

    async def _tools_page(self, cursor: str | None) -> tuple[list[types.Tool], str | None]:
        try:
            page = await self._session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            return page.tools, page.next_cursor
        except ValidationError:
            if self._session.initialize_result is None:
                raise
        # One tool that is described wrongly must not cost all the others.
        raw = await self._dispatcher.send_raw_request("tools/list", {"cursor": cursor} if cursor else None)
        found = raw.get("tools")
        if not isinstance(found, list):
            raise AgentError(f"{self._where} gave no list of tools")
        kept = [t for t in map(self._salvaged, cast("list[Any]", found)) if t is not None]
        following = raw.get("nextCursor")
        return kept, following if isinstance(following, str) else None

    def _salvaged(self, raw: Any) -> types.Tool | None:
        """A wrongly described tool as well as it can be understood; None when it cannot."""
        fields: dict[str, Any] = dict(cast("dict[str, Any]", raw)) if isinstance(raw, dict) else {}
        name = fields.get("name")
        if not isinstance(name, str):
            log.warning("%s lists a tool without a name; it is left out", self._where)
            return None
        for key, spare in (("inputSchema", {"type": "object"}), ("outputSchema", None), ("annotations", None)):
            if key in fields and not isinstance(fields[key], dict):
                log.warning("%s: %s of tool %r is not an object; it is ignored", self._where, key, name)
                fields[key] = spare
        if "inputSchema" not in fields:
            log.warning("%s: tool %r has no inputSchema; its arguments are not described", self._where, name)
            fields["inputSchema"] = {"type": "object"}
        try:
            return types.Tool.model_validate(fields, by_name=False)
        except ValidationError as error:
            log.warning("%s describes tool %r wrongly; it is left out: %s", self._where, name, _problems(error))
            return None

    async def _resources_page(self, cursor: str | None) -> tuple[list[types.Resource], str | None]:
        page = await self._session.list_resources(params=types.PaginatedRequestParams(cursor=cursor))
        return page.resources, page.next_cursor

    async def _prompts_page(self, cursor: str | None) -> tuple[list[types.Prompt], str | None]:
        page = await self._session.list_prompts(params=types.PaginatedRequestParams(cursor=cursor))
        return page.prompts, page.next_cursor

    async def _pages(self, page: Callable[[str | None], Awaitable[tuple[list[T], str | None]]]) -> list[T]:
        """All items of a list, page by page. A server that never comes to an end is refused."""
        found: list[T] = []
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            at = cursor
            items, cursor = await self._ask(lambda at=at: page(at))
            found += items
            if len(found) > self._limits.items:
                raise LimitExceeded(f"{self._where} lists more than {self._limits.items} items (the limit `items`)")
            if not cursor:
                return found
            if cursor in seen:
                raise AgentError(f"{self._where} lists its items in a circle: it gave the cursor {cursor!r:.80} twice")
            seen.add(cursor)

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer, or the SDK's error as one of ours."""
        try:
            return await question()
        except MCPError as error:
            if _lost(error):
                raise Lost(f"the connection to {self._where} was lost") from None
            raise AgentError(f"{self._where} refused: {self._said(error)}") from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise Lost(f"the connection to {self._where} was lost") from None
        except ValidationError as error:
            raise AgentError(f"{self._where} gave a malformed answer: {_problems(error)}") from None
        except RuntimeError as error:
            raise AgentError(f"{self._where}: {error}") from None

    def _said(self, error: MCPError) -> str:
        return _said(error, self._statuses)


def _said(error: MCPError, statuses: list[int]) -> str:
    """A server's own words, and the HTTP status when that is all there is."""
    status = statuses[-1] if statuses and statuses[-1] >= 400 else 0
    return error.message + (f" (HTTP {status})" if status else "")


def _lost(error: MCPError) -> bool:
    return error.code == CONNECTION_CLOSED or error.message == "Session terminated"


def _problems(error: ValidationError) -> str:
    lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)[:5]]
    return "; ".join(lines)


@asynccontextmanager
async def open_session(server: StdioServer | HttpServer, key: Key, limits: McpLimits) -> AsyncGenerator[McpSession]:
    """Start or reach the server, shake hands, and give the session; all is cleaned up by the same task on leaving.

    Unavailable when the server cannot be reached, does not understand, or takes longer than `connect_timeout_s`.
    """
    statuses: list[int] = []
    opened = False
    try:
        async with _streams(server, key, limits, statuses) as (read, write):
            dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write)
            info = types.Implementation(name="polyport", version=VERSION)
            async with _Session(dispatcher=dispatcher, client_info=info) as session:
                with anyio.fail_after(limits.connect_timeout_s):
                    await _shake_hands(session)
                opened = True
                yield McpSession(session, dispatcher, limits, server.where, statuses)
    except Exception as error:
        if opened:
            raise (
                error if isinstance(error, PolyportError) else Lost(f"the connection to {server.where} broke")
            ) from error
        raise _unreachable(server, error, limits, statuses) from error


async def _shake_hands(session: ClientSession) -> None:
    """The handshake that all of today's servers know; the newer way only for those that know nothing else."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
            raise
        await session.discover()


@asynccontextmanager
async def _streams(
    server: StdioServer | HttpServer, key: Key, limits: McpLimits, statuses: list[int]
) -> AsyncGenerator[tuple[Any, Any]]:
    async with AsyncExitStack() as stack:
        if isinstance(server, StdioServer):
            parameters = await anyio.to_thread.run_sync(_process, server)
            yield await stack.enter_async_context(stdio_client(parameters, sys.__stderr__ or sys.stderr))
            return

        async def note(response: httpx2.Response) -> None:
            statuses[:] = [response.status_code]

        client = httpx2.AsyncClient(
            headers={**server.headers, **dict(key)},
            auth=server.auth,
            verify=await anyio.to_thread.run_sync(_trusted),
            timeout=httpx2.Timeout(limits.connect_timeout_s, read=max(300.0, limits.call_timeout_s + 10)),
            event_hooks={"response": [note]},
        )
        await stack.enter_async_context(client)
        transport = streamable_http_client(server.url, http_client=client, max_sse_event_size=limits.message_bytes)
        yield await stack.enter_async_context(transport)


@cache
def _trusted() -> ssl.SSLContext:
    """Whom to trust, made once: it takes a tenth of a second."""
    return httpx2.create_ssl_context()


def _process(server: StdioServer) -> StdioServerParameters:
    """How to start the server; looks at the file system. Unavailable when there is no such command."""
    env = {**get_default_environment(), **server.env}
    command, args = server.command, list(server.args)
    is_path = Path(command).name != command  # which may count from `cwd`
    if not is_path and shutil.which(command, path=env.get("PATH")) is None:
        raise Unavailable(f"{server.where} cannot be started: there is no command {command!r} on the PATH")
    if sys.platform == "linux" and sys.executable and "LD_LIBRARY_PATH" not in os.environ:
        args = ["-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), command, *args]
        command = sys.executable
    return StdioServerParameters(command=command, args=args, env=dict(server.env), cwd=server.cwd)


def _unreachable(
    server: StdioServer | HttpServer, error: Exception, limits: McpLimits, statuses: list[int]
) -> PolyportError:
    """Why a session could not be opened. The texts of foreign errors stay out, for they may hold URLs with secrets."""
    leaf = _leaf(error)
    if isinstance(leaf, PolyportError):
        return leaf
    if isinstance(leaf, TimeoutError):
        limit = limits.connect_timeout_s
        return Unavailable(f"{server.where} did not finish its handshake within {limit:g} s (connect_timeout_s)")
    if isinstance(leaf, MCPError):
        if _lost(leaf):
            return Unavailable(f"{server.where} closed the connection before the handshake was over")
        return Unavailable(f"{server.where} refused the connection: {_said(leaf, statuses)}")
    if isinstance(leaf, OSError) and leaf.strerror:
        return Unavailable(f"{server.where} cannot be reached: {leaf.strerror}")
    if isinstance(leaf, ValidationError):
        return Unavailable(f"{server.where} answered the handshake wrongly: {_problems(leaf)}")
    return Unavailable(f"{server.where} cannot be reached ({type(leaf).__name__})")


def _leaf(error: BaseException) -> BaseException:
    """The first error in a group, the one that the others follow from."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def tool_info(tool: types.Tool) -> McpToolInfo:
    hints = tool.annotations
    return McpToolInfo(
        name=tool.name,
        description=tool.description or tool.title or (hints.title if hints is not None else None) or "",
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        read_only=hints.read_only_hint if hints is not None else None,
        destructive=hints.destructive_hint if hints is not None else None,
        idempotent=hints.idempotent_hint if hints is not None else None,
    )


def prompt_info(prompt: types.Prompt) -> McpPromptInfo:
    arguments: Iterable[types.PromptArgument] = prompt.arguments or ()
    return McpPromptInfo(
        name=prompt.name,
        description=prompt.description or "",
        arguments=[
            McpArgumentInfo(name=a.name, description=a.description or "", required=bool(a.required)) for a in arguments
        ],
    )


def _part(block: types.ContentBlock) -> Part:
    if isinstance(block, types.TextContent):
        return Part(text=block.text)
    if isinstance(block, types.ImageContent | types.AudioContent):
        return Part(inline_data=Blob(mime_type=block.mime_type, data=_bytes(block.data)))
    if isinstance(block, types.EmbeddedResource):
        return _resource_part(block.resource)
    label = block.title or block.name
    return Part(file_data=FileData(file_uri=block.uri, mime_type=block.mime_type or "", display_name=label))


def _resource_part(contents: types.TextResourceContents | types.BlobResourceContents) -> Part:
    if isinstance(contents, types.TextResourceContents):
        return Part(text=contents.text)
    kind = contents.mime_type or "application/octet-stream"
    return Part(inline_data=Blob(mime_type=kind, data=_bytes(contents.blob), display_name=str(contents.uri)))


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AgentError("the MCP server sent data that is not base64") from None
