"""The tree of an app's agents: checked once, then only read (spec core 2.1, 3.7).

Made by the App, which hands in how to bind an LLM agent's plugs; read by the runner and the turn loop.
"""

import re
from collections.abc import Callable, Sequence
from typing import get_args

from polyport.engine.delegation import Delegate
from polyport.engine.pairing import RESERVED
from polyport.engine.prepare import RESULT_TOOL
from polyport.engine.scopes import FINISH_TOOL
from polyport.engine.spec import LlmSpec, Mode
from polyport.errors import ConfigError
from polyport.ports.agent import Agent, Bound, Tool, Tree

MODES: tuple[str, ...] = get_args(Mode)

Bind = Callable[[LlmSpec, Bound | None], Bound]
"""`(agent, the plugs of the nearest LLM agent above)` -> the agent's plugs."""

_NAME = re.compile(r"[^\W\d][\w-]*")
_RESERVED = RESERVED | {RESULT_TOOL, FINISH_TOOL}
"""Names of calls that the engine itself makes or reads; a tool of that name would not be heard."""


class AgentTree:
    """ConfigError when a name is not an identifier, reserved or used twice, or an agent object has two parents; the same for
    the names of an agent's own tools."""

    def __init__(self, root: Agent, bind: Bind, above: Bound | None = None, outer: "Sequence[AgentTree]" = ()) -> None:
        self.root = root
        self._bind = bind
        self._outer = (*outer, self)
        self._inner: dict[tuple[int, int], AgentTree] = {}
        self._tasks = False
        self._by_name: dict[str, Agent] = {}
        self._parent: dict[int, Agent | None] = {}
        self._bound: dict[int, Bound] = {}
        self._add(root, None, above)

    def _add(self, agent: Agent, parent: Agent | None, above: Bound | None) -> None:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]  user code is not checked
            below = f" below {parent.name!r}" if parent is not None else ""
            raise ConfigError(f"an agent is needed{below}, not a {type(agent).__name__}")
        if not isinstance(agent.name, str) or not _NAME.fullmatch(agent.name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"agent name {agent.name!r} must be an identifier: letters, digits, _ and -")
        if agent.name == "user":
            raise ConfigError('an agent cannot be named "user": that is the author of the user\'s messages')
        if id(agent) in self._parent:
            other = self._parent[id(agent)]
            raise ConfigError(
                f"agent {agent.name!r} stands twice in the tree, below {other.name if other else 'nothing (it is the root)'!r}"
                f" and below {parent.name if parent else ''!r}; make a second agent with another name"
            )
        if agent.name in self._by_name:
            raise ConfigError(f"two agents of the tree of {self.root.name!r} are named {agent.name!r}")
        self._parent[id(agent)] = parent
        self._by_name[agent.name] = agent
        if isinstance(agent, LlmSpec):
            self._check_mode(agent, parent)
            above = self._bound[id(agent)] = self._bind(agent, above)
            _check_tools(agent, above)
            for tool in above.tools:
                if isinstance(tool, Delegate):
                    self._inner[id(agent), id(tool.agent)] = self._tree_of(tool.agent, above)
        for child in agent.sub_agents:
            self._add(child, agent, above)

    def _check_mode(self, agent: LlmSpec, parent: Agent | None) -> None:
        if agent.mode not in MODES:
            raise ConfigError(f"agent {agent.name!r} has the mode {agent.mode!r}; there are: {', '.join(MODES)}")
        if agent.mode == "task":
            self._tasks = True
            if not isinstance(parent, LlmSpec):
                below = f"below {parent.name!r}, which is none" if parent is not None else "as a root or tool"
                raise ConfigError(
                    f"agent {agent.name!r} is in task mode and stands {below}; it needs an LLM agent above that calls it"
                )
        elif agent.mode != "chat" and parent is None and len(self._outer) == 1:
            raise ConfigError(f"agent {agent.name!r} is the root; its mode must be chat, not {agent.mode}")

    def _tree_of(self, agent: Agent, above: Bound) -> "AgentTree":
        """The tree below an agent that is called as a tool; agents may call each other in a circle."""
        found = next((tree for tree in self._outer if tree.root is agent), None)
        return found or AgentTree(agent, self._bind, above, self._outer)

    @property
    def has_tasks(self) -> bool:
        return self._tasks or (bool(self._inner) and any(tree.has_tasks for tree in self._inner_trees()))

    def _inner_trees(self) -> "list[AgentTree]":
        """The trees below agents of this one that are called as tools, but for those that hold this one."""
        return [tree for tree in self._inner.values() if tree not in self._outer]

    def called(self, caller: Agent, name: str) -> Agent | None:
        if not isinstance(caller, LlmSpec):
            return None
        for child in caller.sub_agents:
            if child.name == name and isinstance(child, LlmSpec) and child.mode != "chat":
                return child
        tools = (t for t in self.bound(caller).tools if isinstance(t, Delegate) and t.name == name)
        return next((tool.agent for tool in tools), None)

    def below(self, caller: Agent, agent: Agent) -> Tree:
        if isinstance(agent, LlmSpec) and agent.mode != "chat" and self._parent.get(id(agent)) is caller:
            return self
        return self._inner.get((id(caller), id(agent))) or self._tree_of(agent, self.bound(caller))

    def find(self, name: str) -> Agent | None:
        return self._by_name.get(name)

    def parent(self, agent: Agent) -> Agent | None:
        return self._parent.get(id(agent))

    def bound(self, agent: Agent) -> Bound:
        found = self._bound.get(id(agent))
        if found is None:
            if not isinstance(agent, LlmSpec):
                raise ConfigError(f"agent {agent.name!r} is not an LLM agent and has no model")
            found = self._bind(agent, None)
        return found

    def agents(self) -> list[Agent]:
        """All agents, parents before children."""
        return list(self._by_name.values())

    def bounds(self) -> list[Bound]:
        """The plugs of all LLM agents, also of those that are called as tools."""
        inner = [bound for tree in self._inner_trees() for bound in tree.bounds()]
        return [*self._bound.values(), *inner]


def _check_tools(agent: Agent, bound: Bound) -> None:
    """The tools that are known now; those of toolsets are checked when they are listed."""
    names = {child.name for child in agent.sub_agents if isinstance(child, LlmSpec) and child.mode != "chat"}
    for tool in bound.tools:
        if not isinstance(tool, Tool):
            continue
        name = getattr(tool, "name", "")
        if not name:
            raise ConfigError(f"a tool of agent {agent.name!r}, a {type(tool).__name__}, has no name")
        if name in _RESERVED:
            raise ConfigError(f"agent {agent.name!r} has a tool named {name!r}, which is reserved; rename it")
        if name in names:
            raise ConfigError(f"two tools of agent {agent.name!r} are named {name!r}; rename one")
        names.add(name)
