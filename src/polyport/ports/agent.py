"""Agents, tools and the contexts they are given. One file, for they name each other.

Implemented in `agents/`, `tools/` and by users; driven by the engine. The contexts are narrow on purpose: what
a caller may not do is not there. Nothing here does I/O of its own.
"""

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Union, cast, runtime_checkable

from msgspec import Struct, structs

from polyport.data.asking import NO_REPLY, Reply
from polyport.data.content import Content, Part
from polyport.data.event import Event, EventActions, new_actions
from polyport.data.model import ModelRequest, ToolDeclaration
from polyport.data.run import Ending, RunConfig
from polyport.data.session import Session, State
from polyport.errors import AgentError
from polyport.ports.asking import AgentQuestions, Questions
from polyport.ports.live import LiveScope
from polyport.ports.model import Model
from polyport.ports.model import OutputSchema as OutputSchema
from polyport.ports.stores import MemoryEntry, Stores
from polyport.seams import Seams

AgentCallback = Callable[["CallbackContext"], Any]
"""`(context)` -> Content or None, sync or async. A sync callback runs in a worker thread."""
ModelCallback = Callable[..., Any]
"""before `(context, request)`, after `(context, response)`, on error `(context, request, error)` -> ModelResponse or None."""
ToolCallback = Callable[..., Any]
"""before: `(context, tool, args)`, after: `(context, tool, args, result)`, on error: `(context, tool, args, error)` -> result
or None."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Agent(ABC):
    """Something that answers. Immutable, and shared by concurrent runs.

    Subclass it and write `run` for an agent of your own. `name` is an identifier, unique in its tree, not "user". `live` says
    that agents of the class can take part in live sessions, by `ctx.scope.live`.
    """

    name: str
    description: str = ""
    sub_agents: Sequence["Agent"] = ()
    before_agent: AgentCallback | Sequence[AgentCallback] = ()
    after_agent: AgentCallback | Sequence[AgentCallback] = ()
    live: ClassVar[bool] = False

    @abstractmethod
    async def run(self, ctx: "RunContext") -> Ending | None:
        """Do the agent's work: `await ctx.emit(event)` for each event. None means "done". An exception ends the run as failed.
        Sub-agents are run with `ctx.run_agent(agent)`."""


Hooks = Mapping[str, Sequence[Callable[..., Any]]]
"""Hook name -> what the plugins do there, in order. Names without a plugin are absent."""


@dataclass(slots=True, kw_only=True, eq=False)
class Delegation:
    """A call that an agent carries out inside the run of its caller; its id is the isolation scope of what happens there."""

    tree: "Tree"
    """The agents among which the one that works may look around."""
    caller: str
    """The isolation scope of the call."""
    hidden: bool
    """Whether what happens there is stored, but not shown to those who watch the run."""
    user_content: Content | None
    """What the agent was asked."""
    seed: Content | None = None
    """How its prompts begin, if not with the arguments of the call."""
    temp: dict[str, Any] = field(default_factory=dict[str, Any])
    """Its own `temp:` state, which the caller does not see (FR-036)."""


class RunScope(Struct, kw_only=True, eq=False):
    """All that belongs to one run; shared by the contexts of all its agents. Made by the engine's runner."""

    id: str
    session: Session
    """The run's own object: commit keeps it true."""
    stores: Stores
    hooks: Hooks
    tree: "Tree"
    seams: Seams
    config: RunConfig
    commit: Callable[[Event], Awaitable[Event]]
    run_agent: "Callable[[RunContext, Agent], Awaitable[Ending]]"
    user_content: Content | None
    resumed: bool = False
    """Whether the run died once and goes on now."""
    askers: dict[str, set[str]] = {}
    """Isolation scope -> names of the agents with which this run goes on there: their calls are answered now, or they were
    at work when it died."""
    reopened: set[str] = set()
    """Ids of the calls whose delegations go on."""
    delegations: dict[str, Delegation] = {}
    """By isolation scope."""
    uploads: tuple[Content, Content] | None = None
    """The user's message as stored and as sent, when its files became artifacts."""
    calls_left: int = 0
    """The budget of model calls."""
    secret: bytes = b""
    """The key with which requests for a human's approval are sealed."""
    credentials: Mapping[str, dict[str, Any]] = {}
    """What the user's message gave for credential requests, by request id. It is never stored."""
    live: LiveScope | None = None
    ended: bool = False
    end_reason: str = ""

    def __repr__(self) -> str:
        return f"RunScope({self.id!r})"  # no secrets, no credentials

    def state_in(self, isolation_scope: str) -> Mapping[str, Any]:
        """The committed state as it is seen in an isolation scope: its own `temp:` keys before those around it."""
        inner = self.delegations.get(isolation_scope) if isolation_scope else None
        return self.session.state if inner is None else ChainMap(inner.temp, cast("Any", self.state_in(inner.caller)))


