"""The kinds of nodes of a workflow, as configuration: immutable, shared by concurrent runs (spec core 4.3).

`node(...)` makes one from a function, tool or agent; those may also stand in `edges` as they are. How a node works is written
here; when, how often and with what, in the scheduler.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, cast, overload

from polyport.data.event import RequestInput
from polyport.errors import AgentError, ConfigError
from polyport.ports.agent import Agent, Tool
from polyport.workflow.context import NodeContext
from polyport.workflow.functions import Signature
from polyport.workflow.retry import RetryPolicy
from polyport.workflow.tool_node import ToolCaller


class Came(NamedTuple):
    """What the work of a node came to. `said`: an event has said it already."""

    value: Any = None
    said: bool = False


class Running(Protocol):
    """One run of a node, as the node sees it."""

    input: Any
    context: NodeContext

    async def take(self, value: Any) -> None:
        """An item of a generator."""
        ...

    async def ask(self, wanted: RequestInput) -> None: ...

    async def run_agent(self, agent: Agent) -> Any:
        """The output of the agent's turn."""
        ...

    async def run_each(self, node: "Node", items: Sequence[Any], limit: int, retry: RetryPolicy | None) -> list[Any]:
        """The outputs of one run of `node` per item, in their order."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Node(ABC):
    """What all nodes have. `rerun_on_resume`: whether the node is run again when what it asked is answered, or the answer is
    its output; None is what suits its kind. `wait_for_output`: a dynamic child without an output parks its parent. Schemas are
    types; a given `input_schema` or `output_schema` is kept to."""

    kind: ClassVar[str] = ""

    name: str = ""
    retry: RetryPolicy | None = None
    timeout_s: float | None = None
    rerun_on_resume: bool | None = None
    wait_for_output: bool = False
    input_schema: Any = None
    output_schema: Any = None

    @property
    def agents(self) -> Sequence[Agent]:
        """The agents that may work in this node: they become sub-agents of the workflow."""
        return ()

    @property
    def reruns(self) -> bool:
        return bool(self.rerun_on_resume)

    @abstractmethod
    async def work(self, run: Running) -> Came:
        """Do the node's work once. An exception is a failed attempt."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionNode(Node):
    """A function. `uses` are the agents and tools that it runs by `ctx.run_node`; `from_state`: all its parameters are keys of
    the state (but for `node_input`)."""

    kind = "function"

    fn: Callable[..., Any]
    from_state: bool = False
    uses: Sequence[Any] = ()
    signature: Signature = field(init=False)
    used: dict[int, Node] = field(init=False)

    def __post_init__(self) -> None:
        name = self.name or getattr(self.fn, "__name__", type(self.fn).__name__)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "signature", Signature(self.fn, name, self.from_state))
        object.__setattr__(self, "used", {id(u): as_node(u) for u in self.uses})

    @property
    def agents(self) -> Sequence[Agent]:
        return [agent for one in self.used.values() for agent in one.agents]

    @property
    def state_keys(self) -> list[str]:
        """The keys of the state that the function cannot do without."""
        return [p.name for p in self.signature.state]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it had not been made a node."""
        return self.fn(*args, **kwargs)

    async def work(self, run: Running) -> Came:
        signature = self.signature
        value = await signature.call(signature.arguments(run.context, run.input), run.take)
        if isinstance(value, RequestInput):
            await run.ask(value)
            return Came()
        return Came(value)


@dataclass(frozen=True, kw_only=True, eq=False)
class AgentNode(Node):
    """An agent of any kind. Its input is what it is asked; its output is the last text that it says itself. It always runs
    again when it goes on, from where it was."""

    kind = "agent"

    agent: Agent

    def __post_init__(self) -> None:
        if self.name not in ("", self.agent.name):
            raise ConfigError(f"the node of agent {self.agent.name!r} has the agent's name; it cannot be {self.name!r}")
        object.__setattr__(self, "name", self.agent.name)

    @property
    def agents(self) -> Sequence[Agent]:
        return [self.agent]

    @property
    def reruns(self) -> bool:
        return True

    async def work(self, run: Running) -> Came:
        return Came(await run.run_agent(self.agent), said=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolNode(AgentNode):
    """A tool, called with the node's input as its arguments: with the plugins, approvals and questions of every tool call."""

    kind = "tool"

    tool: Tool

    def __post_init__(self) -> None:
        super().__post_init__()


