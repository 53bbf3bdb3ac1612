"""Plugins and callbacks: who is asked, in which order, and what an answer means (spec core 3.8, 3.9, 7).

Used by the runner and the turn loop. Plugins go first, in order of registration; the first answer that is not None
decides and nobody else is asked. Sync callables run in a worker thread, so that they cannot stop the event loop.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio.to_thread

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.model import ModelResponse
from polyport.errors import AgentError
from polyport.ports.agent import Hooks, Plugin

HOOK_NAMES = (
    "on_user_message",
    "before_run",
    "after_run",
    "on_event",
    "before_agent",
    "after_agent",
    "before_model",
    "after_model",
    "on_model_error",
    "before_tool",
    "after_tool",
    "on_tool_error",
)

_ANSWERS: dict[str, type] = {
    "on_user_message": Content,
    "before_run": Content,
    "on_event": Event,
    "before_agent": Content,
    "after_agent": Content,
    "before_model": ModelResponse,
    "after_model": ModelResponse,
    "on_model_error": ModelResponse,
}
"""What a hook may answer besides None. A tool's result may be anything."""

Callbacks = Callable[..., Any] | Sequence[Callable[..., Any]]


def hook_table(plugins: Sequence[Plugin]) -> Hooks:
    """Only the hooks that some plugin really has, so that an unused one costs one look-up. A sync one is made async."""
    table: dict[str, list[Callable[..., Any]]] = {}
    for name in HOOK_NAMES:
        for plugin in plugins:
            if getattr(type(plugin), name) is not getattr(Plugin, name):
                hook = getattr(plugin, name)
                table.setdefault(name, []).append(hook if _awaits(hook) else partial(ask, hook))
    return table


def _awaits(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


async def ask(fn: Callable[..., Any], *args: Any) -> Any:
    """What `fn(*args)` answers, whether it is sync (worker thread) or async."""
    answer = fn(*args) if _awaits(fn) else await anyio.to_thread.run_sync(fn, *args, abandon_on_cancel=True)
    return await answer if inspect.isawaitable(answer) else answer


async def first(hooks: Hooks, name: str, callbacks: Callbacks, *args: Any) -> Any:
    """The first answer that is not None, plugins before the agent's own callbacks; None if nobody answers.

    AgentError for an answer of the wrong type."""
    for hook in hooks.get(name, ()):
        answer = await hook(*args)
        if answer is not None:
            return _checked(name, "a plugin", answer)
    for callback in (callbacks,) if callable(callbacks) else callbacks:
        answer = await ask(callback, *args)
        if answer is not None:
            return _checked(name, getattr(callback, "__qualname__", type(callback).__name__), answer)
    return None


def _checked(name: str, whose: str, answer: Any) -> Any:
    wanted = _ANSWERS.get(name)
    if wanted is not None and not isinstance(answer, wanted):
        raise AgentError(
            f"{name} of {whose} returned a {type(answer).__name__}; it may return a {wanted.__name__} or None"
        )
    return answer
