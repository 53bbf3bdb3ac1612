"""The graph routes: the agents of an app as a tree and as pictures, and the picture of one event (spec rest 1.3, 5.3, 10.1).

Called by the host. Pictures are DOT source, which the page of ADK draws itself, or SVG for everybody else.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from polyport.data.session import SessionKey
from polyport.engine.tree import AgentTree
from polyport.errors import BadRequest, NotFound
from polyport.ports.agent import Agent
from polyport.ports.stores import Stores
from polyport.protocols.answers import send_body, send_json
from polyport.protocols.debug.dot import dot
from polyport.protocols.debug.drawing import DARK, LIGHT, Colours, Drawing, draw, highlights
from polyport.protocols.debug.svg import svg
from polyport.protocols.http import Header, Request, Send
from polyport.protocols.routes import Route
from polyport.workflow import GraphData, Workflow

_EVENT = "/apps/{app}/users/{user}/sessions/{session}/events/{event}/graph"
_DEV = "/dev/apps/{app}"
_DARK = ("dark_mode", {"type": "boolean", "default": True, "description": "Light on dark, or dark on light"})
_FORMAT = ("format", {"enum": ["dot", "svg"], "default": "dot", "description": "DOT source in JSON, or a picture"})
_SVG: tuple[Header, ...] = (
    (b"content-type", b"image/svg+xml; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
)
_NODE = ("node", {"type": "string", "description": "The names from the root to an agent, with slashes between them"})


class Picture(Struct, rename="camel"):
    """DOT source."""

    dot_src: str


class AgentNode(Struct, omit_defaults=True):
    """An agent and those below it; `graph` is that of a workflow. The names of the members are ADK's."""

    name: str
    sub_agents: list["AgentNode"]
    description: str = ""
    graph: GraphData | None = None


class AgentGraph(Struct):
    root_agent: AgentNode
    readme: str


class Graphs:
    def __init__(self, trees: Mapping[str, AgentTree], stores: Stores) -> None:
        self._trees = trees
        self._stores = stores

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET", _EVENT, self.event, summary="The picture of an event", returns=Picture, query=(_DARK, _FORMAT)
            ),
            Route(
                "GET",
                f"/dev{_EVENT}",
                self.event,
                summary="The picture of an event",
                returns=Picture,
                query=(_DARK, _FORMAT),
            ),
            Route(
                "GET",
                f"{_DEV}/graph",
                self.whole,
                summary="The picture of an app",
                returns=Picture,
                query=(_DARK, _FORMAT),
            ),
            Route("GET", f"{_DEV}/build_graph", self.build, summary="The agents of an app", returns=AgentGraph),
            Route(
                "GET",
                f"{_DEV}/build_graph_image",
                self.image,
                summary="The picture of an app, by the name of its root, or of one of its agents",
                returns=dict[str, Picture] | Picture,
                query=(_DARK, _NODE),
            ),
        ]

    async def event(self, request: Request, send: Send) -> None:
        """404 for an app, session or event that is not there."""
        tree = await self._tree(request)
        app, user, session_id = (request.params[name] for name in ("app", "user", "session"))
        session = await self._stores.sessions.get(SessionKey(app, user, session_id))
        event = next((e for e in session.events if e.id == request.params["event"]), None)
        if event is None:
            raise NotFound("event not found")
        await _send(request, send, draw(tree, tree.root, highlights(event)))

    async def whole(self, request: Request, send: Send) -> None:
        tree = await self._tree(request)
        await _send(request, send, draw(tree, tree.root))

    async def build(self, request: Request, send: Send) -> None:
        await send_json(send, AgentGraph(_node((await self._tree(request)).root), ""))

    async def image(self, request: Request, send: Send) -> None:
        """`{"<root>": {"dotSrc"}}`; with `?node=root/child` the picture of that agent alone, 404 if there is none."""
        tree, colours, path = await self._tree(request), _colours(request), request.query_text("node")
        if not path:
            return await send_json(send, {tree.root.name: Picture(dot(draw(tree, tree.root), colours))})
        await send_json(send, Picture(dot(draw(tree, _at(tree.root, path)), colours)))

    async def _tree(self, request: Request) -> AgentTree:
        name = request.params["app"]
        tree = self._trees.get(name)
        if tree is None:
            raise await request.no_app(name, self._trees)
        return tree


async def _send(request: Request, send: Send, drawing: Drawing) -> None:
    """As DOT source, or with `?format=svg` as a picture. BadRequest for another format."""
    form = request.query_text("format") or "dot"
    if form not in ("dot", "svg"):
        raise BadRequest("format parameter must be dot or svg", "format")
    if form == "dot":
        return await send_json(send, Picture(dot(drawing, _colours(request))))
    await send_body(send, 200, svg(drawing, _colours(request)).encode(), _SVG)


def _colours(request: Request) -> Colours:
    return DARK if request.query_bool("dark_mode", True) else LIGHT


def _node(agent: Agent) -> AgentNode:
    return AgentNode(
        name=agent.name,
        description=agent.description,
        sub_agents=[_node(child) for child in agent.sub_agents],
        graph=agent.graph if isinstance(agent, Workflow) else None,
    )


def _at(root: Agent, path: str) -> Agent:
    """The agent at a path of names. What follows an `@` in a name is ignored, and the root may be left out (spec rest 1.3)."""
    names: list[Any] = [part.partition("@")[0] for part in path.split("/")]
    agent = root
    for name in names[1:] if names[0] == root.name else names:
        child = next((child for child in agent.sub_agents if child.name == name), None)
        if child is None:
            raise NotFound(f"there is no agent {path[:200]!r}")
        agent = child
    return agent
