"""The graph of a workflow: made from `edges`, checked once, then only read (spec core 4.2).

`read_edges` takes the edges as the user writes them; everything that is wrong with them is a ConfigError that names the nodes.
`Graph` is also what tools that draw a graph get: names, kinds and edges as plain data.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from polyport.engine.spec import LlmSpec
from polyport.errors import ConfigError
from polyport.workflow.nodes import FunctionNode, Join, Node, ToolNode, as_node
from polyport.workflow.values import route_text, schema_of


class _Word:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


START = _Word("START")
"""Where a graph begins: the first of an edge."""
DEFAULT = _Word("DEFAULT")
"""The route that is taken when no other one of the node matches."""


class GraphNode(Struct, frozen=True, rename="camel"):
    name: str
    kind: str
    """function, agent, tool, join, parallel_worker or workflow."""


class GraphEdge(Struct, frozen=True, rename="camel", omit_defaults=True):
    """`source` is "START" at the beginning. Without `routes` and not `default` the edge is always taken."""

    source: str
    target: str
    routes: list[str] = []
    default: bool = False


class GraphData(Struct, frozen=True):
    """A graph as plain data, for drawing."""

    name: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]


class Graph:
    """The nodes of a workflow by name, and its edges in the order in which they were written."""

    def __init__(self, name: str, nodes: dict[str, Node], edges: list[GraphEdge]) -> None:
        self.name = name
        self.nodes = nodes
        self.edges = edges
        self.after: dict[str, list[GraphEdge]] = {START_NAME: [], **{n: [] for n in nodes}}
        self.before: dict[str, list[str]] = {n: [] for n in nodes}
        for edge in edges:
            self.after[edge.source].append(edge)
            self.before[edge.target].append(edge.source)

    def last(self, name: str) -> bool:
        """Whether nothing comes after a node."""
        return not self.after[name]

    def first(self, name: str) -> bool:
        """Whether a node is reached from START only."""
        return set(self.before[name]) == {START_NAME}

    def data(self) -> GraphData:
        nodes = [GraphNode(n.name, "workflow" if _is_workflow(n) else n.kind) for n in self.nodes.values()]
        return GraphData(self.name, nodes, list(self.edges))


START_NAME = "START"


def _is_workflow(node: Node) -> bool:
    return any(hasattr(agent, "graph") for agent in node.agents) and node.kind == "agent"


def read_edges(name: str, edges: Iterable[Any], state_keys: frozenset[str] | None) -> Graph:
    """The graph that `edges` describe. ConfigError for all that spec core 4.2 names."""
    reader = _Reader(name)
    for item in edges:
        reader.chain(item)
    graph = Graph(name, reader.nodes, list(reader.edges.values()))
    _check_start(graph)
    _check_fan_in(graph)
    _check_reach(graph)
    _check_cycles(graph)
    _check_nodes(graph, state_keys)
    return graph


class _Reader:
    """Takes the chains apart."""

    def __init__(self, workflow: str) -> None:
        self.workflow = workflow
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str], GraphEdge] = {}
        self._known: dict[int, Node] = {}
        self._keep: list[Any] = []

    def chain(self, item: Any) -> None:
        """One chain: `(a, b, c)`, where a tuple or list in it stands for several nodes, and a dict for routes."""
        if not isinstance(item, tuple | list) or len(cast("Sequence[Any]", item)) < 2:
            raise ConfigError(
                f"workflow {self.workflow!r}: an edge is a tuple such as (START, first, second), not {item!r}"
            )
        steps = list(cast("Sequence[Any]", item))
        sources = self._names(steps[0])
        for step in steps[1:]:
            if isinstance(step, Mapping):
                sources = self._routes(sources, cast("Mapping[Any, Any]", step))
            else:
                targets = self._names(step)
                for source in sources:
                    for target in targets:
                        self._edge(GraphEdge(source, target))
                sources = targets

    def _routes(self, sources: list[str], routes: Mapping[Any, Any]) -> list[str]:
        found: list[str] = []
        for key, step in routes.items():
            for target in self._names(step):
                keys = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
                texts = [route_text(k) for k in keys if k is not DEFAULT]
                for source in sources:
                    self._edge(GraphEdge(source, target, texts, DEFAULT in keys))
                found.append(target)
        return list(dict.fromkeys(found))

    def _names(self, step: Any) -> list[str]:
        if isinstance(step, tuple | list):
            return [name for one in cast("Sequence[Any]", step) for name in self._names(one)]
        if step is START:
            return [START_NAME]
        return [self._node(step).name]

    def _node(self, target: Any) -> Node:
        found = self._known.get(id(target))
        if found is None:
            found = self._known[id(target)] = as_node(target)
            self._keep.append(target)
            other = self.nodes.get(found.name)
            if other is not None and other is not found:
                raise ConfigError(
                    f"workflow {self.workflow!r} has two nodes named {found.name!r}; give one another name: node(..., name=)"
                )
            self.nodes[found.name] = found
        return found

    def _edge(self, edge: GraphEdge) -> None:
        if edge.target == START_NAME:
            raise ConfigError(f"workflow {self.workflow!r}: an edge from {edge.source!r} leads into START")
        if (edge.source, edge.target) in self.edges:
            raise ConfigError(
                f"workflow {self.workflow!r} has two edges from {edge.source!r} to {edge.target!r}; several routes of one "
                'edge are a tuple: {("yes", "sure"): node}'
            )
        if edge.source == START_NAME and (edge.routes or edge.default):
            raise ConfigError(f"workflow {self.workflow!r}: an edge from START cannot have routes")
        self.edges[edge.source, edge.target] = edge


def _plain(edge: GraphEdge) -> bool:
    return not edge.routes and not edge.default


def _check_start(graph: Graph) -> None:
    if not graph.after[START_NAME]:
        raise ConfigError(f"workflow {graph.name!r} needs an edge from START: (START, first)")
    for name in graph.nodes:
        if sum(edge.default for edge in graph.after[name]) > 1:
            raise ConfigError(f"workflow {graph.name!r}: node {name!r} has more than one DEFAULT route")


def _check_fan_in(graph: Graph) -> None:
    always: dict[str, list[str]] = {}
    for edge in filter(_plain, graph.edges):
        always.setdefault(edge.target, []).append(edge.source)
    for name, sources in always.items():
        if len(sources) > 1 and not isinstance(graph.nodes[name], Join):
            raise ConfigError(
                f"workflow {graph.name!r}: {', '.join(map(repr, sources))} all lead to {name!r}, which would run once for "
                "each; put a Join before it"
            )


def _check_reach(graph: Graph) -> None:
    reached: set[str] = set()
    left = [START_NAME]
    while left:
        for edge in graph.after[left.pop()]:
            if edge.target not in reached:
                reached.add(edge.target)
                left.append(edge.target)
    lost = [name for name in graph.nodes if name not in reached]
    if lost:
        raise ConfigError(f"workflow {graph.name!r}: no way leads from START to {', '.join(map(repr, lost))}")


def _check_cycles(graph: Graph) -> None:
    """A circle of edges that are always taken would never end. Nodes are taken off that have no such edge into them any more,
    until only circles, and what hangs on them, are left."""
    waits = Counter(edge.target for edge in graph.edges if _plain(edge))
    free = [name for name in (START_NAME, *graph.nodes) if not waits[name]]
    for name in free:
        for edge in filter(_plain, graph.after[name]):
            waits[edge.target] -= 1
            if not waits[edge.target]:
                free.append(edge.target)
    left = sorted({*graph.nodes} - {*free})
    if left:
        raise ConfigError(
            f"workflow {graph.name!r} never ends: {', '.join(map(repr, left))} run in a circle without a route"
        )


def _check_nodes(graph: Graph, state_keys: frozenset[str] | None) -> None:
    for node in graph.nodes.values():
        where = f"workflow {graph.name!r}: node {node.name!r}"
        if not isinstance(node.name, str) or not node.name.replace("-", "_").isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"{where}: a node's name is an identifier: letters, digits, _ and -; give name=")
        if node.name in (START_NAME, graph.name):
            raise ConfigError(f"{where} cannot have the name of its workflow, nor START")
        if isinstance(node, FunctionNode) and state_keys is not None:
            unknown = [key for key in node.state_keys if key not in state_keys]
            if unknown:
                raise ConfigError(f"{where} reads the state key {unknown[0]!r}, which the state_schema does not have")
        for agent in node.agents:
            if isinstance(agent, LlmSpec) and agent.mode == "task":
                raise ConfigError(
                    f"{where}: an agent in task mode cannot be a node; its mode must be chat or single_turn"
                )
    for edge in graph.edges:
        if edge.source != START_NAME:
            _check_schemas(graph, graph.nodes[edge.source], graph.nodes[edge.target])


def _check_schemas(graph: Graph, source: Node, target: Node) -> None:
    if source.output_schema is None or target.input_schema is None or isinstance(target, ToolNode):
        return
    gives = schema_of(source.output_schema, f"the output_schema of node {source.name!r}")
    takes = schema_of(target.input_schema, f"the input_schema of node {target.name!r}")
    if msgspec.json.encode(gives, order="sorted") != msgspec.json.encode(takes, order="sorted"):
        raise ConfigError(
            f"workflow {graph.name!r}: the output_schema of {source.name!r} is not the input_schema of {target.name!r}"
        )


def agents_of(nodes: Iterable[Node]) -> Iterator[Any]:
    """The agents of all nodes, each once."""
    seen: set[int] = set()
    for node in nodes:
        for agent in node.agents:
            if id(agent) not in seen:
                seen.add(id(agent))
                yield agent