class ReadContext:
    """What instructions, toolsets and everybody else may read."""

    __slots__ = ("agent", "branch", "isolation_scope", "scope")

    def __init__(self, scope: RunScope, agent: Agent, branch: str = "", isolation_scope: str = "") -> None:
        self.scope = scope
        self.agent = agent
        self.branch = branch
        self.isolation_scope = isolation_scope

    @property
    def invocation_id(self) -> str:
        return self.scope.id

    @property
    def agent_name(self) -> str:
        return self.agent.name

    @property
    def app_name(self) -> str:
        return self.scope.session.key.app

    @property
    def user_id(self) -> str:
        return self.scope.session.key.user

    @property
    def session(self) -> Session:
        """The session as committed so far. Read only."""
        return self.scope.session

    @property
    def tree(self) -> "Tree":
        """The agents of the app, or of the tool that runs this one."""
        inner = self.scope.delegations.get(self.isolation_scope) if self.isolation_scope else None
        return self.scope.tree if inner is None else inner.tree

    @property
    def askers(self) -> set[str]:
        """Names of the agents with which the run goes on here (see RunScope)."""
        return self.scope.askers.get(self.isolation_scope) or set()

    @property
    def user_content(self) -> Content | None:
        """The message that started the run, or what another agent asked this one."""
        inner = self.scope.delegations.get(self.isolation_scope) if self.isolation_scope else None
        return self.scope.user_content if inner is None else inner.user_content

    @property
    def config(self) -> RunConfig:
        return self.scope.config

    @property
    def state(self) -> Mapping[str, Any]:
        return MappingProxyType(self.scope.state_in(self.isolation_scope))

    async def load_artifact(self, name: str, version: int = 0) -> Part:
        """An artifact of this session (or `user:`); version 0 is the latest. NotFound; Unavailable without a store."""
        return await self.scope.stores.need_artifacts().load(self.scope.session.key, name, version)

    async def artifact_names(self) -> list[str]:
        return await self.scope.stores.need_artifacts().names(self.scope.session.key)

    async def search_memory(self, query: str) -> list[MemoryEntry]:
        return await self.scope.stores.need_memory().search(self.app_name, self.user_id, query)


class RunContext(ReadContext, AgentQuestions):
    """What an agent's `run` gets."""

    __slots__ = ("called_back", "escalated", "goes_on", "next_agent", "paused")

    def __init__(self, scope: RunScope, agent: Agent, branch: str = "", isolation_scope: str = "") -> None:
        super().__init__(scope, agent, branch, isolation_scope)
        self.escalated = False
        self.called_back = False
        self.goes_on = False
        """Whether this turn was begun by a run that died, and is to be ended; `called_back`, also by one that waited."""
        self.paused = False
        self.next_agent: Agent | None = None
        """Who goes on when this agent's turn is over: set by a transfer, read by the runner."""

    async def emit(self, event: Event) -> Event:
        """Make the event true: it is stored and published when this returns (a partial one is only published). Missing id,
        author, time, branch and invocation id are filled in. Returns the event as stored."""
        event = await self.scope.commit(self.complete(event))
        if event.actions.escalate:
            self.escalated = True
        return event

    def event(self, **fields: Any) -> Event:
        """A new event of this agent in this run, complete."""
        seams = self.scope.seams
        return Event(
            id=seams.new_id(),
            timestamp=seams.now(),
            invocation_id=self.scope.id,
            author=self.agent.name,
            branch=self.branch,
            isolation_scope=self.isolation_scope,
            **fields,
        )

    def complete(self, event: Event) -> Event:
        """`event` with what is missing filled in."""
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]  user code is not checked
            raise AgentError(f"agent {self.agent.name!r} emitted a {type(event).__name__}, not an Event")
        placed = (event.branch or not self.branch) and (event.isolation_scope or not self.isolation_scope)
        if placed and event.id and event.timestamp and event.author and event.invocation_id:
            return event
        seams = self.scope.seams
        author = "user" if event.content is not None and event.content.role == "user" else self.agent.name
        return structs.replace(
            event,
            id=event.id or seams.new_id(),
            timestamp=event.timestamp or seams.now(),
            author=event.author or author,
            invocation_id=event.invocation_id or self.scope.id,
            branch=event.branch or self.branch,
            isolation_scope=event.isolation_scope or self.isolation_scope,
        )

    def at(self, agent: Agent, branch: str | None = None) -> "RunContext":
        """The same run seen by another agent."""
        return RunContext(self.scope, agent, self.branch if branch is None else branch, self.isolation_scope)

    async def run_agent(self, agent: Agent, branch: str | None = None) -> Ending:
        """Run another agent inside this run, with its callbacks; how it ended."""
        return await self.scope.run_agent(self.at(agent, branch), agent)


