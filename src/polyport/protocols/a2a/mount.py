"""A2A as part of an app: `App(protocols=["rest", A2a(...)])` or just "a2a".

Makes the handler, the card and the routes of each app, the task store they share, and what keeps running beside them. The
first app is also served where there is one only: at `/`, `/a2a`, `/a2a/v1/invoke` and `/a2a/invoke`.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar, cast
from urllib.parse import quote

from msgspec import structs

from polyport.errors import ConfigError, NotFound
from polyport.ports.stores import Stores
from polyport.ports.tasks import PushStore, TaskStore
from polyport.protocols.a2a.calls import Push
from polyport.protocols.a2a.card import Card, CardConfig, Place
from polyport.protocols.a2a.card_routes import CardRoutes
from polyport.protocols.a2a.edge import V03, Edge
from polyport.protocols.a2a.handler import A2aHandler
from polyport.protocols.a2a.http import HttpJson
from polyport.protocols.a2a.jsonrpc import JsonRpc
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.protocols.a2a.settings import A2aSettings, ExecutorConfig
from polyport.protocols.a2a.speech import Speech03, Speech10
from polyport.protocols.http import Request
from polyport.protocols.parts import Parts
from polyport.protocols.routes import Route
from polyport.seams import Seams
from polyport.stores.memory_pushes import MemoryPushes
from polyport.stores.memory_tasks import MemoryTasks
from polyport.stores.postgres import PostgresSessions
from polyport.stores.postgres_pushes import PostgresPushes
from polyport.stores.postgres_tasks import PostgresTasks
from polyport.stores.sqlite import SqliteSessions
from polyport.stores.sqlite_pushes import SqlitePushes
from polyport.stores.sqlite_tasks import SqliteTasks
from polyport.wire.a2a_errors import CODES
from polyport.wire.a2a_translate import EXTENSION

T = TypeVar("T")
ROOTS = ("/", "/a2a", "/a2a/v1/invoke", "/a2a/invoke")
"""Where the first app takes JSON-RPC."""
APP = "/a2a/{app}"
"""Where each app is served."""


@dataclass(frozen=True, kw_only=True)
class A2a:
    """The A2A protocol, for `App(protocols=[...])`. `card` and `executor` may be mappings of app names.

    - `tasks` is where tasks are kept; beside the sessions without it.
    - `push` lets callers have push notifications; `pushes` is where their configurations are kept, beside the tasks without it.
    - `grpc` is the address, `host:port`, of a gRPC server; several apps are told apart by tenant there, as their cards say.
      `grpc_tls` are the files of its certificate and private key.
    - `recover` goes on with the tasks of a process that died: at start, when only one process may, and in a cluster, where
      all may, whenever one is gone.
    - `stream_s` is how long a stream may last, None without a limit.
    - `status_codes` "1.0.0" is for clients of that version.
    """

    card: CardConfig | Mapping[str, CardConfig] = field(default_factory=CardConfig)
    settings: A2aSettings = field(default_factory=A2aSettings)
    executor: ExecutorConfig | Mapping[str, ExecutorConfig] = field(default_factory=ExecutorConfig)
    tasks: TaskStore | None = None
    push: PushSettings | None = None
    pushes: PushStore | None = None
    grpc: str = ""
    grpc_tls: tuple[str | Path, str | Path] | None = None
    recover: bool = True
    stream_s: float | None = None
    status_codes: str = CODES[0]

    def mount(self, parts: Parts) -> "A2aServer":
        if self.status_codes not in CODES:
            raise ConfigError(f"A2A: status_codes is {self.status_codes!r}; it must be one of {', '.join(CODES)}")
        for name, given in (("card", self.card), ("executor", self.executor)):
            unknown = [app for app in given if app not in parts.trees] if isinstance(given, Mapping) else []
            if unknown:
                raise ConfigError(f"A2A: {name} is set for {unknown[0]!r}, but the apps are: {', '.join(parts.trees)}")
        return A2aServer(self, parts)


class A2aServer:
    """See the module. `edges` has the apps by name."""

    def __init__(self, options: A2a, parts: Parts) -> None:
        self.options = options
        self._parts = parts
        self.tasks = options.tasks or task_store(parts.runs.stores, parts.seams)
        self.push = None if options.push is None else _outbox(options, options.push, self.tasks, parts)
        if len(parts.trees) > 1 and (taken := [name for name in parts.trees if name in ("v1", "invoke")]):
            raise ConfigError(
                f"an app cannot be named {taken[0]!r} when several are served over A2A: /a2a has that path"
            )
        self.edges = {name: self._edge(name) for name in parts.trees}
        self._first = next(iter(self.edges.values()))
        self.grpc = _grpc(options, self.edges, parts) if options.grpc else None

    def _edge(self, app: str) -> Edge:
        options, parts = self.options, self._parts
        settings = structs.replace(options.settings, extensions=(*options.settings.extensions, EXTENSION))
        handler = A2aHandler(
            app,
            parts,
            self.tasks,
            push=self.push,
            settings=settings,
            executor=_of(options.executor, app, ExecutorConfig),
        )
        config = _of(options.card, app, CardConfig)
        place = Place(f"/a2a/{quote(app)}")
        card = Card(parts.trees[app], config, settings, place, parts.seams, push=self.push is not None)
        if options.recover:
            handler.recovery.on_loss()
        if config.extended:
            handler.extended_card_hook = card.extended
        return Edge(handler, card, options.status_codes, parts.limits.heartbeat_s, options.stream_s)

    # ---- the edges

    def routes(self) -> list[Route]:
        rpc = JsonRpc(self._find, self._base)
        cards = CardRoutes(self._find, self._base)
        found = [
            Route("POST", path, rpc.handle, on_error=rpc.refuse, summary="A2A: one JSON-RPC call")
            for path in (*ROOTS, APP)
        ]
        for path in (*ROOTS, APP):
            found += cards.routes(path.rstrip("/"))
        http = HttpJson(self._find, self._base, Speech10())
        found += [*http.routes("", tenants=True), *http.routes("/a2a"), *http.routes(APP, tenants=True)]
        if V03 in self.options.settings.versions:
            old = HttpJson(self._find, self._base, Speech03())
            found += [route for path in ("", "/a2a", APP) for route in old.routes(path)]
        first = self._first.handler.app
        return [route if "{app}" in route.pattern else replace(route, app=first) for route in found]

    def _find(self, request: Request) -> Edge:
        name = request.params.get("app")
        if name is None:
            return self._first
        edge = self.edges.get(name)
        if edge is None:
            raise NotFound(f"there is no agent {name[:100]!r} here")  # cards are public, the list of agents is not
        return edge

    def _base(self, request: Request) -> str:
        return self._parts.guard().public_base(request)

    # ---- life

    @asynccontextmanager
    async def around(self) -> AsyncGenerator[None]:
        """See protocols.parts.Mounted: the runs of tasks end first."""
        try:
            async with AsyncExitStack() as stack:
                if self.push is not None:
                    await stack.enter_async_context(self.push.delivering())
                for edge in self.edges.values():
                    await stack.enter_async_context(edge.handler.serving())
                yield
        finally:
            await self.tasks.aclose()

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """See protocols.parts.Mounted: tasks of a process that died go on."""
        await self.tasks.ping()
        auth = self._parts.guard().auth
        if auth is not None:
            for edge in self.edges.values():
                edge.card.asks_for(auth.authenticator.challenge)
        async with AsyncExitStack() as stack:
            if self.options.recover:
                for edge in self.edges.values():
                    await stack.enter_async_context(edge.handler.recovery.running())
            if self.grpc is not None:
                await stack.enter_async_context(self.grpc.serving())
                for app, edge in self.edges.items():
                    tenant = "" if edge is self._first else app
                    edge.card.at_grpc(self.grpc.port, tls=self.options.grpc_tls is not None, tenant=tenant)
            yield


class Outbox(Push, Protocol):
    """What the mount knows of `push.PushOutbox`."""

    def delivering(self) -> AbstractAsyncContextManager[None]:
        """Deliver inside the block."""
        ...


def _outbox(options: A2a, settings: PushSettings, tasks: TaskStore, parts: Parts) -> Outbox:
    from polyport.protocols.a2a.push import PushOutbox  # an HTTP client that is needed by this choice only

    pushes = options.pushes or push_store(tasks, parts.seams)
    return PushOutbox(settings, pushes, tasks, list(parts.trees), parts.seams)


class Grpc(Protocol):
    """What the mount knows of `grpc.GrpcServer`."""

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        ...

    def serving(self) -> AbstractAsyncContextManager[None]: ...


def _grpc(options: A2a, edges: Mapping[str, Edge], parts: Parts) -> Grpc:
    try:
        from polyport.protocols.a2a.grpc import Behind, GrpcServer  # an optional dependency
    except ModuleNotFoundError as error:
        raise ConfigError(f"A2A over gRPC needs the package {error.name!r}: pip install grpcio protobuf") from None
    return GrpcServer(options.grpc, Behind(edges, parts.guard, parts.limits, parts.seams), options.grpc_tls)


def task_store(stores: Stores, seams: Seams) -> TaskStore:
    """Where tasks live: beside the sessions, and in their transactions (a quarter less time for each message)."""
    sessions = stores.sessions
    if isinstance(sessions, SqliteSessions):
        return SqliteTasks(sessions.path, seams=seams, writer=sessions.writer)
    if isinstance(sessions, PostgresSessions):
        return PostgresTasks(sessions.database)
    return MemoryTasks()


def push_store(tasks: TaskStore, seams: Seams) -> PushStore:
    """Where push configurations live: beside the tasks."""
    if isinstance(tasks, SqliteTasks):
        return SqlitePushes(tasks.path, seams=seams, writer=tasks.writer)
    if isinstance(tasks, PostgresTasks):
        return PostgresPushes(tasks.database, seams=seams)
    return MemoryPushes()


def _of(given: T | Mapping[str, T], app: str, kind: type[T]) -> T:
    """What was given for an app."""
    return (cast("Mapping[str, T]", given).get(app) or kind()) if isinstance(given, Mapping) else given
