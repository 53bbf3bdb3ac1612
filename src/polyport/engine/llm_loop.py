"""The turn loop of an LLM agent: ask the model, carry out its calls, ask again, until it gives a final answer.

Called by `LlmAgent.run`. Spec core 3.3, 3.4, 3.10, 3.14. Everything that happened is committed through `ctx.emit` before
the next step reads the session.
"""

import dataclasses
from typing import Any, Literal

from msgspec import structs

from polyport.data.content import Content, Part, model_text, user_text
from polyport.data.event import Event, new_actions
from polyport.data.model import ModelResponse
from polyport.data.run import Ending
from polyport.engine.delegation import Delegate
from polyport.engine.model_call import ModelCall
from polyport.engine.output import as_json, parse_answer, remember
from polyport.engine.prepare import RESULT_TOOL, Toolbox, collect_tools, make_prompt, make_request, result_json
from polyport.engine.resume import interrupted_response, newest_event
from polyport.engine.scopes import FINISH_TOOL, answered_ids, closes_task, reopened_event
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
    bound = ctx.tree.bound(agent)
    if agent.mode == "task" and bound.output is not None:
        bound = dataclasses.replace(bound, output=None)  # it is what `finish_task` takes (statement 72)
    return await Turn(ctx, agent, bound).run()


