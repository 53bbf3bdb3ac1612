"""McpToolset: the tools, resources and prompts of an MCP server (spec core 6.4), for an agent's `tools`.

    McpToolset("python -m mcp_server_time")                    # a child process
    McpToolset("https://example.com/mcp")                      # streamable HTTP
    McpToolset(HttpServer(url, header_provider=token_of_user), only=["search"], prefix="docs")

Connects when it is first needed. Inside `running()`, which the App enters, sessions are kept and owned by tasks of their own;
outside of it every operation opens and closes one. Needs the package `mcp` (the extra `polyport[mcp]`).
"""

import inspect
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from polyport.data.content import Content, Part
from polyport.data.model import ModelRequest, ToolDeclaration
from polyport.errors import BadRequest, ConfigError, TimedOut, Unavailable
from polyport.ports.agent import CallbackContext, ReadContext, Tool, ToolContext
from polyport.tools import mcp_results as results
from polyport.tools.mcp_data import (
    CallResult,
    HttpServer,
    Lost,
    McpLimits,
    McpPromptInfo,
    McpResourceInfo,
    McpToolInfo,
    StdioServer,
    server_of,
)
from polyport.tools.mcp_pool import Key, Pool, pooling

log = logging.getLogger("polyport.mcp")

T = TypeVar("T")
Only = Sequence[str] | Callable[[ReadContext, McpToolInfo], bool]
"""Which tools to offer: names as the server spells them, or `(context, tool)` -> whether."""

MAX_NAME = 64
"""Characters of a tool's name; more is refused by some models."""
SHOWN_RESOURCES = 50
"""Resources that the description of the resource tool names."""

DEFAULT_LIMITS = McpLimits()


class Session(Protocol):
    """What `mcp_session.McpSession` does."""

    async def alive(self) -> bool: ...
    async def tools(self) -> list[McpToolInfo]: ...
    async def resources(self) -> list[McpResourceInfo]: ...
    async def prompts(self) -> list[McpPromptInfo]: ...
    async def read(self, uri: str) -> list[Part]: ...
    async def prompt(self, name: str, args: dict[str, str]) -> list[Content]: ...
    async def call(self, name: str, args: dict[str, Any]) -> CallResult: ...


Opener = Callable[[StdioServer | HttpServer, Key, McpLimits], AbstractAsyncContextManager[Session]]


def _import() -> Opener:
    """The opener of sessions; imports the SDK, which takes most of a second."""
    try:
        from polyport.tools.mcp_session import open_session  # an optional dependency
    except ModuleNotFoundError as error:
        raise ConfigError(f"MCP needs the package {error.name!r}: pip install 'polyport[mcp]'") from None
    return open_session


class McpTool(Tool):
    """One tool of an MCP server. `info` is what the server says of it, `name` what the model calls it."""

    def __init__(self, toolset: "McpToolset", info: McpToolInfo, name: str) -> None:
        self.info = info
        self.name = name
        self.description = info.description
        self.idempotent = info.repeatable
        self._toolset = toolset
        self._declaration = ToolDeclaration(
            name=name,
            description=info.description,
            parameters=results.parameters_of(info),
            response=results.returns_of(info),
        )

    def declaration(self) -> ToolDeclaration:
        return self._declaration

    async def prepare(self, ctx: CallbackContext, request: ModelRequest) -> None:
        await results.show_images(ctx, request, self.name)

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        """`{"output": ...}`, see `mcp_results.response_of`. A call that may do harm twice is not sent twice."""
        found = await self._toolset.ask(
            ctx,
            lambda session: session.call(self.info.name, args),
            f"tool {self.name}",
            again=not self.info.destructive or self.info.repeatable,
            timeout_s=self._toolset.limits.call_timeout_s,
        )
        return await results.response_of(ctx, self.name, found, self._declaration.response, self._toolset.limits)


