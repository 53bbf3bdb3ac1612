"""Agents without a model of their own: in sequence, in parallel, in a loop, or a function of the user's.

They only decide who runs when (spec core 4.1). The first error of a child ends the run. ParallelAgent opens a task group
(concurrency place 3).
"""

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import anyio
import anyio.lowlevel

from polyport.data.event import Event
from polyport.data.run import Ending
from polyport.errors import AgentError, ConfigError
from polyport.ports.agent import Agent, RunContext

_WEIGHT: list[Ending] = ["ended", "paused", "escalated", "done"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SequentialAgent(Agent):
    """Runs its sub-agents once, in order. One that pauses or ends the run stops the rest; one that escalates does not, but
    a loop around the sequence ends after it."""

    async def run(self, ctx: RunContext) -> Ending:
        result: Ending = "done"
        for child in self.sub_agents:
            ending = await ctx.run_agent(child)
            if ending in ("paused", "ended"):
                return ending
            if ending == "escalated":
                result = ending
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopAgent(Agent):
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
            for child in self.sub_agents:
                ending = await ctx.run_agent(child)
                if ending in ("paused", "ended"):
                    return ending
                if ending == "escalated":
                    return "done"
            await anyio.lowlevel.checkpoint()  # children that never wait must not stop the event loop for ever
        return "done"


@dataclass(frozen=True, kw_only=True, eq=False)
class ParallelAgent(Agent):
    """Runs its sub-agents side by side, each on a branch of its own, so that none sees the others' events of this turn."""

    async def run(self, ctx: RunContext) -> Ending:
        endings: list[Ending] = []
        prefix = f"{ctx.branch}.{self.name}" if ctx.branch else self.name

        async def one(child: Agent) -> None:
            endings.append(await ctx.run_agent(child, f"{prefix}.{child.name}"))

        try:
            async with anyio.create_task_group() as group:
                for child in self.sub_agents:
                    group.start_soon(one, child)
        except BaseExceptionGroup as failures:
            raise _first_error(failures) from None
        return min(endings, key=_WEIGHT.index) if endings else "done"


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
