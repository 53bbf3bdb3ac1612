"""Contained: what user code may raise that is no ordinary error becomes one; a run ends, the server does not (FR-097).

Put around agents, callbacks, plugins and tools by the runner and by the tool calls. A real cancellation always passes, and so
does Ctrl-C. Enclosed is for what has a task of its own: it also closes the cancel scopes that user code left open.
"""

import asyncio
import logging
import math
from collections.abc import Iterator
from types import TracebackType
from typing import cast

import anyio
from anyio._backends._asyncio import TaskState, _task_states  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]

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


class Enclosed:
    """`with Enclosed("the run"):` as `Contained`, around all that user code does in a task of ours. No cancel scope that was
    entered inside is open behind it: anyio would end the task with an error, and with it the group of all runs. A cancellation
    that came from such a scope, or from the code's own hand, is an AgentError. In a task not of anyio: as `Contained`."""

    __slots__ = ("_outer", "_state", "_who")

    def __init__(self, who: str) -> None:
        self._who = who

    def __enter__(self) -> None:
        self._state = _state()
        self._outer = self._state.cancel_scope if self._state is not None else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state is not None and self._state.cancel_scope is not self._outer:
            log.warning("%s left a cancel scope or a task group open", self._who)
            _leave(self._state, self._outer)
        if error is None or isinstance(error, Exception):
            return
        if self._state is not None and isinstance(error, asyncio.CancelledError) and not _scope_cancelled():
            raise AgentError(f"{self._who} was cancelled from within: by its own code, not by a caller") from error
        Contained(self._who).__exit__(kind, error, trace)


def _state() -> TaskState | None:
    """What anyio knows of this task; it has no public word for it."""
    task = asyncio.current_task()
    return _task_states.get(task) if task is not None else None  # pyright: ignore[reportUnknownMemberType]


def _leave(state: TaskState, outer: anyio.CancelScope | None) -> None:
    """Cancel and leave the scopes that are open inside `outer`, and with them the tasks that a group left behind."""
    while (scope := state.cancel_scope) is not None and scope is not outer:
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