@dataclass(frozen=True, eq=False)
class Join(Node):
    """`Join("both")`: waits for all its predecessors; its input and output is `{name of the predecessor: its output}`. A given
    schema holds for each of these."""

    kind = "join"

    name: str = "join"

    async def work(self, run: Running) -> Came:
        return Came(run.input)


@dataclass(frozen=True, kw_only=True, eq=False)
class ParallelWorker(Node):
    """A list goes in, `inner` is run for each item, `limit` at a time (0: all at once), and the list of the outputs comes out,
    in the order of the items. `retry` is that of each item."""

    kind = "parallel_worker"

    inner: Node
    limit: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or f"each_{self.inner.name}")
        if self.inner.retry is not None:
            raise ConfigError(f"parallel worker {self.name!r}: retry= belongs to the worker, not to its node")
        if self.limit < 0:
            raise ConfigError(f"parallel worker {self.name!r}: limit must be 0 (no limit) or more")

    @property
    def agents(self) -> Sequence[Agent]:
        return self.inner.agents

    @property
    def reruns(self) -> bool:
        return True

    async def work(self, run: Running) -> Came:
        items = run.input
        if not isinstance(items, list):
            raise AgentError(f"parallel worker {self.name!r} needs a list, not a {type(items).__name__}")
        return Came(await run.run_each(self.inner, cast("list[Any]", items), self.limit, self.retry))


def parallel(target: Any, *, name: str = "", limit: int = 0, retry: RetryPolicy | None = None) -> ParallelWorker:
    """A worker that runs `target`, anything that may stand in `edges`, for each item of a list."""
    return ParallelWorker(inner=as_node(target), name=name, limit=limit, retry=retry)


@overload
def node(target: Any, /, **settings: Any) -> Node: ...


@overload
def node(**settings: Any) -> Callable[[Callable[..., Any]], FunctionNode]: ...


def node(target: Any = None, /, **settings: Any) -> Any:
    """A node with settings: `node(fetch, name="fetch", retry=RetryPolicy(), timeout_s=10)`, or `@node(timeout_s=10)` before a
    function.

    For every target: `retry`, `timeout_s`, `wait_for_output`, `input_schema`, `output_schema`. For functions also `name`,
    `rerun_on_resume`, `from_state` and `uses`. ConfigError for a setting that the target does not have, and for what cannot be
    a node.
    """
    return partial(_made, settings) if target is None else _made(settings, target)


def _made(settings: dict[str, Any], target: Any) -> Node:
    try:
        if isinstance(target, Agent):
            return AgentNode(agent=target, **settings)
        if isinstance(target, Tool):
            name = settings.get("name") or target.name
            caller = ToolCaller(name=name, description=target.description, tools=[target], model=ToolCaller.NO_MODEL)
            return ToolNode(agent=caller, tool=target, **settings)
        if callable(target):
            if getattr(target, "__name__", "") == "<lambda>" and not settings.get("name"):
                raise ConfigError("a lambda that is a node needs a name: node(lambda x: ..., name='...')")
            return FunctionNode(fn=cast("Callable[..., Any]", target), **settings)
    except TypeError as error:
        raise ConfigError(f"this node cannot have that setting: {error}") from None
    raise ConfigError(f"a {type(target).__name__} cannot be a node; a function, tool, agent or node can")


def as_node(target: Any) -> Node:
    """`target` itself if it is a node, else the node that it becomes."""
    return target if isinstance(target, Node) else _made({}, target)
