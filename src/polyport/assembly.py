"""What an App is made of: names, URLs and functions become agents, models, stores and protocols.

Called by the App while it is put together, and holds the defaults that are chosen then. Runs nothing.
"""

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import cast

from polyport.data.compaction import CompactionConfig
from polyport.engine.compaction import Compactor, make_compactor
from polyport.engine.hooks import distinct
from polyport.engine.spec import LlmSpec
from polyport.engine.tree import AgentTree
from polyport.errors import ConfigError
from polyport.models.registry import resolve
from polyport.ports.agent import Agent, Bound, CallbackContext, OutputSchema, Tool, Toolset
from polyport.ports.model import Model
from polyport.ports.peers import Peers
from polyport.ports.plugin import Plugin
from polyport.ports.stores import SessionStore, Stores
from polyport.protocols.parts import Mountable, Watching
from polyport.seams import Seams
from polyport.stores.memory import KeywordMemory, MemoryArtifacts, MemorySessions
from polyport.stores.open import open_stores
from polyport.tools.agent_tool import accepted_input
from polyport.tools.builtin import missing_stores
from polyport.tools.function import make_tool
from polyport.tools.memory import remember_session
from polyport.tools.schema import output_schema

log = logging.getLogger("polyport")
MIN_SECRET = 16
"""Characters."""
_OF_THIS_PROCESS = os.urandom(32)
"""Seals requests that no other process can see."""


class Remember(Plugin):
    """Puts each session into the memory store when a run ends; a session that grew costs its new events only."""

    name = "remember"

    async def after_run(self, ctx: CallbackContext) -> None:
        await remember_session(ctx)


class Models:
    """The models of an app by name, each made once, and what binds an agent to its model and tools."""

    def __init__(self) -> None:
        self._made: dict[str, Model] = {}

    def of(self, name: str) -> Model:
        """The model of a name. ConfigError for one that nobody knows."""
        if name not in self._made:
            self._made[name] = resolve(name)
        return self._made[name]

    def bind(self, agent: LlmSpec, above: Bound | None) -> Bound:
        """The agent's model (that of the agent above it without one), tools and schemas. ConfigError."""
        model = agent.model
        if isinstance(model, str):
            if model:
                model = self.of(model)
            elif above is not None:
                model = above.model
            else:
                raise ConfigError(
                    f'agent {agent.name!r} has no model: set model="demo" to try it offline, or a name such as '
                    '"gemini-flash-latest", "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5" or "ollama/llama3.2"'
                )
        tools: list[Tool | Toolset] = []
        for item in agent.tools:
            tools.append(item if isinstance(item, Tool | Toolset) else make_tool(item))
        output = None
        if agent.output_schema is not None:
            output = OutputSchema(*output_schema(agent.output_schema))
        accepts = accepted_input(agent, agent.input_schema) if agent.input_schema is not None else None
        return Bound(model, tuple(tools), output, accepts)


def named_agents(agents: Agent | Iterable[Agent] | Mapping[str, Agent]) -> dict[str, Agent]:
    """App name -> its root agent. ConfigError for none, two of one name, and what is no agent."""
    named: dict[str, Agent] = {}
    if isinstance(agents, Mapping):
        named.update(cast("Mapping[str, Agent]", agents))
    else:
        for agent in [agents] if isinstance(agents, Agent) else agents:
            if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]  user code is not checked
                raise ConfigError(f"App needs agents, not a {type(agent).__name__}")
            if agent.name in named:
                raise ConfigError(f"two agents are named {agent.name!r}; give App a mapping of app names to agents")
            named[agent.name] = agent
    if not named:
        raise ConfigError("App needs at least one agent")
    return named


def stores_of(stores: Stores | str | None, seams: Seams) -> Stores:
    """The stores of a URL; in memory without one. ConfigError for a session store that is not whole."""
    if isinstance(stores, Stores):
        needed = [*SessionStore.__annotations__, *(name for name in vars(SessionStore) if name[0] != "_")]
        store = stores.sessions
        missing = [name for name in needed if not hasattr(type(store), name) and not hasattr(store, name)]
        if missing:
            kind = type(store).__name__
            raise ConfigError(
                f"{kind} is no session store: it has no {', '.join(missing)} (see ports.stores.SessionStore)"
            )
        return stores
    if stores:
        return open_stores(stores, seams=seams)
    return Stores(MemorySessions(seams), MemoryArtifacts(seams), KeywordMemory())


