"""The MCP server: decodes a tool call into a run, and spells the run's events as progress and its answer as the result.

On the official SDK, which does the wire: versions of the protocol, sessions, streams. Imported by `make_server` only. One tool
for each app. A call is a run that is attached to it: when the client cancels the call, the run is cancelled.
"""

import base64
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from mcp import MCPError, types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import INVALID_PARAMS

from polyport.data.content import Part, user_text
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.data.run import RunConfig, RunOutcome, RunRequest
from polyport.data.session import SessionKey
from polyport.errors import LimitExceeded, PolyportError, Unavailable, describe
from polyport.ports.agent import Agent
from polyport.ports.runs import Run, Runs
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route
from polyport.seams import REAL
from polyport.version import VERSION

log = logging.getLogger("polyport.mcp")

PATH = "/mcp"
USER = "mcp"
"""The user whose sessions callers share that have not said who they are."""
_REQUEST = "polyport.request"
"""Where a request is kept in its ASGI scope, on its way through the SDK."""

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "request": {"type": "string", "description": "What to ask the agent."},
        "session_id": {
            "type": "string",
            "description": "The session_id of an earlier answer, to go on with that conversation. Left out: a new one.",
        },
    },
    "required": ["request"],
    "additionalProperties": False,
}
OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The agent's answer."},
        "session_id": {"type": "string", "description": "Where the conversation is kept."},
        "status": {
            "type": "string",
            "enum": ["finished", "paused"],
            "description": "paused: the agent waits for something from outside, such as a confirmation.",
        },
    },
    "required": ["text", "session_id", "status"],
}


