"""Floor 4: workflows, graphs of functions, tools and agents. See docs/workflows.md.

    from polyport.workflow import START, Workflow
    Workflow("greet", edges=[(START, fetch, write)])

A peer of `agents/`, `models/`, `tools/`, `stores/` and `plugins/`, which it never imports.
"""

from polyport.data.event import RequestInput
from polyport.workflow.context import NodeContext, NodeWaits, route
from polyport.workflow.graph import DEFAULT, START, GraphData, GraphEdge, GraphNode
from polyport.workflow.nodes import Join, Node, ParallelWorker, node, parallel
from polyport.workflow.retry import RetryPolicy
from polyport.workflow.workflow import Workflow

__all__ = [
    "DEFAULT",
    "START",
    "GraphData",
    "GraphEdge",
    "GraphNode",
    "Join",
    "Node",
    "NodeContext",
    "NodeWaits",
    "ParallelWorker",
    "RequestInput",
    "RetryPolicy",
    "Workflow",
    "node",
    "parallel",
    "route",
]
