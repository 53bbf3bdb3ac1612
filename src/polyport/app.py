"""App: agents, stores, plugins and limits put together. The only place where defaults are chosen and strings become objects.

Used by people in code, and by the command line. `App(agent)` is enough; `asgi` is the server, `ask` and `stream` are the way
in from Python.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, cast

import anyio
from msgspec import Struct

from polyport.assembly import (
    Models,
    compactors,
    mountable,
    named_agents,
    peers_of,
    plugins_of,
    protocols_of,
    seal_key,
    stores_of,
    warn_of_missing_stores,
)
from polyport.auth.authorize import Strict
from polyport.data.compaction import CompactionConfig
from polyport.data.content import Content, user_text
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.data.run import RunConfig, RunOutcome, RunRequest
from polyport.data.session import SessionKey
from polyport.engine.hooks import hook_table
from polyport.engine.runner import Engine
from polyport.engine.tree import AgentTree
from polyport.errors import ConfigError, RunCancelled
from polyport.ports.agent import Agent, Tool
from polyport.ports.auth import Auth, Authenticator
from polyport.ports.peers import Peers
from polyport.ports.plugin import Plugin
from polyport.ports.stores import Stores
from polyport.protocols.guard import Guard
from polyport.protocols.host import Host
from polyport.protocols.mcp import make_server
from polyport.protocols.parts import Mountable, Parts, Watching
from polyport.protocols.rest import routes as rest_routes
from polyport.protocols.routes import Route
from polyport.runs.coordinator import Coordinator
from polyport.seams import REAL, Seams


class Reply(Struct, frozen=True):
    """What `ask` gives: the answer's text, all events of the run, and where the conversation lives."""

    text: str
    events: list[Event]
    session_id: str
    outcome: RunOutcome


