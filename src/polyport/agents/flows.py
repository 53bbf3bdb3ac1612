"""Agents without a model of their own: in sequence, in parallel, in a loop, or a function of the user's.

They only decide who runs when (spec core 4.1). The first error of a child ends the run. ParallelAgent opens a task group
(concurrency place 3).
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import anyio
import anyio.lowlevel

from polyport.data.event import Event
from polyport.data.run import Ending
from polyport.engine.flow import FlowSpec, going_on, still_waits
from polyport.errors import AgentError, ConfigError
from polyport.ports.agent import Agent, RunContext

_WEIGHT: list[Ending] = ["ended", "paused", "escalated", "done"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SequentialAgent(FlowSpec):
    """Runs its sub-agents once, in order. One that pauses or ends the run stops the rest; one that escalates does not, but
    a loop around the sequence ends after it."""

    def follows(self, child: Agent) -> bool:
        return child is not self.sub_agents[-1]

    async def run(self, ctx: RunContext) -> Ending:
        result: Ending = "done"
        for child in _from_where_it_was(ctx, self.sub_agents):
            ending = await ctx.run_agent(child)
            if ending in ("paused", "ended"):
                return ending
            if ending == "escalated":
                result = ending
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopAgent(FlowSpec):
    """Runs its sub-agents in order, again and again, until one escalates or `max_iterations` rounds are done (0: no limit).

    An escalation ends the innermost loop only, after the child that escalated has finished.
    """

    max_iterations: int = 0

    def __post_init__(self) -> None:
        if self.max_iterations < 0:
            raise ConfigError(f"max_iterations of loop {self.name!r} must be 0 (no limit) or more")

    async def run(self, ctx: RunContext) -> Ending:
        rounds = 0
        while self.sub_agents and (self.max_iterations == 0 or rounds < self.max_iterations):
            rounds += 1
            for child in _from_where_it_was(ctx, self.sub_agents):
                ending = await ctx.run_agent(child)
                if ending in ("paused", "ended"):
                    return ending
                if ending == "escalated":
                    return "done"
            await anyio.lowlevel.checkpoint()  # children that never wait must not stop the event loop for ever
        return "done"


@dataclass(frozen=True, kw_only=True, eq=False)
class ParallelAgent(FlowSpec):
    """Runs its sub-agents side by side, each on a branch of its own, so that none sees the others' events of this turn."""

    def place(self, branch: str, child: Agent) -> str:
        return f"{branch}.{self.name}.{child.name}" if branch else f"{self.name}.{child.name}"

    async def run(self, ctx: RunContext) -> Ending:
        endings: list[Ending] = []

        async def one(child: Agent) -> None:
            try:
                endings.append(await ctx.run_agent(child, self.place(ctx.branch, child)))
            except Exception as error:
                error.add_note(f"in child {child.name!r} of parallel agent {self.name!r}")
                raise

        begun = [] if ctx.scope.resumed else going_on(ctx, self.sub_agents)
        try:
            async with anyio.create_task_group() as group:
                for child in begun or self.sub_agents:
                    group.start_soon(one, child)
        except BaseExceptionGroup as failures:
            raise _first_error(failures) from None
        if begun and still_waits(ctx, [c for c in self.sub_agents if c not in begun]):
            endings.append("paused")
        return min(endings, key=_WEIGHT.index) if endings else "done"


def _from_where_it_was(ctx: RunContext, children: Sequence[Agent]) -> Sequence[Agent]:
    """The children to run: all, or in a run that goes on those from the first that asked or was at work."""
    begun = going_on(ctx, children)
    return children[children.index(begun[0]) :] if begun else children


def _first_error(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return (
        _first_error(cast("BaseExceptionGroup[BaseException]", first))
        if isinstance(first, BaseExceptionGroup)
        else first
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionAgent(Agent):
    """An agent from a function of the user's: `async def f(ctx)` that emits, or an async generator that yields events.

    A yielded None is skipped; an event without author, id or time gets them.
    """

    function: Callable[[RunContext], Any]

    async def run(self, ctx: RunContext) -> Ending | None:
        made = self.function(ctx)
        if inspect.isasyncgen(made):
            async with aclosing(cast("AsyncGenerator[Event | None]", made)) as events:
                async for event in events:
                    if event is not None:
                        await ctx.emit(self._checked(event))
            return None
        if inspect.isawaitable(made):
            return await made
        raise AgentError(f"the function of agent {self.name!r} must be async; it gave a {type(made).__name__}")

    def _checked(self, event: object) -> Event:
        if not isinstance(event, Event):
            raise AgentError(f"agent {self.name!r} yielded a {type(event).__name__}, not an Event")
        return event
