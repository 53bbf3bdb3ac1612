"""Workflows in agent files (spec core 9): `edges` with names of nodes, code references and files. Called by `yaml_agents`.

What an edge names is looked up among `nodes`, then as a file, then as code; each is made once, so that a name that stands twice
is one node. Checks of the graph itself are those of `polyport.workflow`. Runs nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from polyport.config import schema
from polyport.config.places import YAML
from polyport.config.project import Project
from polyport.config.schema import NODES
from polyport.config.schema_tools import ToolSection
from polyport.config.yaml_read import BROKEN, read
from polyport.config.yaml_text import Node as YamlNode
from polyport.errors import ConfigError
from polyport.ports.agent import Agent
from polyport.workflow import DEFAULT, START, Join, Node, RetryPolicy, node, parallel


class Agents(Protocol):
    """What workflows need of the builder of agents."""

    def agent(self, node: YamlNode) -> Agent | None: ...
    def child(self, node: YamlNode) -> Agent | None: ...
    def file_of(self, word: str, node: YamlNode, make: Callable[[YamlNode], Any]) -> Any: ...
    def path_of(self, word: str, node: YamlNode) -> Path | None: ...
    def tool_of(self, section: ToolSection) -> Any: ...
    def type_of(self, node: YamlNode | None) -> Any: ...


class Graphs:
    """Makes the workflows of one load."""

    def __init__(self, project: Project, agents: Agents) -> None:
        self._project = project
        self._agents = agents

    def workflow(self, section: schema.WorkflowSection) -> dict[str, Any]:
        """The fields of a Workflow that its section sets."""
        if section.sub_agents:
            place = section.node.of("sub_agents")
            self._project.problems.add(place, "a Workflow takes its agents from `edges`; leave out sub_agents")
        chains = _Chains(self, self._project, section)
        edges = [chains.chain(one) for one in section.edges]
        return {
            "edges": [edge for edge in edges if edge is not None],
            "max_concurrency": section.max_concurrency,
            "state_schema": None if section.state_schema is None else self._state(section.state_schema),
        }

    def _state(self, given: YamlNode) -> Any:
        return given.value() if given.kind == "list" else self._agents.type_of(given)

    # ---- nodes

    def file(self, word: str, place: YamlNode) -> Any:
        return self._agents.file_of(word, place, self.made)

    def path(self, word: str, place: YamlNode) -> Path | None:
        return self._agents.path_of(word, place)

    def made(self, given: YamlNode) -> Any:
        """What a mapping describes: a node, or an agent; None and a problem if it cannot be made."""
        kind = given.of("agent_class").text if "agent_class" in given.members else ""
        if given.kind != "map" or kind not in NODES:
            return self._agents.agent(given)
        before = len(self._project.problems.found)
        section = read(given, NODES[kind], self._project.problems, NODES[kind].what)
        if len(self._project.problems.found) > before:
            return None
        try:
            return MAKERS[kind](self, section)
        except ConfigError as error:
            self._project.problems.add(given, str(error))
            return None

    def function(self, section: schema.FunctionNodeSection) -> Node | None:
        found = self._project.code(section.func_code, section.node.of("func_code"))
        if found is BROKEN:
            return None
        settings = self._settings(section) | {"name": section.name, "from_state": section.from_state}
        return self._maybe_parallel(node(found, **settings), section)

    def tool(self, section: schema.ToolNodeSection) -> Node | None:
        given = ToolSection(name=section.tool_code, args=section.args, node=section.node)
        found = self._agents.tool_of(given)
        if found is None:
            return None
        named = {"name": section.name} if section.name else {}
        return self._maybe_parallel(node(found, **named, **self._settings(section)), section)

    def agent(self, section: schema.AgentNodeSection) -> Node | None:
        found = self._agents.child(section.agent)
        return None if found is None else self._maybe_parallel(node(found, **self._settings(section)), section)

    def join(self, section: schema.JoinNodeSection) -> Node:
        return Join(section.name)

    def _settings(self, section: schema.NodeSection) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "timeout_s": section.timeout_s,
            "rerun_on_resume": section.rerun_on_resume,
            "wait_for_output": section.wait_for_output,
            "input_schema": self._agents.type_of(section.input_schema),
            "output_schema": self._agents.type_of(section.output_schema),
        }
        if section.retry is not None and not section.parallel_worker:
            settings["retry"] = self._retry(section.retry)
        return settings

    def _retry(self, section: schema.RetrySection) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=section.max_attempts,
            initial_s=section.initial_s,
            max_s=section.max_s,
            factor=section.factor,
            jitter=section.jitter,
        )

    def _maybe_parallel(self, inner: Node, section: schema.NodeSection) -> Node:
        if not section.parallel_worker:
            return inner
        retry = None if section.retry is None else self._retry(section.retry)
        return parallel(inner, limit=section.parallel_limit, retry=retry)


MAKERS: dict[str, Callable[[Graphs, Any], Node | None]] = {
    "FunctionNode": Graphs.function,
    "ToolNode": Graphs.tool,
    "AgentNode": Graphs.agent,
    "JoinNode": Graphs.join,
}
"""agent_class of a node -> what makes it."""


class _Chains:
    """The edges of one workflow."""

    def __init__(self, graphs: Graphs, project: Project, section: schema.WorkflowSection) -> None:
        self._graphs = graphs
        self._project = project
        self._written = section.nodes
        self._known: dict[str, Any] = {}

    def chain(self, given: YamlNode) -> Any:
        """One chain as `Workflow` takes it; None when there are problems."""
        if given.kind != "list" or len(given.items) < 2:
            self._project.problems.add(given, "an edge is a list such as [START, first, second], of at least two")
            return None
        if given.items[0].kind == "map":
            self._project.problems.add(
                given.items[0], "routes come after a node: [decide, {yes: pay, default: refuse}]"
            )
            return None
        steps = [self._step(item) for item in given.items]
        return None if any(step is None for step in steps) else tuple(steps)

    def _step(self, given: YamlNode) -> Any:
        if given.kind == "list":
            found = [self._step(item) for item in given.items]
            return None if any(one is None for one in found) else found
        return self._routes(given) if given.kind == "map" else self._target(given)

    def _routes(self, given: YamlNode) -> Any:
        """`{route: target}`; several routes to one target become one edge."""
        routes: dict[int, tuple[list[Any], Any]] = {}
        for word, (_, place) in given.members.items():
            for item in place.items if place.kind == "list" else [place]:
                target = self._target(item)
                if target is None:
                    return None
                keys, _ = routes.setdefault(id(target), ([], target))
                keys.append(DEFAULT if word.lower() == "default" else word)
        found: dict[Any, Any] = {}
        for keys, target in routes.values():
            found.setdefault(tuple(keys), []).append(target)
        return found

    def _target(self, given: YamlNode) -> Any:
        if given.kind != "text" or given.is_null:
            self._project.problems.add(given, f"a node is START, a name, a file or code; not {given.shown()}")
            return None
        word = given.text
        if word == "START":
            return START
        key = word
        if word not in self._written and word.endswith(YAML):
            path = self._graphs.path(word, given)
            if path is None:
                return None
            key = str(path)
        if key not in self._known:
            self._known[key] = self._made(word, given)
        return self._known[key]

    def _made(self, word: str, place: YamlNode) -> Any:
        if word in self._written:
            return self._graphs.made(self._named(word, self._written[word]))
        if word.endswith(YAML):
            return self._graphs.file(word, place)
        found = self._project.find(word, place)
        if found is BROKEN:
            return None
        try:
            return found if isinstance(found, Agent | Node) else node(found)
        except ConfigError as error:
            self._project.problems.add(place, str(error))
            return None

    def _named(self, word: str, given: YamlNode) -> YamlNode:
        """A node of `nodes`, which need not say its name again."""
        if given.kind != "map" or "name" in given.members or "agent" in given.members or "config_path" in given.members:
            return given
        name = YamlNode(kind="text", file=given.file, line=given.line, column=given.column, text=word)
        members = {"name": (name, name), **given.members}
        return YamlNode(kind="map", file=given.file, line=given.line, column=given.column, members=members)
