"""Plugins and callbacks: who is asked, in which order, and what an answer means (spec core 3.8, 3.9, 7).

Used by the runner and the turn loop. Plugins go first, in order of registration; the first answer that is not None
decides and nobody else is asked. Sync callables run in a worker thread, so that they cannot stop the event loop.

The `around_*` hooks of the plugins form an onion around the thing itself, the first plugin outermost. It lies inside the other
hooks: before_x; then around_x with the model, tool, agent or run in it; then on_x_error for what still fails; then after_x.
The `watch_*` hooks measure: they lie around all of these, but for a model, where they lie around the question itself.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast, get_args

import anyio.to_thread

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.model import ModelRequest, ModelResponse
from polyport.data.run import Ending
from polyport.errors import AgentError, ConfigError
from polyport.ports.agent import CallbackContext, Hooks
from polyport.ports.model import OnPartial
from polyport.ports.plugin import Plugin

log = logging.getLogger("polyport")

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
    "around_run",
    "around_agent",
    "around_model",
    "around_tool",
    "watch_agent",
    "watch_model",
    "watch_tools",
    "watch_tool",
    "watch_node",
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

_ENDS = ("around_run", "around_agent")
_ENDINGS: tuple[str, ...] = get_args(Ending)
"""What these may return."""

_LIKE_A_HOOK = ("before_", "after_", "on_", "around_", "watch_")

Callbacks = Callable[..., Any] | Sequence[Callable[..., Any]]


def distinct(plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """The plugins, checked: ConfigError for something else among them, or for two of one name."""
    names: set[str] = set()
    for plugin in plugins:
        if not isinstance(cast("object", plugin), Plugin):  # user code is not checked
            raise ConfigError(f"plugins= takes objects of subclasses of Plugin, not {plugin!r}")
        name = plugin.name or type(plugin).__name__
        if name in names:
            raise ConfigError(f"two plugins are named {name!r}")
        names.add(name)
    return tuple(plugins)


def hook_table(plugins: Sequence[Plugin]) -> Hooks:
    """Only the hooks that some plugin really has, so that an unused one costs one look-up. A sync one is made async.

    Warns of methods that look like hooks and are none, for they would never be called."""
    table: dict[str, list[Callable[..., Any]]] = {}
    for plugin in plugins:
        for name in dir(type(plugin)):
            if name.startswith(_LIKE_A_HOOK) and name not in HOOK_NAMES:
                log.warning(
                    "plugin %s: %s is no hook; there are: %s", type(plugin).__name__, name, ", ".join(HOOK_NAMES)
                )
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


def wrap(hooks: Hooks, name: str, inner: Callable[..., Awaitable[Any]], *about: Any) -> Callable[..., Awaitable[Any]]:
    """`inner` with the `name` hooks around it; `inner` itself when there are none.

    A hook is called with `about`, then with what the caller passes on, then with the next layer."""
    for hook in reversed(hooks.get(name, ())):
        inner = partial(_layer, name, hook, about, inner)
    return inner


async def _layer(name: str, hook: Callable[..., Any], about: Sequence[Any], inner: Any, *args: Any) -> Any:
    answer = await hook(*about, *args, inner)
    if name in _ENDS and answer not in _ENDINGS:
        raise AgentError(f"{name} of a plugin returned a {type(answer).__name__}; it must return what call_next() gave")
    return answer


Generate = Callable[[ModelRequest, OnPartial | None], Awaitable[ModelResponse]]


class ModelStep:
    """What `around_model` gets as `call_next`: the layers within it, down to the model.

    `on_partial` takes the streamed pieces; None when the run does not stream. A hook may hand on pieces of its own with it, and
    see those of the model by passing another one."""

    __slots__ = ("_generate", "on_partial")

    def __init__(self, generate: Generate, on_partial: OnPartial | None) -> None:
        self._generate = generate
        self.on_partial = on_partial

    async def __call__(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        return await self._generate(request, on_partial or self.on_partial)


def wrap_model(hooks: Hooks, ctx: CallbackContext, event_id: str, generate: Generate) -> Generate:
    """A model's `generate` with the `watch_model` hooks and then the `around_model` hooks around it; `generate` itself when
    there are none."""
    for hook in reversed(hooks.get("watch_model", ())):
        generate = partial(_model_layer, "watch_model", hook, (ctx, event_id), generate)
    for hook in reversed(hooks.get("around_model", ())):
        generate = partial(_model_layer, "around_model", hook, (ctx,), generate)
    return generate


async def _model_layer(
    name: str,
    hook: Callable[..., Any],
    about: Sequence[Any],
    inner: Generate,
    request: ModelRequest,
    on_partial: OnPartial | None,
) -> ModelResponse:
    answer = await hook(*about, request, ModelStep(inner, on_partial))
    if not isinstance(answer, ModelResponse):
        raise AgentError(f"{name} of a plugin returned a {type(answer).__name__}; it must return a ModelResponse")
    return answer


def _checked(name: str, whose: str, answer: Any) -> Any:
    wanted = _ANSWERS.get(name)
    if wanted is not None and not isinstance(answer, wanted):
        raise AgentError(
            f"{name} of {whose} returned a {type(answer).__name__}; it may return a {wanted.__name__} or None"
        )
    return answer