class CallbackContext(ReadContext):
    """What callbacks, plugins and tools get: they may write state and artifacts. The writes come true with the event that
    carries `actions`."""

    __slots__ = ("_state", "actions")

    def __init__(self, ctx: ReadContext, actions: EventActions | None = None) -> None:
        super().__init__(ctx.scope, ctx.agent, ctx.branch, ctx.isolation_scope)
        self.actions = actions if actions is not None else new_actions()
        self._state: State | None = None

    @property
    def state(self) -> State:
        if self._state is None:
            if self.actions.state_delta is None:
                self.actions.state_delta = {}
            self._state = State(self.scope.state_in(self.isolation_scope), self.actions.state_delta)
        return self._state

    @property
    def changed(self) -> bool:
        """Whether something was written that an event must carry."""
        return bool(self.actions.state_delta or self.actions.artifact_delta)

    async def save_artifact(self, name: str, part: Part, custom_metadata: dict[str, Any] | None = None) -> int:
        """Store a new version of an artifact, and note it in `artifactDelta`."""
        version = await self.scope.stores.need_artifacts().save(self.scope.session.key, name, part, custom_metadata)
        delta = self.actions.artifact_delta
        if delta is None:
            delta = self.actions.artifact_delta = {}
        delta[name] = version
        return version

    def end(self, reason: str = "") -> None:
        """End the whole run after what is being done now."""
        self.actions.end_invocation = True
        self.scope.ended = True
        self.scope.end_reason = reason


class ToolContext(CallbackContext, Questions):
    """What a tool gets besides its arguments."""

    __slots__ = ("function_call_id", "questions", "reply", "waits")

    def __init__(self, ctx: ReadContext, function_call_id: str, reply: Reply = NO_REPLY) -> None:
        super().__init__(ctx)
        self.function_call_id = function_call_id
        self.reply = reply
        self.questions = []
        self.waits = False
        """Set by a tool whose call is not done and goes on later: there is no response yet, and the agent waits."""


class Tool(ABC):
    """Something the model may call.

    `long_running`: the result comes later, from outside. `idempotent`: may be executed again when a run that died is
    resumed. `require_confirmation`: a human must approve every call before it is carried out. `streaming`: the result comes
    in pieces, each of which goes to `ctx.scope.live.listeners` if there is one for the call.
    """

    name: str
    description: str = ""
    long_running: bool = False
    idempotent: bool = False
    require_confirmation: bool = False
    streaming: bool = False

    def declaration(self) -> ToolDeclaration | None:
        """How the model sees the tool; None for a tool that only edits requests."""
        return None

    async def prepare(self, ctx: CallbackContext, request: ModelRequest) -> None:
        """Edit a request before it is sent. Called for every request of an agent that has the tool."""

    async def needs_confirmation(self, ctx: ToolContext, args: dict[str, Any]) -> bool:
        """Whether a human must approve this call. Asked before `call`, unless a human has decided on it already. An exception
        stops the call and becomes an error response."""
        return self.require_confirmation

    @abstractmethod
    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        """Carry out one call. The result has a JSON form; None is "nothing yet" for a long-running tool.

        An exception becomes an error response that the model sees; it does not end the run.
        """


@runtime_checkable
class Toolset(Protocol):
    """Tools found at run time, such as those of an MCP server."""

    @property
    def name(self) -> str: ...

    async def tools(self, ctx: ReadContext) -> Sequence[Tool]:
        """The tools for this agent run. Called once per agent run."""
        ...

    async def aclose(self) -> None: ...


ToolLike = Union["Tool", "Toolset", Callable[..., Any]]
"""What may stand in an agent's `tools`: a plain function becomes a Tool when the App is made."""


@dataclass(frozen=True)
class Bound:
    """An LLM agent's plugs as objects: strings turned into models, functions into tools."""

    model: Model
    tools: Sequence[Tool | Toolset] = ()
    output: OutputSchema | None = None
    input: OutputSchema | None = None


class Tree(Protocol):
    """The agents of an app and what belongs to each."""

    @property
    def root(self) -> Agent: ...

    def find(self, name: str) -> Agent | None: ...

    def parent(self, agent: Agent) -> Agent | None: ...

    @property
    def has_tasks(self) -> bool:
        """Whether some agent works in task mode."""
        ...

    def called(self, caller: Agent, name: str) -> Agent | None:
        """The agent that carries out calls of `caller` to the tool `name`, as far as that is known before it runs."""
        ...

    def below(self, caller: Agent, agent: Agent) -> "Tree":
        """The tree in which `agent` works for a call of `caller`: this one for a sub-agent, else one of its own."""
        ...

    def bound(self, agent: Agent) -> Bound:
        """The plugs of an LLM agent, also of one that is not in the tree. ConfigError if it has no model."""
        ...