def seal_key(secret: str, stores: Stores) -> bytes:
    """The key that seals what a human is asked to approve; empty where there is none. ConfigError for a short secret."""
    secret = secret or os.environ.get("POLYPORT_SECRET", "")
    if secret and len(secret) < MIN_SECRET:
        raise ConfigError(f"the secret (App(secret=...) or POLYPORT_SECRET) needs at least {MIN_SECRET} characters")
    if not secret and isinstance(stores.sessions, MemorySessions):
        return _OF_THIS_PROCESS
    return secret.encode()


def peers_of(cluster: Peers | str | None, stores: Stores, key: bytes) -> Peers | None:
    """The other processes; None for an app that is alone. ConfigError when they could not see the same sessions."""
    if cluster is None or cluster == "":
        return None
    if isinstance(stores.sessions, MemorySessions):
        raise ConfigError(
            "the processes of a cluster need the same sessions: set stores= to postgresql://..., or to sqlite:///FILE on one "
            "machine"
        )
    if not key:
        raise ConfigError(
            "a cluster needs a secret, the same in all processes: set POLYPORT_SECRET, or App(secret=...)"
        )
    if isinstance(cluster, str):
        from polyport.cluster import Cluster  # an optional dependency

        return Cluster(cluster)
    return cluster


def compactors(
    given: CompactionConfig | Mapping[str, CompactionConfig] | None, trees: Mapping[str, AgentTree], models: Models
) -> dict[str, Compactor]:
    """One for each app that has a configuration, checked against its agents. ConfigError."""
    if given is None:
        return {}
    configs = dict.fromkeys(trees, given) if isinstance(given, CompactionConfig) else given
    for name in configs:
        if name not in trees:
            raise ConfigError(f"compaction is set for {name!r}, but the apps are: {', '.join(trees)}")
    return {
        name: make_compactor(config, trees[name], models.of(config.model) if config.model else None)
        for name, config in configs.items()
    }


def warn_of_missing_stores(trees: Mapping[str, AgentTree], stores: Stores) -> None:
    """Log which tools will find no store."""
    for tree in trees.values():
        for bound in tree.bounds():
            for warning in missing_stores(bound.tools, stores):
                log.warning("%s", warning)


def mountable(protocol: str | Mountable) -> Mountable:
    """The protocol of a name, with its default settings. ConfigError for a name that is none."""
    if not isinstance(protocol, str):
        return protocol
    if protocol not in PROTOCOLS:
        raise ConfigError(f"there is no protocol {protocol!r}; known are: {', '.join(['rest', 'mcp', *PROTOCOLS])}")
    module, name = PROTOCOLS[protocol]
    return getattr(import_module(module), name)()


def protocols_of(given: str | Collection[str | Mountable]) -> list[str | Mountable]:
    """What is served, in order; names other than "rest" and "mcp" become objects. ConfigError."""
    named = [given] if isinstance(given, str) else given
    return [protocol if protocol in ("rest", "mcp") else mountable(protocol) for protocol in named]


def plugins_of(plugins: Sequence[Plugin], protocols: Sequence[str | Mountable], remember: bool) -> tuple[Plugin, ...]:
    """The plugins that are given, then those that protocols bring along. ConfigError for two of one name."""
    brought = [p for served in protocols if isinstance(served, Watching) for p in served.plugins if p not in plugins]
    return distinct([*plugins, *brought, *([Remember()] if remember else [])])


PROTOCOLS: dict[str, tuple[str, str]] = {
    "live": ("polyport.protocols.live.mount", "Live"),
    "a2a": ("polyport.protocols.a2a.mount", "A2a"),
    "agent_engine": ("polyport.protocols.agent_engine.mount", "AgentEngine"),
    "triggers": ("polyport.protocols.triggers.mount", "Triggers"),
    "debug": ("polyport.protocols.debug.mount", "Debug"),
    "metrics": ("polyport.protocols.metrics.mount", "Metrics"),
    "evals": ("polyport.protocols.evals.mount", "Evals"),
    "web": ("polyport.protocols.web.mount", "Web"),
}
"""The protocols that are objects of their own, by the names that `App(protocols=...)` takes: module and class. They are loaded
when they are chosen, for some cost a third of a cold start."""
