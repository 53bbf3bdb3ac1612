"""The turn loop of an LLM agent: ask the model, carry out its calls, ask again, until it gives a final answer.

Called by `LlmAgent.run`. Spec core 3.3, 3.4, 3.10, 3.14. Everything that happened is committed through `ctx.emit` before
the next step reads the session.
"""

from typing import Literal

from msgspec import structs

from polyport.data.content import Content, FunctionCall, Part, model_text, user_text
from polyport.data.event import Event
from polyport.data.model import ModelRequest, ModelResponse
from polyport.data.run import Ending
from polyport.engine.model_call import ModelCall
from polyport.engine.output import as_json, parse_answer, remember
from polyport.engine.prepare import RESULT_TOOL, Toolbox, collect_tools, make_request, result_json
from polyport.engine.resume import interrupted_calls, interrupted_response
from polyport.engine.spec import LlmSpec
from polyport.engine.tool_calls import run_calls, without_calls
from polyport.errors import AgentError, BadRequest
from polyport.ports.agent import Bound, RunContext

MAX_THOUGHT_ONLY = 3
"""How often in a row a model may only think before the turn ends."""
MAX_SCHEMA_RETRIES = 2
"""How often a model is told that its answer does not fit the schema."""

Next = Ending | Literal["again"]


async def run_llm(ctx: RunContext, agent: LlmSpec) -> Ending:
    """Run one turn of `agent`; how it ended. Raises AgentError when the budget is used up or the answer never fits."""
    return await Turn(ctx, agent, ctx.scope.tree.bound(agent)).run()


class Turn:
    """One turn of one agent in one run."""

    def __init__(self, ctx: RunContext, agent: LlmSpec, bound: Bound) -> None:
        self.ctx = ctx
        self.agent = agent
        self.bound = bound
        self.thoughts = 0
        self.schema_retries = 0
        self.closing = False
        self.corrections: list[Content] = []

    async def run(self) -> Ending:
        self.box: Toolbox = await collect_tools(self.ctx, self.agent, self.bound)
        step: Next = await self._go_on() if self.ctx.scope.resumed else "again"
        while step == "again":
            step = await self._step()
        return step

    async def _go_on(self) -> Next:
        """Settle the calls that a run which died left open (DESIGN section 7), then go on with the model."""
        left = interrupted_calls(self.ctx.session.events, self.ctx.scope.id, self.agent.name)
        if not left:
            return "again"
        again = [c for c in left if c.name in self.box.by_name and self.box.by_name[c.name].idempotent]
        lost = [c for c in left if c not in again]
        event = await run_calls(self.ctx, self.agent, self.box, again) if again else None
        parts = [Part(function_response=interrupted_response(c)) for c in lost]
        if event is None:
            event = self.ctx.event(content=Content(role="user", parts=parts))
        elif event.content is not None:
            merged = structs.replace(event.content, parts=[*event.content.parts, *parts])
            event = structs.replace(event, content=merged)
        return await self._after_tools(await self.ctx.emit(event), left)

    async def _step(self) -> Next:
        request = await make_request(self.ctx, self.agent, self.bound, self.box)
        if self.corrections:
            request.contents = [*request.contents, *self.corrections]
        if self.closing:
            request.config = structs.replace(request.config, tool_choice="none")
        call = ModelCall(self.ctx, self.agent, self.bound.model, self.box)
        response = await call.ask(request)
        if response is None:
            return "done"
        if not self.closing and (problem := self._misfit(response, request)):
            return problem
        event = call.event(self._typed(response, request))
        if self.closing:
            event = without_calls(event)
        event = await self.ctx.emit(remember(self.agent, event, self.bound.output))
        self.corrections = []
        if self.ctx.scope.ended:
            return "ended"
        calls = event.calls
        if not calls:
            return self._after_text(event)
        answered = await run_calls(self.ctx, self.agent, self.box, calls)
        if answered is None:
            return "paused" if event.long_running_tool_ids else "done"
        return await self._after_tools(await self.ctx.emit(answered), calls)

    def _after_text(self, event: Event) -> Next:
        if self.closing:
            return "escalated"
        parts = event.content.parts if event.content is not None else []
        if parts and all(p.thought for p in parts) and not event.error_code:
            self.thoughts += 1
            return "again" if self.thoughts < MAX_THOUGHT_ONLY else "done"
        return "done"

    async def _after_tools(self, event: Event, calls: list[FunctionCall]) -> Next:
        """What the merged responses of a step lead to."""
        actions = event.actions
        if self.ctx.scope.ended or actions.end_invocation:
            self.ctx.scope.ended = True
            return "ended"
        if actions.transfer_to_agent:
            target = self.ctx.scope.tree.find(actions.transfer_to_agent)
            if target is None:
                raise AgentError(
                    f"agent {self.agent.name!r} handed over to an unknown agent {actions.transfer_to_agent!r}"
                )
            return await self.ctx.run_agent(target)
        done = next((r for r in event.responses if r.name == RESULT_TOOL and "error" not in (r.response or {})), None)
        if done is not None and RESULT_TOOL in self.box.by_name:
            final = self.ctx.event(content=model_text(result_json((done.response or {}).get("result"))))
            await self.ctx.emit(remember(self.agent, final, self.bound.output))
            return "done"
        if actions.escalate:
            # The model may still say a last word (statement 86), but no call of it is carried out any more (FR-111).
            self.closing = True
            return "escalated" if actions.skip_summarization else "again"
        if actions.skip_summarization:
            return "done"
        return "again" if event.content is not None else "paused"

    def _misfit(self, response: ModelResponse, request: ModelRequest) -> Next | None:
        """Ask once more, with the reason, when a final answer does not fit the output schema. None if it fits."""
        output, content = self.bound.output, response.content
        if output is None or content is None or content.calls or not content.text.strip() or response.error_code:
            return None
        try:
            parse_answer(content.text, output)
        except BadRequest as error:
            self.schema_retries += 1
            if self.schema_retries > MAX_SCHEMA_RETRIES:
                raise AgentError(
                    f"the answer of agent {self.agent.name!r} does not fit its output_schema after "
                    f"{MAX_SCHEMA_RETRIES} corrections: {error}"
                ) from None
            note = f"Your answer does not fit the required schema: {error}. Answer again with JSON only."
            if RESULT_TOOL in self.box.by_name:
                note += f" Use `{RESULT_TOOL}`."
            self.corrections = [*self.corrections, structs.replace(content, role="model"), user_text(note)]
            return "again"
        return None

    def _typed(self, response: ModelResponse, request: ModelRequest) -> ModelResponse:
        """A final answer under a schema becomes its bare JSON, whatever it was wrapped in."""
        output, content = self.bound.output, response.content
        if output is None or content is None or content.calls or not content.text.strip() or response.error_code:
            return response
        if self.closing:
            return response
        return structs.replace(response, content=as_json(content, parse_answer(content.text, output)))
