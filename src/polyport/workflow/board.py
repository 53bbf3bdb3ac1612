"""What runs when in a graph: the rules of routing, joining and branching (spec core 4.4).

Pure and exact: the same node results in the same order give the same activations. So the scheduler uses it as a run goes on,
and feeds it the journal when a run goes on later.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from polyport.workflow.graph import START_NAME, Graph, GraphEdge
from polyport.workflow.nodes import Join, Node
from polyport.workflow.values import route_text


class Activation(NamedTuple):
    """A node that is to run, for the `number`-th time."""

    node: Node
    number: int
    input: Any
    branch: str


class _Arrival(NamedTuple):
    output: Any
    branch: str


class Board:
    """The state of one run of a graph. `outputs` are what the nodes came to after which nothing comes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._count = dict.fromkeys(graph.nodes, 0)
        self._arrived: dict[str, dict[str, list[_Arrival]]] = {
            name: {source: [] for source in graph.before[name]}
            for name, node in graph.nodes.items()
            if isinstance(node, Join)
        }
        self.outputs: dict[str, Any] = {}

    def start(self, input: Any, branch: str) -> list[Activation]:
        """The first activations."""
        return self._go(START_NAME, self._graph.after[START_NAME], input, branch)

    def complete(self, done: Activation, output: Any, routes: Sequence[str]) -> list[Activation]:
        """What is to run now that a node is done. A node without routes of its own is routed by its output, if that is a text,
        a number, true or false."""
        name = done.node.name
        edges = self._graph.after[name]
        if not edges:
            if output is not None:
                self.outputs[name] = output
            return []
        if not routes and isinstance(output, str | int):
            routes = [route_text(output)]
        matched = [e for e in edges if any(r in e.routes for r in routes)]
        taken = [e for e in edges if e in matched or (not e.routes and not e.default) or (e.default and not matched)]
        return self._go(name, taken, output, done.branch)

    def _go(self, source: str, edges: Sequence[GraphEdge], output: Any, branch: str) -> list[Activation]:
        found: list[Activation] = []
        for edge in edges:
            node = self._graph.nodes[edge.target]
            if isinstance(node, Join):
                self._arrived[node.name][source].append(_Arrival(output, branch))
                joined = self._join(node)
                if joined is not None:
                    found.append(joined)
                continue
            number = self._number(node)
            own = f"{node.name}@{number}"
            inner = branch if len(edges) == 1 else f"{branch}.{own}" if branch else own
            found.append(Activation(node, number, output, inner))
        return found

    def _join(self, node: Join) -> Activation | None:
        """The join, once every predecessor is done. Rounds of a loop do not mix."""
        arrived = self._arrived[node.name]
        if not all(arrived.values()):
            return None
        first = {source: queue.pop(0) for source, queue in arrived.items()}
        outputs = {source: one.output for source, one in first.items()}
        return Activation(node, self._number(node), outputs, common([one.branch for one in first.values()]))

    def _number(self, node: Node) -> int:
        self._count[node.name] += 1
        return self._count[node.name]


def common(branches: Sequence[str]) -> str:
    """What branches have in common at their beginning, by whole segments."""
    split = [b.split(".") if b else [] for b in branches]
    kept: list[str] = []
    for segments in zip(*split, strict=False):
        if len(set(segments)) > 1:
            break
        kept.append(segments[0])
    return ".".join(kept)
