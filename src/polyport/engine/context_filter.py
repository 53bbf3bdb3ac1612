"""A `before_model` callback that makes prompts shorter: only the last invocations are shown to the model.

For agents that need no long memory and no summaries (see `engine/compaction` for those). It edits the request only; the
session, and the prompts of other agents, stay as they are.
"""

from collections.abc import Awaitable, Callable

from polyport.data.content import Content
from polyport.data.model import ModelRequest
from polyport.engine.contents import GO_ON, LEAD
from polyport.errors import ConfigError
from polyport.ports.agent import CallbackContext

BeforeModel = Callable[[CallbackContext, ModelRequest], Awaitable[None]]


def last_invocations(count: int) -> BeforeModel:
    """`LlmAgent(..., before_model=last_invocations(5))`, or `self.before_model = last_invocations(5)` of a plugin.

    An invocation begins where the user says something, and the present one counts. ConfigError unless `count` is above zero.
    """
    if count < 1:
        raise ConfigError(f"last_invocations({count}): the number must be above zero")

    async def before_model(ctx: CallbackContext, request: ModelRequest) -> None:
        request.contents = request.contents[cut(request.contents, count) :]

    return before_model


def cut(contents: list[Content], count: int) -> int:
    """Where the last `count` invocations begin. Never between a call and its response: then an earlier one stays as well."""
    starts = [at for at in range(len(contents)) if _begins(contents[at]) and not (at and _begins(contents[at - 1]))]
    calls = {call.id: at for at, content in enumerate(contents) for call in content.calls}
    for start in reversed(starts[: 1 - count or None]):
        answered = (calls.get(r.id, start) for content in contents[start:] for r in content.responses)
        if min(answered, default=start) >= start:
            return start
    return 0


def _begins(content: Content) -> bool:
    """Whether the user speaks here: neither results of tools, nor what another agent did, nor the engine's nudge to go on."""
    if content.role != "user" or content.responses or content == GO_ON:
        return False
    return not content.parts or content.parts[0] != LEAD
