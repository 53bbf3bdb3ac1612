"""The tree of an app's agents: checked once, then only read (spec core 2.1, 3.7).

Made by the App, which hands in how to bind an LLM agent's plugs; read by the runner and the turn loop.
"""

import re
from collections.abc import Callable

from polyport.engine.pairing import RESERVED
from polyport.engine.prepare import RESULT_TOOL
from polyport.engine.spec import LlmSpec
from polyport.errors import ConfigError
from polyport.ports.agent import Agent, Bound, Tool

Bind = Callable[[LlmSpec, Bound | None], Bound]
"""`(agent, the plugs of the nearest LLM agent above)` -> the agent's plugs."""

_NAME = re.compile(r"[^\W\d][\w-]*")
_RESERVED = RESERVED | {RESULT_TOOL}
"""Names of calls that the engine itself makes or reads; a tool of that name would not be heard."""


class AgentTree:
    """ConfigError when a name is not an identifier, reserved or used twice, or an agent object has two parents; the same for
    the names of an agent's own tools."""

    def __init__(self, root: Agent, bind: Bind) -> None:
        self.root = root
        self._bind = bind
        self._by_name: dict[str, Agent] = {}
        self._parent: dict[int, Agent | None] = {}
        self._bound: dict[int, Bound] = {}
        self._add(root, None, None)

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
            above = self._bound[id(agent)] = self._bind(agent, above)
            _check_tools(agent, above)
        for child in agent.sub_agents:
            self._add(child, agent, above)

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
        """The plugs of all LLM agents."""
        return list(self._bound.values())


def _check_tools(agent: Agent, bound: Bound) -> None:
    """The tools that are known now; those of toolsets are checked when they are listed."""
    names: set[str] = set()
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
