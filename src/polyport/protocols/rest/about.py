"""What a server says about itself: health, version, apps, and an OpenAPI document made from the Structs (spec rest 1.2, 1.6).

`/health` is trivial on purpose; `/ready` asks the session store.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from polyport.engine.spec import LlmSpec
from polyport.engine.tree import AgentTree
from polyport.errors import Unavailable
from polyport.ports.agent import Agent
from polyport.ports.runs import Runs
from polyport.protocols.answers import send_body, send_json
from polyport.protocols.guard import Guard
from polyport.protocols.http import Request, Send
from polyport.protocols.rest.openapi import document, page
from polyport.protocols.routes import Route
from polyport.version import VERSION


class Health(Struct, kw_only=True):
    status: str


class Version(Struct, kw_only=True):
    """The names of the members are ADK's."""

    version: str
    language: str
    language_version: str


class AgentInfo(Struct, kw_only=True, rename="camel"):
    name: str
    description: str
    instruction: str
    tools: list[str]
    sub_agents: list[str]


class AppInfo(Struct, kw_only=True, rename="camel"):
    name: str
    root_agent_name: str
    description: str
    language: str
    agents: dict[str, AgentInfo]


class AppList(Struct, kw_only=True):
    apps: list[AppInfo]


class About:
    """`others` are the routes of the rest of the protocol, `guard` says how callers sign in, both for the OpenAPI document."""

    def __init__(
        self, runs: Runs, trees: Mapping[str, AgentTree], others: Sequence[Route], guard: Callable[[], Guard]
    ) -> None:
        self._runs = runs
        self._trees = trees
        self._others = others
        self._guard = guard
        self._document: dict[str, Any] | None = None

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/", self.start, public=True, yields=True, summary="Leads to a page", returns={302: None}),
            Route("GET", "/health", self.health, public=True, summary="Whether the process serves", returns=Health),
            Route(
                "GET",
                "/ready",
                self.ready,
                public=True,
                summary="Whether the session store can be reached",
                returns=Health,
            ),
            Route("GET", "/version", self.version, public=True, summary="The version of the server", returns=Version),
            Route(
                "GET",
                "/list-apps",
                self.apps,
                summary="The names of all apps",
                returns=list[str] | AppList,
                query=(("detailed", {"type": "boolean", "description": "Tell also what app-info tells of each"}),),
            ),
            Route("GET", "/apps/{app}/app-info", self.info, summary="The agents and tools of an app", returns=AppInfo),
            Route("GET", "/openapi.json", self.openapi, summary="This document", returns=dict[str, Any]),
            Route("GET", "/docs", self.docs, summary="This document for people", returns="text/html"),
        ]

    async def start(self, request: Request, send: Send) -> None:
        await send_body(send, 302, b"", [(b"location", f"{request.prefix}/docs".encode())])

    async def health(self, request: Request, send: Send) -> None:
        """Always 200 while the process serves."""
        headers = [(b"content-type", b"application/json")]
        await send_body(send, 200, b'{"status":"ok"}\n', headers)

    async def ready(self, request: Request, send: Send) -> None:
        """503 when the session store, or the cluster, cannot be reached."""
        try:
            await self._runs.ping()
        except Unavailable:
            raise
        except Exception as error:
            raise Unavailable(f"the session store cannot be reached ({type(error).__name__})") from error
        await send_json(send, Health(status="ok"))

    async def version(self, request: Request, send: Send) -> None:
        await send_json(send, Version(version=VERSION, language="python", language_version=platform.python_version()))

    async def apps(self, request: Request, send: Send) -> None:
        """Sorted names of the apps that the caller may use; `?detailed=true` gives `{"apps": [...]}` with what app-info says of
        each."""
        names = await request.usable(sorted(self._trees))
        if request.query_bool("detailed"):
            return await send_json(send, AppList(apps=[app_info(name, self._trees[name]) for name in names]))
        await send_json(send, names)

    async def info(self, request: Request, send: Send) -> None:
        name = request.params["app"]
        tree = self._trees.get(name)
        if tree is None:
            raise await request.no_app(name, self._trees)
        await send_json(send, app_info(name, tree))

    async def openapi(self, request: Request, send: Send) -> None:
        if self._document is None:
            auth = self._guard().auth
            self._document = document([*self._others, *self.routes()], auth and auth.authenticator)
        await send_json(send, {**self._document, "servers": [{"url": request.prefix or "/"}]})

    async def docs(self, request: Request, send: Send) -> None:
        body = page(document([*self._others, *self.routes()]), request.prefix)
        policy = b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", policy)]
        await send_body(send, 200, body, headers)


def app_info(name: str, tree: AgentTree) -> AppInfo:
    """What is told of an app. An instruction that is a function is not shown."""
    agents = {agent.name: _agent_info(agent) for agent in tree.agents()}
    return AppInfo(
        name=name,
        root_agent_name=tree.root.name,
        description=tree.root.description,
        language="python",
        agents=agents,
    )


def _agent_info(agent: Agent) -> AgentInfo:
    instruction, tools = "", []
    if isinstance(agent, LlmSpec):
        instruction = agent.instruction if isinstance(agent.instruction, str) else ""
        tools = [_tool_name(t) for t in agent.tools]
    return AgentInfo(
        name=agent.name,
        description=agent.description,
        instruction=instruction,
        tools=tools,
        sub_agents=[a.name for a in agent.sub_agents],
    )


def _tool_name(tool: Any) -> str:
    name: Any = getattr(tool, "name", None) or getattr(tool, "__name__", None)
    return name if isinstance(name, str) else type(tool).__name__
