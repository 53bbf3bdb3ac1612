"""Contained: what user code may raise that is no ordinary error becomes one; a run ends, the server does not (FR-097).

Put around agents, callbacks, plugins and tools by the runner and by the tool calls. A real cancellation always passes, and so
does Ctrl-C.
"""

import asyncio
import math
from collections.abc import Iterator
from types import TracebackType
from typing import cast

import anyio

from polyport.errors import AgentError


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
    return (task is not None and task.cancelling() > 0) or anyio.current_effective_deadline() == -math.inf


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error
