"""Contained: what user code may raise that is no ordinary error becomes one; a run ends, the server does not (FR-097).

Put around agents, callbacks, plugins and tools by the runner and by the tool calls. A real cancellation always passes, and so
does Ctrl-C. Around a whole run it also closes the cancel scopes that user code left open.
"""

import asyncio
import logging
import math
from collections.abc import Iterator
from types import TracebackType
from typing import cast

import anyio
from anyio._backends._asyncio import CancelScope, _task_states  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]

from polyport.errors import AgentError

log = logging.getLogger("polyport.runs")


class Contained:
    """`with Contained("agent 'a'"): ...` raises AgentError for a SystemExit, for a CancelledError though nobody cancelled, and
    for a group that holds such a thing. `Exception`s go through as they are."""

    __slots__ = ("_who",)

    def __init__(self, who: str) -> None:
        self._who = who

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception | KeyboardInterrupt | GeneratorExit):
            return
        told = _told(error)
        if told is not None:
            raise AgentError(f"{self._who} {told}") from error


class ContainedRun:
    """`with ContainedRun():` as `Contained`, around all that a run does. No cancel scope that was entered inside is open behind
    it: anyio would end the task with an error, and with it the group of all runs. A cancellation that came from such a scope,
    or from the run's own hand, is the run's error."""

    __slots__ = ("_outer",)

    def __enter__(self) -> None:
        self._outer = _scope()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _scope() is not self._outer:
            _close_down_to(self._outer)
            log.warning("an agent, a callback, a plugin or a tool left a cancel scope or a task group open")
        if error is None or isinstance(error, Exception):
            return
        if isinstance(error, asyncio.CancelledError) and not _scope_cancelled():
            raise AgentError("the run was cancelled from within: by code of its own, not by its caller") from error
        Contained("the run").__exit__(kind, error, trace)


def _scope() -> CancelScope | None:
    """The innermost cancel scope of this task; anyio has no public word for it."""
    task = asyncio.current_task()
    state = _task_states.get(task) if task is not None else None  # pyright: ignore[reportUnknownMemberType]
    return state.cancel_scope if state is not None else None


def _close_down_to(outer: CancelScope | None) -> None:
    """Cancel and leave the scopes inside `outer`, and with them the tasks that a group left behind."""
    while (scope := _scope()) is not None and scope is not outer:
        scope.cancel()
        scope.__exit__(None, None, None)


def _told(error: BaseException) -> str | None:
    """What to say of an error that must not pass; None for one that must."""
    if isinstance(error, asyncio.CancelledError):
        return None if cancelled() else "raised CancelledError, though nobody cancelled the run"
    if isinstance(error, BaseExceptionGroup):
        leaves = list(_leaves(cast("BaseExceptionGroup[BaseException]", error)))
        if any(isinstance(e, KeyboardInterrupt | GeneratorExit) for e in leaves):
            return None
        if cancelled() and any(isinstance(e, asyncio.CancelledError) for e in leaves):
            return None
        return "raised " + ", ".join(dict.fromkeys(type(e).__name__ for e in leaves))
    return f"raised {type(error).__name__}"


def cancelled() -> bool:
    """Whether somebody cancelled this task, or a scope around it."""
    task = asyncio.current_task()
    return (task is not None and task.cancelling() > 0) or _scope_cancelled()


def _scope_cancelled() -> bool:
    return anyio.current_effective_deadline() == -math.inf


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error