class Turn:
    """One turn of one agent in one run."""

    def __init__(self, ctx: RunContext, agent: LlmSpec, bound: Bound) -> None:
        self.ctx = ctx
        self.agent = agent
        self.bound = bound
        self.prompt = make_prompt(ctx, agent)
        self.thoughts = 0
        self.schema_retries = 0
        self.closing = False
        self.waiting = False
        self.pending = False
        """Whether a delegation is open: the model is not asked before it has come to its end."""
        self.corrections: list[Content] = []
        self.actions = new_actions()
        """What callbacks of the model calls wrote since the last event of this turn."""

    async def run(self) -> Ending:
        self.box: Toolbox = await collect_tools(self.ctx, self.agent, self.bound)
        step: Next = await self._go_on() if self.ctx.goes_on or self.ctx.scope.reopened else "again"
        while step == "again":
            step = await self._step()
        return step

    async def _go_on(self) -> Next:
        """End what a run that died had begun (DESIGN section 7): what the newest event of this turn asks for. Calls whose
        delegations go on come first."""
        events, scope = self.ctx.session.events, self.ctx.scope
        open_calls = reopened_event(events, scope.reopened, self.agent.name, self.ctx.isolation_scope)
        if open_calls is not None:
            return await self._settle(open_calls)
        if not self.ctx.goes_on:
            return "again"
        last = newest_event(events, scope.id, self.agent.name, self.ctx.isolation_scope)
        if last is None or last.author == "user":
            return "again"
        if last.responses:
            return await self._after_tools(last)
        if last.calls:
            return await self._settle(last)
        return self._after_text(last) if last.content is not None else "again"

    async def _settle(self, asked: Event) -> Next:
        """Give the calls of `asked` their responses: those that may run again do, the others are told as interrupted. In a run
        that did not die, delegations that nobody reopened stay open."""
        scope, tools = self.ctx.scope, self.box.by_name
        answered = answered_ids(self.ctx.session.events, asked)
        left = [c for c in asked.calls if c.id not in asked.long_running_tool_ids and c.id not in answered]
        self.waiting = any(id not in answered for id in asked.long_running_tool_ids)
        held = [c for c in left if isinstance(tools.get(c.name), Delegate) and c.id not in scope.reopened]
        if self.ctx.goes_on:
            held = []
        again = [c for c in left if c not in held and c.name in tools and tools[c.name].idempotent]
        scope.reopened.difference_update(c.id for c in asked.calls)
        done = await run_calls(self.ctx, self.agent, self.box, again) if again else None
        responses = {r.id: r for r in (done.responses if done is not None else ())}
        responses.update((c.id, interrupted_response(c)) for c in left if c not in again and c not in held)
        self.pending = any(c.id not in responses for c in left)
        parts = [Part(function_response=responses[c.id]) for c in left if c.id in responses]
        if not parts:
            return "paused" if self.pending else self._end()
        event = done if done is not None else self.ctx.event()
        event = structs.replace(event, content=Content(role="user", parts=parts))
        return await self._after_tools(await self.ctx.emit(event))

    async def _step(self) -> Next:
        request = await make_request(self.ctx, self.agent, self.bound, self.box, self.prompt)
        if self.corrections:
            request.contents = [*request.contents, *self.corrections]
        if self.closing:
            request.config = structs.replace(request.config, tool_choice="none")
        call = ModelCall(self.ctx, self.agent, self.bound.model, self.box, actions=self.actions)
        response = await call.ask(request)
        if response is None:
            return await self._silent()
        if not self.closing and not call.early and self._misfit(response):
            return "again"
        event = call.event(self._typed(response))
        if self.closing:
            event = without_calls(event)
            if event.content is None and not event.error_code:
                return await self._silent()
        self.corrections, self.actions = [], new_actions()
        event = await self.ctx.emit(remember(self.agent, event, self.bound.output))
        if self.ctx.scope.ended:
            return "ended"
        return await self._after_calls(event) if event.calls else self._after_text(event)

    async def _silent(self) -> Next:
        """The model said nothing. What callbacks wrote is kept, by an event without content."""
        if self.actions != new_actions():
            await self.ctx.emit(self.ctx.event(actions=self.actions))
            self.actions = new_actions()
        return "ended" if self.ctx.scope.ended else self._end()

    def _end(self) -> Ending:
        """How a turn ends that has nothing more to do."""
        if self.closing:
            return "escalated"
        return "paused" if self.waiting else "done"

    def _after_text(self, event: Event) -> Next:
        parts = event.content.parts if event.content is not None else []
        if self.closing or event.error_code or not parts or not all(p.thought for p in parts):
            return self._end()
        self.thoughts += 1
        return "again" if self.thoughts < MAX_THOUGHT_ONLY else self._end()

    async def _after_calls(self, event: Event) -> Next:
        self.thoughts = 0
        answered = await run_calls(self.ctx, self.agent, self.box, event.calls)
        self.waiting |= _waits(event, answered)
        self.pending = _open(event, answered)
        if answered is None:
            return "paused" if self.pending else self._end()
        return await self._after_tools(await self.ctx.emit(answered))

    async def _after_tools(self, event: Event) -> Next:
        """What the merged responses of a step lead to."""
        actions = event.actions
        if self.ctx.scope.ended or actions.end_invocation:
            self.ctx.scope.ended = True
            return "ended"
        if actions.transfer_to_agent:
            return self._hand_over(actions.transfer_to_agent)
        if self.pending:
            return "paused"
        if FINISH_TOOL in self.box.by_name and closes_task(event):
            return self._end()
        if RESULT_TOOL in self.box.by_name:
            for response in event.responses:
                if response.name == RESULT_TOOL and await self._result(response.response or {}):
                    return "escalated" if actions.escalate else self._end()
        if actions.escalate:
            # The model may still say a last word (statement 86), but no call of it is carried out any more (FR-111).
            self.closing = True
            return "escalated" if actions.skip_summarization else "again"
        if actions.skip_summarization or event.content is None:
            return self._end()
        return "again"

    def _hand_over(self, name: str) -> Ending:
        """The runner goes on with the other agent when this turn has ended."""
        self.ctx.next_agent = self.ctx.tree.find(name)
        if self.ctx.next_agent is None:
            raise AgentError(f"agent {self.agent.name!r} handed over to an unknown agent {name!r}")
        return "done"

    async def _result(self, response: dict[str, Any]) -> bool:
        """Emit the typed answer that the model gave through the result tool; False when it was refused."""
        if "error" in response:
            self._refuse(str(response["error"]))
            return False
        final = self.ctx.event(content=model_text(result_json(response.get("result"))))
        await self.ctx.emit(remember(self.agent, final, self.bound.output))
        return True

    def _answer(self, response: ModelResponse) -> str:
        """The text of a final answer to which the output schema applies, else ""."""
        content = response.content
        if self.bound.output is None or content is None or content.calls or response.error_code:
            return ""
        return content.text if content.text.strip() else ""

    def _misfit(self, response: ModelResponse) -> bool:
        """Whether a final answer does not fit the output schema. The model is then asked once more, with the reason."""
        text, output, content = self._answer(response), self.bound.output, response.content
        if not text or output is None or content is None:
            return False
        try:
            parse_answer(text, output)
            return False
        except BadRequest as error:
            self._refuse(str(error))
            note = f"Your answer does not fit the required schema: {error}. Answer again with JSON only."
            if RESULT_TOOL in self.box.by_name:
                note += f" Use `{RESULT_TOOL}`."
            self.corrections = [*self.corrections, structs.replace(content, role="model"), user_text(note)]
            return True

    def _refuse(self, why: str) -> None:
        """Count one more answer that does not fit. AgentError when there were too many."""
        self.schema_retries += 1
        if self.schema_retries > MAX_SCHEMA_RETRIES:
            raise AgentError(
                f"the answer of agent {self.agent.name!r} does not fit its output_schema after "
                f"{MAX_SCHEMA_RETRIES} corrections: {why}"
            )

    def _typed(self, response: ModelResponse) -> ModelResponse:
        """A final answer that fits the schema becomes its bare JSON, whatever it was wrapped in."""
        text, output, content = self._answer(response), self.bound.output, response.content
        if not text or output is None or content is None:
            return response
        try:
            value = parse_answer(text, output)
        except BadRequest:
            return response  # the last word after an escalation, or a callback's answer: for readers as it is
        return structs.replace(response, content=as_json(content, value))


def _open(asked: Event, answered: Event | None) -> bool:
    """Whether a call of the event is neither answered nor long-running: another agent goes on with it later."""
    done = {r.id for r in answered.responses} if answered is not None else set[str]()
    return any(c.id not in done and c.id not in asked.long_running_tool_ids for c in asked.calls)


def _waits(asked: Event, answered: Event | None) -> bool:
    """Whether a call of the event waits for somebody outside: it is long-running, and has not failed."""
    failed = {r.id for r in answered.responses if "error" in (r.response or {})} if answered is not None else set[str]()
    return any(id not in failed for id in asked.long_running_tool_ids)