class McpResourceTool(Tool):
    """Lets the model read the server's resources."""

    idempotent = True

    def __init__(self, toolset: "McpToolset", name: str, resources: Sequence[McpResourceInfo]) -> None:
        self.name = name
        self._toolset = toolset
        lines = [
            f"- {r.uri}" + "".join(f": {text}" for text in (r.name, r.description) if text)
            for r in resources[:SHOWN_RESOURCES]
        ]
        more = len(resources) - SHOWN_RESOURCES
        if more > 0:
            lines.append(f"- and {more} more")
        self.description = "\n".join(["Reads a resource, given its URI. Known resources:", *lines])

    def declaration(self) -> ToolDeclaration:
        uri = {"type": "string", "description": "The URI of the resource."}
        parameters = {"type": "object", "properties": {"uri": uri}, "required": ["uri"]}
        return ToolDeclaration(name=self.name, description=self.description, parameters=parameters)

    async def prepare(self, ctx: CallbackContext, request: ModelRequest) -> None:
        await results.show_images(ctx, request, self.name)

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        uri = args.get("uri")
        if not isinstance(uri, str) or not uri:
            raise BadRequest("uri must be the URI of a resource", "uri")
        parts = await self._toolset.read_resource(uri, ctx)
        return await results.response_of(ctx, self.name, CallResult(parts=parts), None, self._toolset.limits)


