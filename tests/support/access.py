"""For the access matrix: a server with everything that alice has, and a request for every route of it.

What a route needs is found by name: path parameters in `World.params`, bodies in `BODIES` by the end of the pattern. `Missing`
says what to add for a new route.
"""

import inspect
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import anyio

from polyport import App, Limits, LlmAgent, Stores
from polyport.auth.authorize import Role, Roles, Strict
from polyport.ports.auth import Auth, Authorizer
from polyport.protocols.a2a.card import CardConfig
from polyport.protocols.a2a.mount import A2a
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.protocols.agent_engine.mount import AgentEngine, class_methods
from polyport.protocols.debug.mount import Debug
from polyport.protocols.evals.mount import Evals
from polyport.protocols.live.mount import Live
from polyport.protocols.metrics.mount import Metrics
from polyport.protocols.routes import Route
from polyport.protocols.triggers.mount import Triggers
from polyport.protocols.web.mount import Web
from polyport.stores.memory import KeywordMemory, MemoryArtifacts, MemorySessions
from polyport.stores.memory_tasks import MemoryTasks
from polyport.stores.memory_triggers import MemoryTriggers
from polyport.testing import ScriptedModel, connect
from polyport.testing.connect import Client
from polyport.testing.websocket import Refused
from polyport.wire.a2a_sign import new_key
from support.identity import Keyed

CANARY = "what-only-alice-knows"
ABOUT = "an-agent-that-not-everybody-may-know"
RPC = {"jsonrpc": "2.0", "id": 7}
ACCEPT = {"accept": "application/json, text/event-stream"}
HOOK = "http://127.0.0.1:9/"
KEYED = Keyed(alice=["users"], bob=["users"], root=["users", "admin"], carol=[])
ROLES = Roles([Role(name="users", apps=("a",)), Role(name="admin", act_as=("*",), administer=True)])
STRICT = Strict()

_SIGNER = new_key("k1")
_PAGE = Path(__file__).parent / "page"


def protocols(folder: Path) -> list[Any]:
    """What is mounted, `folder` for those that need one. Add a protocol here, and to BODIES what its routes take."""
    return [
        "rest",
        "mcp",
        A2a(
            card=CardConfig(keys=[_SIGNER], extended=lambda call, card: card),  # pyright: ignore
            push=PushSettings(allow_private=True, allow_http=True, attempts=1, drain_s=0),
        ),
        AgentEngine(),
        Live(),
        Debug(capture_content=True),
        Metrics(),
        Triggers(),
        Evals(root=folder),
        Web(root=_PAGE),
    ]


OF_ADMINS = ("/trigger/",)
"""Routes without `admin` that are not for users, but for senders with a role."""


def _ae(streaming: bool) -> list[dict[str, Any]]:
    """A call of every method of the Agent Engine, its input by the names of its parameters."""
    inputs = {"user_id": "$user", "session_id": "$session", "message": "hi"}
    inputs["request_json"] = '{"user_id": "alice", "session_id": "s1", "message": {"parts": [{"text": "hi"}]}}'
    return [
        {"class_method": m["name"], "input": {k: v for k, v in inputs.items() if k in m["parameters"]["properties"]}}
        for m in class_methods()
        if ("stream" in m["api_mode"]) == streaming
    ]


