"""Pictures of agents in the DOT language: who uses which tool, who follows whom, and what an event was about (spec rest 5.3).

Used by the graph routes. Pure functions over the tree of agents. Names come from users and are quoted.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

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
_DONE, _WENT, _PALE = "#0F5223", "#69CB87", "#cccccc"


class Colours(NamedTuple):
    """Of the paper, of text and lines, and of the frames."""

    paper: str
    ink: str
    frame: str


DARK = Colours("#333537", _PALE, "white")
LIGHT = Colours("#ffffff", "#333537", "#333537")


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


def picture(tree: AgentTree, root: Agent, pairs: Iterable[Pair] = (), colours: Colours = DARK) -> str:
    """The DOT source of the agents from `root` on, with what `pairs` name in colour."""
    drawing = _Drawing(tree, list(pairs), colours)
    drawing.draw(root)
    body = "\n".join(f"  {line}" for line in [*drawing.lines, *drawing.edges])
    return f"digraph AgentGraph {{\n  graph [bgcolor={_quoted(colours.paper)} rankdir=LR]\n{body}\n}}\n"


class _Drawing:
    """Lines of nodes and frames, and lines of edges."""

    def __init__(self, tree: AgentTree, pairs: Sequence[Pair], colours: Colours) -> None:
        self._tree = tree
        self._pairs = set(pairs)
        self._named = {name for pair in pairs for name in pair}
        self._colours = colours
        self._drawn: set[str] = set()
        self.lines: list[str] = []
        self.edges: list[str] = []

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

    def _frame(self, agent: Agent) -> None:
        """Begin a frame; `}` ends it."""
        label, frame = f"{agent.name} ({type(agent).__name__})", _quoted(self._colours.frame)
        self.lines.append(f"subgraph {_quoted(f'cluster_{agent.name}')} {{")
        self.lines.append(f"label={_quoted(label)} style=rounded color={frame} fontcolor={frame}")

    def _flow(self, agent: Agent) -> None:
        """A frame around the sub-agents, which are joined in their order."""
        if agent.name in self._drawn:
            return
        self._drawn.add(agent.name)
        self._frame(agent)
        for child in agent.sub_agents:
            self.draw(child)
        self.lines.append("}")
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
        self._frame(agent)
        self._node(_node_id(agent.name, "START"), "START", "circle")
        for node in agent.graph.nodes:
            found = agent.plan.nodes[node.name]
            if isinstance(found, AgentNode) and node.kind != "tool":
                self.draw(found.agent)
            else:
                self._node(_node_id(agent.name, node.name), f"{_SIGNS.get(node.kind, '')} {node.name}".strip(), "box")
        self.lines.append("}")
        for edge in agent.graph.edges:
            source, target = _place(agent, edge.source)[-1:], _place(agent, edge.target)[:1]
            if source and target:
                self._edge(source[0], target[0], _route(edge))

    def _node(self, name: str, label: str, shape: str) -> None:
        if name in self._drawn:
            return
        self._drawn.add(name)
        look = (
            f"style=filled,color={_quoted(_DONE)}" if name in self._named else f"style=rounded,color={_quoted(_PALE)}"
        )
        ink = _PALE if name in self._named else self._colours.ink
        self.lines.append(f"{_quoted(name)} [label={_quoted(label)},shape={shape},{look},fontcolor={_quoted(ink)}]")

    def _edge(self, one: str, other: str, route: str | None = None) -> None:
        """A line; with an arrow and what it takes to go along, if it is one of a graph."""
        if (one, other) in self._pairs:
            look = f"color={_quoted(_WENT)},arrowhead=normal"
        elif (other, one) in self._pairs:
            look = f"color={_quoted(_WENT)},arrowhead=normal,dir=back"
        else:
            look = f"color={_quoted(_PALE)},arrowhead={'none' if route is None else 'vee'}"
        if route:
            look += f",label={_quoted(route)},fontcolor={_quoted(self._colours.ink)}"
        line = f"{_quoted(one)} -> {_quoted(other)} [{look}]"
        if line not in self.edges:
            self.edges.append(line)


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


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", " ").replace("\n", " ")
    return f'"{escaped}"'