class McpToolset:
    """The tools of one MCP server; satisfies `ports.agent.Toolset`.

    `server` is a URL, a command line, a StdioServer or an HttpServer. `only` picks tools, `prefix` puts `prefix_` before
    their names. With `use_resources` the model gets a tool `load_mcp_resource` as well. May be shared by agents and runs.
    """

    def __init__(
        self,
        server: str | StdioServer | HttpServer,
        *,
        name: str = "mcp_tool_set",
        only: Only | None = None,
        prefix: str = "",
        use_resources: bool = False,
        limits: McpLimits = DEFAULT_LIMITS,
    ) -> None:
        if isinstance(only, str):
            raise ConfigError(f"only={only!r}: give a list of names, or a function")
        self.server = server_of(server)
        self.name = name
        self.limits = limits
        self._only = only
        self._prefix = f"{prefix}_" if prefix else ""
        self._use_resources = use_resources
        self._pool: RunVar[Pool[Session] | None] = RunVar("mcp_pool", None)
        self._known: dict[str, McpTool] = {}
        self._warned = False

    def __repr__(self) -> str:
        return f"<McpToolset of {self.server.where}>"

    # ---- life

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep sessions open inside the block, and close them all on leaving it. Enter it in a task that lives as long as the
        app. A second one inside it changes nothing."""
        if self._pool.get() is not None:
            yield
            return
        async with pooling(self._open, self.limits, self.server.where) as pool:
            self._pool.set(pool)
            try:
                yield
            finally:
                self._pool.set(None)

    async def aclose(self) -> None:
        """Close all sessions. Idempotent; a later use opens new ones."""
        pool = self._pool.get()
        if pool is not None:
            await pool.close()

    @asynccontextmanager
    async def _open(self, key: Key) -> AsyncGenerator[Session]:
        opener = await anyio.to_thread.run_sync(_import)
        async with opener(self.server, key, self.limits) as session:
            yield session

    # ---- what the engine asks

    async def tools(self, ctx: ReadContext) -> Sequence[Tool]:
        """The tools that the server lists now, filtered and named. Unavailable when it cannot be reached."""
        listed = await self.ask(ctx, lambda session: session.tools(), "its tools")
        if self._only is not None and not callable(self._only):
            missing = sorted(set(self._only) - {info.name for info in listed})
            if missing:
                log.warning("%s has no tools named %s", self.server.where, ", ".join(map(repr, missing)))
        found: dict[str, Tool] = {}
        for info in listed:
            if self._wanted(ctx, info):
                name = self._free_name(info.name, found)
                found[name] = self._tool(info, name)
        if self._use_resources:
            name = self._free_name("load_mcp_resource", found)
            found[name] = McpResourceTool(self, name, await self.resources(ctx))
        return list(found.values())

    def _wanted(self, ctx: ReadContext, info: McpToolInfo) -> bool:
        if self._only is None:
            return True
        return self._only(ctx, info) if callable(self._only) else info.name in self._only

    def _free_name(self, name: str, taken: Mapping[str, Tool]) -> str:
        """The name for the model: only characters that all models take, and unlike the others."""
        base = re.sub(r"[^A-Za-z0-9_-]", "_", self._prefix + name) or "_"
        free, count = base[:MAX_NAME], 1
        while free in taken:
            count += 1
            free = f"{base[: MAX_NAME - 4]}_{count}"
        return free

    def _tool(self, info: McpToolInfo, name: str) -> McpTool:
        """The tool; the same object as long as the server says the same of it, for schemas cost time to read."""
        known = self._known.get(name)
        if known is None or known.info != info:
            known = self._known[name] = McpTool(self, info, name)
        return known

    # ---- what a server has besides tools; `ctx` is for the header provider

    async def resources(self, ctx: ReadContext | None = None) -> list[McpResourceInfo]:
        return await self.ask(ctx, lambda session: session.resources(), "its resources")

    async def read_resource(self, uri: str, ctx: ReadContext | None = None) -> list[Part]:
        """Texts and blobs of a resource. AgentError with the server's words when it refuses."""
        return await self.ask(ctx, lambda session: session.read(uri), f"resource {uri}")

    async def prompts(self, ctx: ReadContext | None = None) -> list[McpPromptInfo]:
        return await self.ask(ctx, lambda session: session.prompts(), "its prompts")

    async def get_prompt(
        self, name: str, args: Mapping[str, str] | None = None, ctx: ReadContext | None = None
    ) -> list[Content]:
        """The messages of a prompt, filled in with `args`."""
        return await self.ask(ctx, lambda session: session.prompt(name, dict(args or {})), f"prompt {name}")

    def instruction(
        self, prompt: str, args: Mapping[str, str] | None = None
    ) -> Callable[[ReadContext], Awaitable[str]]:
        """An instruction for an agent that is read from a prompt of the server: `LlmAgent(instruction=...)`."""

        async def provide(ctx: ReadContext) -> str:
            messages = await self.get_prompt(prompt, args, ctx)
            return "\n\n".join(message.text for message in messages if message.text)

        return provide

    # ---- asking

    async def ask(
        self,
        ctx: ReadContext | None,
        question: Callable[[Session], Awaitable[T]],
        what: str,
        *,
        again: bool = True,
        timeout_s: float = 0.0,
    ) -> T:
        """Ask the server something within `timeout_s` (by default that for lists). When the connection is lost, it is asked
        once more (`again`) on a good one; a second loss is Unavailable. TimedOut; AgentError for what the server refuses."""
        key = await self._key(ctx)
        timeout_s = timeout_s or self.limits.list_timeout_s
        while True:
            try:
                return await self._once(key, question, timeout_s)
            except TimeoutError:
                raise TimedOut(f"{self.server.where}: {what} took longer than {timeout_s:g} s") from None
            except Lost:
                if not again:
                    raise Unavailable(
                        f"{self.server.where}: the connection was lost while it was asked for {what}; it may or may not have "
                        "been carried out"
                    ) from None
                again = False

    async def _once(self, key: Key, question: Callable[[Session], Awaitable[T]], timeout_s: float) -> T:
        pool = self._pool.get()
        if pool is not None:
            async with pool.borrow(key) as session:
                with anyio.fail_after(timeout_s):
                    return await question(session)
        if not self._warned:
            self._warned = True
            log.warning("%s is used outside of `running()`: each operation makes a connection", self.server.where)
        answer: list[T] = []
        problem: Exception | None = None
        async with self._open(key) as session:
            try:
                with anyio.fail_after(timeout_s):
                    answer.append(await question(session))
            except Exception as error:  # noqa: BLE001  raised below, outside of the SDK's task groups
                problem = error
        if problem is not None:
            raise problem
        return answer[0]

    async def _key(self, ctx: ReadContext | None) -> Key:
        """The headers that belong to this run, in a fixed order."""
        provider = self.server.header_provider if isinstance(self.server, HttpServer) else None
        if provider is None or ctx is None:
            return ()
        headers = provider(ctx)
        if inspect.isawaitable(headers):
            headers = await headers
        return tuple(sorted((name.lower(), value) for name, value in headers.items()))


__all__ = ["HttpServer", "McpLimits", "McpTool", "McpToolInfo", "McpToolset", "StdioServer"]