class McpServer:
    """See `face.McpFace`."""

    def __init__(self, runs: Runs, limits: Limits, *, stateless: bool = False) -> None:
        self._runs = runs
        self._limits = limits
        self._stateless = stateless
        self._manager: StreamableHTTPSessionManager | None = None
        self.sdk = Server[Any](
            "polyport", version=VERSION, on_list_tools=self._list_tools, on_call_tool=self._call_tool
        )
        """The SDK's server, for clients in the same process."""

    # ---- the edges

    def routes(self) -> list[Route]:
        return [
            Route("POST", PATH, self._http, summary="MCP: one JSON-RPC message"),
            Route("GET", PATH, self._http, summary="MCP: messages of the server", head=False, streams=True),
            Route("DELETE", PATH, self._http, summary="MCP: end a session"),
        ]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        manager = StreamableHTTPSessionManager(
            self.sdk,
            stateless=self._stateless,
            max_request_body_size=self._limits.body_bytes,
            max_sessions=self._limits.max_runs,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def _http(self, request: Request, send: Send) -> None:
        if self._manager is None:
            raise Unavailable("MCP is not being served: enter `running()` of the MCP server beside the app")
        scope = {**request.scope, _REQUEST: request}
        if request.caller.user:  # the SDK ties MCP sessions to it: that of somebody else is 404
            owner = AccessToken(token="", client_id=request.caller.user, scopes=[])
            scope["user"] = AuthenticatedUser(owner)
        await self._manager.handle_request(scope, request.receive, send)

    async def serve_stdio(self) -> None:
        async with stdio_server() as (read, write):
            await self.sdk.run(read, write, self.sdk.create_initialization_options())

    # ---- the tools

    async def _list_tools(
        self, ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        agents = self._runs.agents
        return types.ListToolsResult(tools=[_tool(name, agents[name]) for name in await _usable(ctx, agents)])

    async def _call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if params.name not in self._runs.agents:
            known = ", ".join(await _usable(ctx, self._runs.agents))
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}; the tools are: {known}")
        args = params.arguments or {}
        problem = _problem(args)
        if problem:
            return _failed(problem)
        progress = bool(ctx.meta and ctx.meta.get("progress_token") is not None)
        key = SessionKey(params.name, _user(ctx), args.get("session_id") or REAL.new_id())
        request = RunRequest(
            key=key,
            message=user_text(args["request"]),
            config=RunConfig(
                streaming=progress,
                max_llm_calls=self._limits.max_llm_calls,
                history_window=self._limits.history_window,
            ),
            create_session=True,
        )
        try:
            if (asked := _asked(ctx)) is not None:
                await asked.act_as(key.user, key.app)
            run = await self._runs.start(request, attached=True)
        except PolyportError as error:
            return _failed(str(error))
        async with run.watching():
            if progress:
                await _report(ctx, run)
            outcome = await run.wait()
        return _result(run, outcome)


def _tool(name: str, agent: Agent) -> types.Tool:
    return types.Tool(
        name=name,
        description=agent.description or f"Asks the agent {name}.",
        input_schema=INPUT,
        output_schema=OUTPUT,
    )


def _asked(ctx: ServerRequestContext[Any, Any]) -> Request | None:
    """This very HTTP request, whatever MCP session it belongs to; None over stdio."""
    scope: Any = getattr(ctx.request, "scope", None)
    return scope.get(_REQUEST) if scope is not None else None


def _user(ctx: ServerRequestContext[Any, Any]) -> str:
    """Who asks."""
    asked = _asked(ctx)
    return (asked.caller.user if asked is not None else "") or USER


async def _usable(ctx: ServerRequestContext[Any, Any], apps: Iterable[str]) -> list[str]:
    asked = _asked(ctx)
    return list(apps) if asked is None else await asked.usable(apps)


def _problem(args: dict[str, Any]) -> str:
    """What is wrong with a call's arguments, for the model that made them; "" if nothing."""
    unknown = sorted(args.keys() - INPUT["properties"].keys())
    if unknown:
        return f"unknown arguments: {', '.join(unknown)}; the arguments are request and session_id"
    for name in ("request", "session_id"):
        if not isinstance(args.get(name, ""), str):
            return f"{name} must be a string"
    return "" if args.get("request") else "request is missing: say what to ask the agent"


async def _report(ctx: ServerRequestContext[Any, Any], run: Run) -> None:
    """One progress notification for each event that says something new, until the run ends."""
    count = 0
    try:
        async with aclosing(run.follow()) as batches:
            async for items in batches:
                for item in items:
                    text = _news(item.event)
                    if text:
                        count += 1
                        await ctx.session.report_progress(count, message=text)
    except LimitExceeded as error:
        log.info("run %s: no more progress is reported: %s", run.id, error)


def _news(event: Event) -> str:
    if event.partial:
        return event.text
    return "calls " + ", ".join(call.name for call in event.calls) if event.calls else ""


def _result(run: Run, outcome: RunOutcome) -> types.CallToolResult:
    """The answer of the run: its last event that says something, as content, and as structured data."""
    if outcome.status == "cancelled":
        return _failed(f"the run was cancelled: {outcome.reason}")
    if outcome.status == "failed":
        return _failed(describe(outcome.error)["message"] if outcome.error is not None else outcome.reason)
    events = [item.event for item in run.read(0) if not item.event.partial and item.event.author != "user"]
    answer = next((e for e in reversed(events) if _said(e)), None)
    text = answer.text if answer is not None else ""
    content = _blocks(_said(answer)) if answer is not None else []
    if outcome.status == "paused" and not text:
        text = "The agent waits for something from outside, such as a confirmation, that cannot be given over MCP."
        content = [types.TextContent(text=text), *content]
    structured = {"text": text, "session_id": run.key.id, "status": outcome.status}
    return types.CallToolResult(content=content, structured_content=structured)


def _said(event: Event) -> list[Part]:
    """The parts of an event that are for the reader."""
    parts = event.content.parts if event.content is not None else []
    return [p for p in parts if not p.thought and (p.text or p.inline_data is not None)]


def _blocks(parts: Sequence[Part]) -> list[types.ContentBlock]:
    out: list[types.ContentBlock] = []
    text = ""
    for part in parts:
        if part.text:
            text += part.text
        elif part.inline_data is not None:
            out.append(_blob(part.inline_data.mime_type, part.inline_data.data))
    return [types.TextContent(text=text), *out] if text else out


def _blob(kind: str, data: bytes) -> types.ContentBlock:
    encoded = base64.b64encode(data).decode()
    if kind.startswith("image/"):
        return types.ImageContent(data=encoded, mime_type=kind)
    if kind.startswith("audio/"):
        return types.AudioContent(data=encoded, mime_type=kind)
    contents = types.BlobResourceContents(uri=f"urn:uuid:{REAL.new_id()}", mime_type=kind, blob=encoded)
    return types.EmbeddedResource(resource=contents)


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
