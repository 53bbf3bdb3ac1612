"""Drawings of agents: who uses which tool, who follows whom, and what an event was about (spec rest 5.3).

Made for the graph routes from the tree of agents, and written as DOT (`dot`) or SVG (`svg`). Pure.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec import Struct

from polyport.agents.flows import LoopAgent, ParallelAgent, SequentialAgent
from polyport.data.event import Event
from polyport.engine.spec import LlmSpec
from polyport.engine.tree import AgentTree
from polyport.ports.agent import Agent
from polyport.workflow import GraphEdge, Workflow
from polyport.workflow.nodes import AgentNode

Pair = tuple[str, str]
"""From whom to whom something went."""

_FLOWS = (SequentialAgent, LoopAgent, ParallelAgent)
_SIGNS = {"tool": "🔧", "function": "ƒ", "join": "⋈", "parallel_worker": "∥"}
"""Kind of a node -> what stands before its name."""


DONE, WENT, PALE = "#0F5223", "#69CB87", "#cccccc"


class Colours(NamedTuple):
    """Of the paper, of text and lines, and of the frames."""

    paper: str
    ink: str
    frame: str


DARK = Colours("#333537", PALE, "white")
LIGHT = Colours("#ffffff", "#333537", "#333537")


class Node(Struct, frozen=True):
    """`shape` is ellipse, box or circle; `done` is whether the event was about it."""

    id: str
    label: str
    shape: str
    done: bool


class Frame(Struct):
    """What stands around the members of a flow or a graph."""

    id: str
    label: str
    items: "list[Node | Frame]"


class Edge(Struct, frozen=True):
    """`way` is "there" or "back" for what the event was about, else "". `route` is None outside graphs."""

    source: str
    target: str
    way: str = ""
    route: str | None = None


class Drawing(Struct):
    """What is to be seen, in order."""

    items: list[Node | Frame]
    edges: list[Edge]


def highlights(event: Event) -> list[Pair]:
    """What an event was about: calls go from the author to the tool, results back; a text is the author's alone, an output that
    of the node."""
    if event.node_info is not None and "/" in event.node_info.path:
        graph, node = (part.partition("@")[0] for part in event.node_info.path.split("/")[-2:])
        return [(event.author, event.author), (_node_id(graph, node), _node_id(graph, node))]
    if event.calls:
        return [(event.author, call.name) for call in event.calls]
    if event.responses:
        return [(response.name, event.author) for response in event.responses]
    return [(event.author, event.author)]


def draw(tree: AgentTree, root: Agent, pairs: Iterable[Pair] = ()) -> Drawing:
    """The agents from `root` on, with what `pairs` name marked."""
    pen = _Pen(tree, set(pairs))
    pen.draw(root)
    return Drawing(pen.items, pen.edges)


class _Pen:
    """`items` is where the next node or frame goes."""

    def __init__(self, tree: AgentTree, pairs: set[Pair]) -> None:
        self._tree = tree
        self._pairs = pairs
        self._named = {name for pair in pairs for name in pair}
        self._drawn: set[str] = set()
        self.items: list[Node | Frame] = []
        self.edges: list[Edge] = []

    def draw(self, agent: Agent) -> None:
        if isinstance(agent, _FLOWS):
            self._flow(agent)
            return
        if isinstance(agent, Workflow):
            self._workflow(agent)
            return
        self._node(agent.name, f"🤖 {agent.name}", "ellipse")
        for tool in _tools(self._tree, agent):
            self._node(tool, f"🔧 {tool}", "box")
            self._edge(agent.name, tool)
        for child in agent.sub_agents:
            self.draw(child)

    def _open(self, agent: Agent) -> list[Node | Frame]:
        """Go into a new frame; gives where to go on after it."""
        outside = self.items
        frame = Frame(f"cluster_{agent.name}", f"{agent.name} ({type(agent).__name__})", [])
        outside.append(frame)
        self.items = frame.items
        return outside

    def _flow(self, agent: Agent) -> None:
        """A frame around the sub-agents, which are joined in their order."""
        if agent.name in self._drawn:
            return
        self._drawn.add(agent.name)
        outside = self._open(agent)
        for child in agent.sub_agents:
            self.draw(child)
        self.items = outside
        if isinstance(agent, ParallelAgent):
            return
        children = [child for child in agent.sub_agents if _ends(child)]
        for one, other in pairwise(children):
            self._edge(_ends(one)[-1], _ends(other)[0])
        if isinstance(agent, LoopAgent) and children:
            self._edge(_ends(children[-1])[-1], _ends(children[0])[0])

    def _workflow(self, agent: Workflow) -> None:
        """A frame around the nodes of a graph, and its edges with their routes. A node's name is that in its graph only."""
        if agent.name in self._drawn:
            return
        self._drawn.add(agent.name)
        outside = self._open(agent)
        self._node(_node_id(agent.name, "START"), "START", "circle")
        for node in agent.graph.nodes:
            found = agent.plan.nodes[node.name]
            if isinstance(found, AgentNode) and node.kind != "tool":
                self.draw(found.agent)
            else:
                self._node(_node_id(agent.name, node.name), f"{_SIGNS.get(node.kind, '')} {node.name}".strip(), "box")
        self.items = outside
        for edge in agent.graph.edges:
            source, target = _place(agent, edge.source)[-1:], _place(agent, edge.target)[:1]
            if source and target:
                self._edge(source[0], target[0], _route(edge))

    def _node(self, name: str, label: str, shape: str) -> None:
        if name not in self._drawn:
            self._drawn.add(name)
            self.items.append(Node(name, label, shape, name in self._named))

    def _edge(self, one: str, other: str, route: str | None = None) -> None:
        """A line; with an arrow and what it takes to go along, if it is one of a graph."""
        way = "there" if (one, other) in self._pairs else "back" if (other, one) in self._pairs else ""
        edge = Edge(one, other, way, route)
        if edge not in self.edges:
            self.edges.append(edge)


def _ends(agent: Agent) -> list[str]:
    """The nodes by which an agent is entered and left; those of a flow are its sub-agents'."""
    if isinstance(agent, Workflow):
        last = [node.name for node in agent.graph.nodes if agent.plan.last(node.name)]
        return [_node_id(agent.name, "START"), *(place for name in last[-1:] for place in _place(agent, name)[-1:])]
    if not isinstance(agent, _FLOWS):
        return [agent.name]
    inside = [name for child in agent.sub_agents for name in _ends(child)]
    return [inside[0], inside[-1]] if inside else []


def _place(graph: Workflow, name: str) -> list[str]:
    """By what a node of a graph is entered and left."""
    node = graph.plan.nodes.get(name)
    if isinstance(node, AgentNode) and node.kind != "tool":
        return _ends(node.agent)
    return [_node_id(graph.name, name)]


def _node_id(graph: str, node: str) -> str:
    return f"{graph}/{node}"


def _route(edge: GraphEdge) -> str:
    return "default" if edge.default else ", ".join(edge.routes)


def _tools(tree: AgentTree, agent: Agent) -> list[str]:
    """The names of an agent's tools. Those of a toolset are only known while it runs; it stands for them."""
    if not isinstance(agent, LlmSpec):
        return []
    return [_name(tool) for tool in tree.bound(agent).tools]


def _name(tool: Any) -> str:
    name: Any = getattr(tool, "name", "")
    return name if isinstance(name, str) and name else type(tool).__name__