_RUN = {"appName": "$app", "userId": "$user", "sessionId": "$session", "newMessage": {"parts": [{"text": "hi"}]}}
_SAY = {"messageId": "new", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
_SAY_OLD = {"messageId": "new", "role": "ROLE_USER", "content": [{"text": "hi"}]}
_CALLS: list[Any] = [
    {**RPC, "method": "SendMessage", "params": {"message": _SAY}},
    {**RPC, "method": "ListTasks", "params": {}},
    {**RPC, "method": "GetTask", "params": {"id": "$task"}},
    {**RPC, "method": "tasks/get", "params": {"id": "$task"}},
    {**RPC, "method": "ListTaskPushNotificationConfigs", "params": {"taskId": "$task"}},
    {**RPC, "method": "CancelTask", "params": {"id": "$task"}},
]
_HELLO = {
    **RPC,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
BODIES: dict[str, list[Any]] = {
    "POST /run": [_RUN],
    "POST /run_sse": [_RUN],
    "POST /runs/{run}:cancel": [{}],
    "POST /sessions": [{}],
    "POST /sessions/{session}": [{}],
    "PATCH /sessions/{session}": [{"stateDelta": {"note": "new"}}],
    "POST /artifacts": [{"filename": "new.txt", "artifact": {"text": "hi"}}],
    "POST /mcp": [_HELLO],
    "POST /": _CALLS,
    "POST /a2a": _CALLS,
    "POST /a2a/v1/invoke": _CALLS,
    "POST /a2a/invoke": _CALLS,
    "POST /a2a/{app}": _CALLS,
    "POST /message:send": [{"message": _SAY}],
    "POST /message:stream": [{"message": _SAY}],
    "POST /v1/message:send": [{"message": _SAY_OLD}],
    "POST /v1/message:stream": [{"message": _SAY_OLD}],
    "POST /tasks/{task}:cancel": [{}],
    "POST /tasks/{task}:subscribe": [{}],
    "POST /pushNotificationConfigs": [{"id": "new", "url": HOOK}],
    "POST /v1/tasks/{task}/pushNotificationConfigs": [
        {"config": {"pushNotificationConfig": {"id": "new", "url": HOOK}}}
    ],
    "POST /trigger/pubsub": [{"message": {"data": "aGk=", "messageId": "m"}, "subscription": "s"}],
    "POST /trigger/eventarc": [{"specversion": "1.0", "id": "e", "source": "s", "type": "t", "data": {"hi": 1}}],
    "POST /trigger/webhook": [{"hi": 1}],
    "POST /trigger/webhook/{name}": [{"hi": 1}],
    "POST /reasoning_engine": _ae(False),
    "POST /stream_reasoning_engine": _ae(True),
}
"""`METHOD end of the pattern` -> bodies, each of which is sent; the longest end counts. `$name` is a path parameter. Routes of
admins need none: nobody else gets so far."""


class Missing(AssertionError):
    """The matrix does not know how to call a route."""


class Call(NamedTuple):
    """One request: a route with a body for it."""

    route: Route
    body: Any = None
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.route.method} {self.route.pattern}" + (f" #{self.number}" if self.number else "")


def calls(routes: Any) -> Iterator[Call]:
    for route in routes:
        if route.method not in ("POST", "PUT", "PATCH"):
            yield Call(route)
            continue
        ends = [end for end in BODIES if _is_end(end, route)]
        if not ends and route.admin:
            yield Call(route, {})
            continue
        if not ends:
            raise Missing(f"support.access.BODIES needs a body for {route.method} {route.pattern}")
        for number, body in enumerate(BODIES[max(ends, key=len)]):
            yield Call(route, body, number)


def _is_end(end: str, route: Route) -> bool:
    method, _, path = end.partition(" ")
    whole = path in ("/", "/run", "/a2a")
    return method == route.method and (route.pattern == path if whole else route.pattern.endswith(path))


def counted(kind: Any, touched: list[str]) -> Any:
    """A store of this kind that notes every use of it in `touched`."""

    class Counted(kind):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if not name.startswith("_") and name not in ("ping", "aclose") and inspect.iscoroutinefunction(found):
                touched.append(name)
            return found

    return Counted()


class Speaker(ScriptedModel):
    """The agent's model: says what it was told, and waits for ever when that has "wait" in it. `runs` counts."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        self.waits = anyio.Semaphore(0)

    async def generate(self, request: Any, on_partial: Any = None) -> Any:
        self.runs += 1
        told = str(request.contents[-1].text)
        if "wait" in told:
            self.waits.release()
            await anyio.sleep_forever()
        self.steps.append(f"you said: {told}")
        return await super().generate(request, on_partial)


@dataclass
class World:
    """The server, and what alice has there."""

    client: Client
    app: App
    agent: Speaker
    touched: list[str]
    params: dict[str, str] = field(default_factory=dict[str, str])
    tenant_task: str = ""
    mcp: dict[str, str] = field(default_factory=dict[str, str])
    grpc: Any = None

    async def ask(
        self, call: Call, headers: dict[str, str], prefix: str = "", method: str = ""
    ) -> tuple[int, bytes, Any]:
        """Status, body and headers of the answer to a call. An answer that streams without end is not read."""
        params = dict(self.params)
        if "{tenant}" in call.route.pattern:
            params["task"] = self.tenant_task
        path = prefix + _fill_path(call.route, params)
        named = dict(headers)
        if call.route.pattern == "/mcp":
            named |= ACCEPT if call.body is not None else {**ACCEPT, **self.mcp}
        with anyio.fail_after(20):
            if call.route.method == "WEBSOCKET":
                return await self._handshake(path, named)
            body = _fill(call.body, params)
            async with self.client.stream(method or call.route.method, path, json=body, headers=named) as answer:
                endless = answer.status == 200 and (
                    call.route.pattern == "/mcp" or "subscribe" in path or "/runs/" in path
                )
                return answer.status, b"" if endless else await answer.read(), answer.headers

    async def _handshake(self, path: str, headers: dict[str, str]) -> tuple[int, bytes, Any]:
        query = {"app_name": self.params["app"], "user_id": self.params["user"], "session_id": self.params["session"]}
        try:
            async with self.client.websocket(path, headers=headers, query=query):
                return 101, b"", {}
        except Refused as refused:
            return refused.response.status, refused.response.body, refused.response.headers

    async def belongings(self) -> list[Any]:
        """All that alice has, as she sees it."""
        mine = KEYED.headers("alice")
        at = "/apps/a/users/alice/sessions"
        paths = [at, f"{at}/s1", f"{at}/s2", f"{at}/s1/artifacts", f"{at}/s1/artifacts/note.txt/versions"]
        paths += [f"/runs/{self.params['run']}", "/tasks", "/t/tasks"]
        paths += [f"{p}/tasks/{t}/pushNotificationConfigs" for p, t in self._tasks]
        found: list[Any] = []
        for path in paths:
            answer = await self.client.get(path, headers=mine)
            assert answer.status == 200, answer.text
            found.append(answer.json())
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        alive = await self.client.post("/mcp", json=told, headers={**ACCEPT, **mine, **self.mcp})
        return [*found, alive.status]

    @property
    def _tasks(self) -> list[tuple[str, str]]:
        return [("", self.params["task"]), ("/t", self.tenant_task)]

    async def furnish(self) -> None:
        """Give alice something to lose."""
        at = "/apps/a/users/alice/sessions"
        await self._post(f"{at}/s1", {"state": {"note": CANARY}})
        await self._post(f"{at}/s2", {})
        await self._post(f"{at}/s1/artifacts", {"filename": "note.txt", "artifact": {"text": CANARY}})
        run = {**_RUN, "appName": "a", "userId": "alice", "sessionId": "s2"}
        run["newMessage"] = {"parts": [{"text": f"wait {CANARY}"}]}
        past = {**run, "sessionId": "s1", "newMessage": {"parts": [{"text": CANARY}]}}
        event = (await self._post("/run", past))[-1]["id"]
        started = await self._post("/run?detach=true", run)
        self.params = {
            "app": "a",
            "user": "alice",
            "session": "s1",
            "name": "note.txt",
            "version": "1",
            "config": "p",
            "path": "index.html",
        }
        self.params |= {"event": event, "tenant": "t", "run": started["invocationId"]}
        await self._waits()
        for prefix in ("", "/t"):
            said = {**_SAY, "messageId": "first", "parts": [{"text": f"wait {CANARY}"}]}
            body = {"message": said, "configuration": {"returnImmediately": True}}
            task = (await self._post(f"{prefix}/message:send", body))["task"]["id"]
            await self._waits()
            await self._post(f"{prefix}/tasks/{task}/pushNotificationConfigs", {"id": "p", "url": HOOK + CANARY})
            self.params.setdefault("task", task)
            self.tenant_task = task
        opened = await self.client.post("/mcp", json=_HELLO, headers={**ACCEPT, **KEYED.headers("alice")})
        self.mcp = {"mcp-session-id": opened.headers["mcp-session-id"]}

    async def _post(self, path: str, body: Any) -> Any:
        where, _, query = path.partition("?")
        asked = dict([query.split("=")]) if query else None
        answer = await self.client.post(where, json=body, headers=KEYED.headers("alice"), query=asked)
        assert answer.status < 300, answer.text
        return answer.json()

    async def _waits(self) -> None:
        with anyio.fail_after(20):
            await self.agent.waits.acquire()


class _Kept:
    """A protocol that keeps what it mounts."""

    def __init__(self, protocol: Any, servers: list[Any]) -> None:
        self._protocol = protocol
        self._servers = servers

    def mount(self, parts: Any) -> Any:
        self._servers.append(self._protocol.mount(parts))
        return self._servers[-1]


@asynccontextmanager
async def world(folder: Path, authorizer: Authorizer = STRICT, grpc: str = "") -> AsyncGenerator[World]:
    touched: list[str] = []
    agent = Speaker()
    stores = Stores(
        counted(MemorySessions, touched), counted(MemoryArtifacts, touched), counted(KeywordMemory, touched)
    )
    servers: list[Any] = []
    chosen = protocols(folder)
    mounted = [
        _Kept(replace(p, tasks=counted(MemoryTasks, touched), grpc=grpc), servers)
        if isinstance(p, A2a)
        else replace(p, store=counted(MemoryTriggers, touched))
        if isinstance(p, Triggers)
        else p
        for p in chosen
    ]
    app = App(
        LlmAgent(name="a", description=ABOUT, model=agent),
        stores=stores,
        plugins=[plugin for p in chosen for plugin in getattr(p, "plugins", ())],
        limits=Limits(shutdown_s=0.01),
        protocols=mounted,
        auth=Auth(KEYED.auth, authorizer),
    )
    async with connect(app) as client:
        made = World(client, app, agent, touched)
        await made.furnish()
        made.grpc = servers[0].grpc
        touched.clear()
        yield made


def _fill_path(route: Route, params: dict[str, str]) -> str:
    parts: list[str] = []
    for part in route.pattern.split("/"):
        if part.startswith("{"):
            name, _, verb = part.partition("}")
            name = name[1:].rstrip("*")
            if name not in params and not route.admin:
                raise Missing(f"support.access: World.params needs an example for {{{name}}} of {route.pattern}")
            part = params.get(name, "x") + verb
        parts.append(part)
    return "/".join(parts)


def _fill(value: Any, params: dict[str, str]) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return params[value[1:]]
    if isinstance(value, dict):
        return {k: _fill(v, params) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_fill(v, params) for v in cast("list[Any]", value)]
    return value