class App:
    """One or several agents, ready to be asked or served.

    `agents` is one agent, several, or a mapping of app names to agents (the name of the agent otherwise). `stores` is a
    Stores object or a URL such as `sqlite:///data.db`; memory by default. With `remember` each session goes into the memory
    store when a run ends. `protocols` are what is served: "rest", "mcp", "a2a", or an object with settings of its own such as
    `protocols.a2a.mount.A2a(...)`. `auth` says who calls: an authenticator (then a caller may act as the user of its own id
    only), or an `Auth` with an authorizer of your own; without it everybody may do everything. `secret` (or POLYPORT_SECRET;
    at least 16 characters, the same for all processes on one database) is the key that seals what a human is asked to approve;
    without one, whoever can write to the database can forge that. `cluster` (a `cluster.Cluster`, or the URL of a NATS
    server) makes this process one of several on the same stores: each can follow and cancel the runs of all, and goes on with
    those of one that died. ConfigError says what is wrong and what to set.
    """

    def __init__(
        self,
        agents: Agent | Iterable[Agent] | Mapping[str, Agent],
        *,
        stores: Stores | str | None = None,
        plugins: Sequence[Plugin] = (),
        remember: bool = False,
        limits: Limits | None = None,
        auth: Auth | Authenticator | None = None,
        guard: Guard | None = None,
        compaction: CompactionConfig | Mapping[str, CompactionConfig] | None = None,
        protocols: Collection[str | Mountable] = ("rest",),
        secret: str = "",
        cluster: Peers | str | None = None,
        seams: Seams = REAL,
    ) -> None:
        self.stores = stores_of(stores, seams)
        if remember and self.stores.memory is None:
            raise ConfigError("remember=True needs a memory store; these stores have none")
        served = protocols_of(protocols)
        self.plugins = plugins_of(plugins, served, remember)
        self.limits = limits or Limits()
        hooks = hook_table(self.plugins)
        models = Models()
        self.trees = {name: AgentTree(agent, models.bind) for name, agent in named_agents(agents).items()}
        warn_of_missing_stores(self.trees, self.stores)
        self._compactors = compactors(compaction, self.trees, models)
        key = seal_key(secret, self.stores)
        peers = peers_of(cluster, self.stores, key)
        engines = {
            name: Engine(tree, self.stores, hooks, seams, self._compactors.get(name), key, claims=peers is None)
            for name, tree in self.trees.items()
        }
        self.runs = Coordinator(engines, self.stores, self.limits, peers)
        self._entered: AsyncExitStack | None = None
        self._around: list[Callable[[], AbstractAsyncContextManager[Any]]] = []
        self._beside: list[Callable[[], AbstractAsyncContextManager[Any]]] = []
        guard = guard or Guard.open()
        if auth is not None:
            guard = guard.behind(auth if isinstance(auth, Auth) else Auth(auth, Strict()))
        self.asgi = Host(
            self._routes(served, seams),
            guard=guard,
            limits=self.limits,
            seams=seams,
            lifespan=self.running,
        ).watched_by(watch for protocol in served if isinstance(protocol, Watching) for watch in protocol.watches)

    def _routes(self, protocols: Collection[str | Mountable], seams: Seams) -> list[Route]:
        """The routes of all protocols; what a protocol keeps running goes beside the runs, or around them."""
        routes: list[Route] = []
        for name in protocols:
            if name == "rest":
                routes += rest_routes(self.runs, self.trees, self.limits, seams, lambda: self.asgi.guard)
            elif name == "mcp":
                self.mcp = make_server(self.runs, self.limits)
                self._beside.append(self.mcp.running)
                routes += self.mcp.routes()
            else:
                routes += self._mount(mountable(name), seams)
        return routes

    def _mount(self, protocol: Mountable, seams: Seams) -> list[Route]:
        parts = Parts(
            self.runs,
            self.trees,
            self.limits,
            seams,
            guard=lambda: self.asgi.guard,
            plugins=self.plugins,
            peers=self.runs.peers,
        )
        mounted = protocol.mount(parts)
        self._around.append(mounted.around)
        self._beside.append(mounted.beside)
        return mounted.routes()

    # ---- life

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the app inside the block: runs are accepted, and cleaned up on leaving. The ASGI lifespan enters it."""
        try:
            async with AsyncExitStack() as stack:
                await self._enter_toolsets(stack)
                for around in self._around:
                    await stack.enter_async_context(around())
                await stack.enter_async_context(self.runs.serving(self.limits.shutdown_s))
                await self.stores.sessions.ping()
                for beside in self._beside:
                    await stack.enter_async_context(beside())
                yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    async def _enter_toolsets(self, stack: AsyncExitStack) -> None:
        """Give toolsets that keep connections (`running`) a home that outlives the runs."""
        bounds = [bound for tree in self.trees.values() for bound in tree.bounds()]
        homes = {id(tool): tool for bound in bounds for tool in bound.tools if hasattr(tool, "running")}
        for toolset in homes.values():
            await stack.enter_async_context(cast("Any", toolset).running())

    async def __aenter__(self) -> "App":
        stack = AsyncExitStack()
        await stack.enter_async_context(self.running())
        self._entered = stack
        return self

    async def __aexit__(self, *exc: Any) -> bool | None:
        stack, self._entered = self._entered, None
        return await stack.__aexit__(*exc) if stack is not None else None

    async def _close(self) -> None:
        for plugin in self.plugins:
            await plugin.close()
        for tree in self.trees.values():
            agents = [agent for agent in tree.agents() if hasattr(agent, "aclose")]
            toolsets = [item for bound in tree.bounds() for item in bound.tools if not isinstance(item, Tool)]
            for connected in [*agents, *toolsets]:
                await cast("Any", connected).aclose()
        await self._close_models()
        for store in (self.stores.sessions, self.stores.artifacts, self.stores.memory):
            if store is not None:
                await store.aclose()

    async def _close_models(self) -> None:
        bound = [b.model for tree in self.trees.values() for b in tree.bounds()]
        summing = [c.model for c in self._compactors.values() if c.model is not None]
        for model in {id(m): m for m in (*bound, *summing)}.values():
            await model.aclose()

    # ---- asking from Python

    async def ask(
        self,
        message: str | Content,
        *,
        app: str = "",
        user: str = "user",
        session: str = "",
        state: dict[str, Any] | None = None,
        config: RunConfig | None = None,
    ) -> Reply:
        """Ask an agent and wait for the answer. A session that does not exist is made; without `session` it is a new one.

        Raises what made the run fail, or RunCancelled.
        """
        events: list[Event] = []
        request = self._request(message, app, user, session, state, config)
        async with self.serving():
            run = await self.runs.start(request, attached=True)
            async with run.watching():
                async for items in run.follow():
                    events.extend(item.event for item in items)
            outcome = await run.wait()
        _raise(outcome)
        texts = [e.text for e in events if not e.partial and e.text]
        return Reply(texts[-1] if texts else "", [e for e in events if not e.partial], request.key.id, outcome)

    async def stream(
        self,
        message: str | Content,
        *,
        app: str = "",
        user: str = "user",
        session: str = "",
        state: dict[str, Any] | None = None,
        config: RunConfig | None = None,
    ) -> AsyncGenerator[Event]:
        """The events of a run as they come, partial ones too. Close the generator to stop the run.

        The app must be running (`async with app:`), for a generator cannot hold tasks of its own safely.
        """
        request = self._request(message, app, user, session, state, config or RunConfig(streaming=True))
        run = await self.runs.start(request, attached=True)
        async with run.watching():
            async for items in run.follow():
                for item in items:
                    yield item.event
        _raise(await run.wait())

    def run_sync(self, message: str | Content, **options: Any) -> Reply:
        """`ask` for code that is not async; call it as often as you like. Inside a running event loop (a notebook, an async
        function) use `await app.ask(...)` instead."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return anyio.run(lambda: self.ask(message, **options))
        raise ConfigError("run_sync was called inside a running event loop: use `await app.ask(...)` there")

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Accept runs inside the block. Nothing to do when the app is running; otherwise what it needs is started and ended,
        but its stores stay open, so that it may be done again."""
        if self.runs.serves:
            yield
        else:
            async with AsyncExitStack() as stack:
                await self._enter_toolsets(stack)
                await stack.enter_async_context(self.runs.serving(self.limits.shutdown_s))
                yield
            await self._close_models()  # connections belong to the event loop that ends now

    def _request(
        self,
        message: str | Content,
        app: str,
        user: str,
        session: str,
        state: dict[str, Any] | None,
        config: RunConfig | None,
    ) -> RunRequest:
        if not app:
            if len(self.trees) > 1:
                raise ConfigError(f"this app has several agents; say which with app=: {', '.join(self.trees)}")
            app = next(iter(self.trees))
        return RunRequest(
            key=SessionKey(app, user, session or REAL.new_id()),
            message=user_text(message) if isinstance(message, str) else message,
            state_delta=state or {},
            config=config or RunConfig(),
            create_session=True,
        )


def _raise(outcome: RunOutcome) -> None:
    if outcome.status == "cancelled":
        raise RunCancelled(outcome.reason)
    if outcome.error is not None:
        raise outcome.error
