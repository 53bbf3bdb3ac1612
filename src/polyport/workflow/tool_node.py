"""A tool as a node: an agent that makes one call, and asks no model (spec core 4.3, 12.26).

It is a turn like every other, so plugins see the call, a human may have to approve it, the tool may ask something, and a run
that died does not carry it out twice. Made by `nodes.node`.
"""

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import msgspec

from polyport.data.content import Content, FunctionCall, FunctionResponse, Part
from polyport.data.event import Event
from polyport.data.model import ModelRequest, ModelResponse
from polyport.data.run import Ending
from polyport.engine.llm_loop import Next, Turn
from polyport.engine.spec import LlmSpec
from polyport.errors import AgentError
from polyport.ports.agent import RunContext
from polyport.ports.model import OnPartial
from polyport.workflow.place import Placed


class NoModel:
    """Stands where an agent has its model. It is never asked."""

    name = "none"
    schema_with_tools = True

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        raise AgentError("a tool node has no model to ask")

    async def aclose(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolCaller(LlmSpec):
    """The agent of a tool node. Its only tool is the node's."""

    NO_MODEL: ClassVar[NoModel] = NoModel()

    async def run(self, ctx: RunContext) -> Ending:
        return await _ToolTurn(ctx, self, ctx.tree.bound(self)).run()


class _ToolTurn(Turn):
    """A turn in which the node's input takes the place of the model."""

    async def _step(self) -> Next:
        asked, answer = _latest(self.ctx)
        if asked is None or (answer is not None and _failure(answer) and not self._newer(answer)):
            call = FunctionCall(id="adk-" + self.ctx.scope.seams.new_id(), name=self._tool().name, args=self._args())
            waits = [call.id] if self._tool().long_running else []
            content = Content(role="model", parts=[Part(function_call=call)])
            return await self._after_calls(
                await self.ctx.emit(self.ctx.event(content=content, long_running_tool_ids=waits))
            )
        if answer is None or self.waiting:
            return self._end()
        failure = _failure(answer)
        if failure:
            raise AgentError(f"the tool of node {self.agent.name!r} failed: {failure}")
        said = answer.response or {}
        value: Any = said["result"] if list(said) == ["result"] else said
        if value is not None:
            await self.ctx.emit(self.ctx.event(output=value))
        return self._end()

    def _tool(self) -> Any:
        return next(iter(self.box.by_name.values()))

    def _newer(self, answer: FunctionResponse) -> bool:
        """Whether a call got this answer in this turn: an older failure belongs to an attempt before."""
        events = self.ctx.session.events
        return any(r is answer for e in events[self.prompt_from :] for r in e.responses)

    async def run(self) -> Ending:
        self.prompt_from = len(self.ctx.session.events)
        return await super().run()

    def _args(self) -> dict[str, Any]:
        value: Any = self.ctx.place.input if isinstance(self.ctx, Placed) else None
        if isinstance(value, str):
            with contextlib.suppress(msgspec.DecodeError):
                value = msgspec.json.decode(value)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise AgentError(
                f"tool node {self.agent.name!r} needs an object with the tool's arguments as its input, not a "
                f"{type(value).__name__}"
            )
        return cast("dict[str, Any]", value)


def _latest(ctx: RunContext) -> tuple[Event | None, FunctionResponse | None]:
    """The newest call of this node, and the newest response to it."""
    answers: dict[str, FunctionResponse] = {}
    for event in reversed(ctx.session.events):
        if event.isolation_scope != ctx.isolation_scope or event.invocation_id != ctx.invocation_id:
            continue
        for response in event.responses:
            answers.setdefault(response.id, response)
        for call in event.calls:
            if event.author == ctx.agent.name and not call.name.startswith("adk_request_"):
                return event, answers.get(call.id)
    return None, None


def _failure(answer: FunctionResponse) -> str:
    said = answer.response or {}
    return str(said["error"]) if "error" in said and set(said) <= {"error", "reason", "interrupted"} else ""
