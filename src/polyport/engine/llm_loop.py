"""The turn loop of an LLM agent: ask the model, carry out its calls, ask again, until it gives a final answer.

Called by `LlmAgent.run`. Spec core 3.3, 3.4, 3.10, 3.14. Everything that happened is committed through `ctx.emit` before
the next step reads the session.
"""

import dataclasses
from collections.abc import Container, Sequence
from typing import Any, Literal

from msgspec import structs

from polyport.data.asking import Reply
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part, model_text, user_text
from polyport.data.event import Event, new_actions
from polyport.data.model import ModelResponse
from polyport.data.run import Ending
from polyport.engine.approvals import AnsweredStep, answered_steps, has_open, replies_to
from polyport.engine.delegation import Delegate
from polyport.engine.live_loop import run_live
from polyport.engine.model_call import ModelCall
from polyport.engine.output import as_json, parse_answer, remember
from polyport.engine.pause import request_events
from polyport.engine.prepare import RESULT_TOOL, Toolbox, collect_tools, make_prompt, make_request, result_json
from polyport.engine.resume import interrupted_response, newest_event
from polyport.engine.scopes import FINISH_TOOL, answered_ids, closes_task, reopened_event
from polyport.engine.spec import LlmSpec
from polyport.engine.steps import step_waits, told_ids, unasked_step, waits_outside, whole_step
from polyport.engine.tool_calls import NOTHING_DONE, Done, run_calls, without_calls
from polyport.errors import AgentError, BadRequest
from polyport.ports.agent import Bound, RunContext

MAX_THOUGHT_ONLY = 3
"""How often in a row a model may only think before the turn ends."""
MAX_SCHEMA_RETRIES = 2
"""How often a model is told that its answer does not fit the schema."""

BEGUN = {"status": "The call was approved and carried out; its result comes later."}
"""The response of an approved long-running call that has no result yet."""

Next = Ending | Literal["again"]


async def run_llm(ctx: RunContext, agent: LlmSpec) -> Ending:
    """Run one turn of `agent`; how it ended. Raises AgentError when the budget is used up or the answer never fits."""
    if ctx.scope.live is not None and not ctx.isolation_scope:
        return await run_live(ctx, agent)
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
        step = await self._begin()
        while step == "again":
            step = await self._step()
        return step

    async def _begin(self) -> Next:
        """What comes before the model is asked: the end of what was begun, and the calls that somebody has answered for."""
        ctx = self.ctx
        message, reopened = ctx.scope.user_content, self._reopened()
        if ctx.goes_on and reopened is None:
            return await self._go_on()
        if reopened is None and (message is None or not message.responses):
            return "again"
        return await self._answered(reopened)

    def _reopened(self) -> Event | None:
        """The calls whose delegations go on."""
        ctx = self.ctx
        return reopened_event(ctx.session.events, ctx.scope.reopened, self.agent.name, ctx.isolation_scope)

    async def _answered(self, reopened: Event | None) -> Next:
        """Carry out the calls that a human has decided on, and those whose delegations go on. The model is asked when no call
        of their steps waits any more (FR-132)."""
        ctx = self.ctx
        steps = [(step.event, await self._carry_out(step)) for step in answered_steps(ctx, self.agent.name)]
        if reopened is not None:
            newest = await self._rerun(reopened)
            steps = [*(s for s in steps if s[0] is not reopened), (reopened, newest)]
        return await self._finish(steps)

    async def _finish(self, steps: Sequence[tuple[Event, Event | None]]) -> Next:
        """What follows when something of these steps has been answered. Each comes with its newest responses."""
        events = self.ctx.session.events
        if self.ctx.scope.ended:
            return "ended"
        self.waiting |= any(waits_outside(events, asked) for asked, _ in steps)
        if any(step_waits(events, asked) for asked, _ in steps):
            return "paused"
        result: Next = "again"
        for asked, newest in steps:
            then = await self._after_tools(whole_step(events, asked, newest))
            result = then if then != "again" else result
        return result

    async def _carry_out(self, step: AnsweredStep) -> Event | None:
        """Carry out what a human has decided on. In a run that died a call may have been carried out already: then as DESIGN
        section 7 says."""
        again = step.ready
        if self.ctx.scope.resumed:
            again = [c for c in again if self._idempotent(c) or _declined(step.replies[c.id])]
        done = await run_calls(self.ctx, self.agent, self.box, again, step.replies)
        begun = {c.id for c in again if c.name in self.box.by_name and self.box.by_name[c.name].long_running}
        lost = [c for c in step.lost if not isinstance(self.box.by_name.get(c.name), Delegate)]
        place = {c.id: n for n, c in enumerate(step.event.calls)}
        due = sorted([*step.ready, *lost], key=lambda c: place[c.id])
        event = _complete(self.ctx, done, due, begun)
        if event is not None and (step.waits or all(r.response == BEGUN for r in event.responses)):
            event.actions.skip_summarization = True  # nothing follows now
        return (await self._commit(step.event, done._replace(event=event)))[0]

    def _idempotent(self, call: FunctionCall) -> bool:
        tool = self.box.by_name.get(call.name)
        return tool is not None and tool.idempotent

    async def _commit(self, asked: Event, done: Done) -> tuple[Event | None, bool]:
        """Emit the responses of a step, then what its calls ask a human (statement 80); whether they ask something."""
        if done.event is None:
            return None, False
        event = await self.ctx.emit(done.event)
        confirmations = event.actions.requested_tool_confirmations
        if not confirmations and not done.questions:
            return event, False
        requests = request_events(self.ctx, asked, confirmations, done.questions)
        for request in requests:
            await self.ctx.emit(request)
        return event, bool(requests)

    async def _go_on(self) -> Next:
        """End what a run that died had begun (DESIGN section 7): what the newest event of this turn asks for."""
        ctx = self.ctx
        events = ctx.session.events
        last = newest_event(events, ctx.scope.id, self.agent.name, ctx.isolation_scope)
        if last is None:
            return "again"
        if last.author == "user":
            return await self._answered(None)
        unasked = unasked_step(events, last)
        if (
            unasked is not None
        ):  # a call that may not have been the model's must not come before a human: it is made anew
            lost = [c for c in unasked.calls if c.id in last.actions.requested_tool_confirmations]
            event = _complete(ctx, NOTHING_DONE, lost, ())
            return await self._finish([(unasked, (await self._commit(unasked, NOTHING_DONE._replace(event=event)))[0])])
        if has_open(ctx, self.agent.name):
            return "paused"
        if last.responses:
            return await self._after_tools(last)
        if last.calls:
            return await self._finish([(last, await self._rerun(last))])
        return self._after_text(last) if last.content is not None else "again"

    async def _rerun(self, asked: Event) -> Event | None:
        """Give the calls of `asked` their responses: those that may run again do, the others are told as interrupted. In a run
        that did not die, delegations that nobody reopened stay open; and so does what waits for a human."""
        ctx, tools = self.ctx, self.box.by_name
        events, reopened = ctx.session.events, ctx.scope.reopened
        answered, told = answered_ids(events, asked), told_ids(events, asked)
        left = [c for c in asked.calls if c.id not in asked.long_running_tool_ids and c.id not in answered]
        replies = replies_to(ctx, asked) if told else {}
        left = [c for c in left if c.id in reopened or c.id not in told or c.id in replies]
        if not ctx.goes_on:
            left = [c for c in left if c.id in reopened or not isinstance(tools.get(c.name), Delegate)]
        reopened.difference_update(c.id for c in asked.calls)
        again = [c for c in left if self._idempotent(c)]
        done = await run_calls(ctx, self.agent, self.box, again, replies)
        if ctx.goes_on:
            done = _without_requests(done)
        return (await self._commit(asked, done._replace(event=_complete(ctx, done, left, ()))))[0]

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
        if self.bound.output is not None:
            if not self.closing and not call.early and self._misfit(response):
                return "again"
            response = self._typed(response)
        event = call.event(response)
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
        done = await run_calls(self.ctx, self.agent, self.box, event.calls)
        self.waiting |= _waits(event, done.event)
        self.pending = _open(event, done.event)
        answered, asks = await self._commit(event, done)
        if asks:
            return "ended" if self.ctx.scope.ended else "paused"
        if answered is None:
            return "paused" if self.pending else self._end()
        return await self._after_tools(answered)

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


def _declined(reply: Reply) -> bool:
    return reply.confirmation is not None and not reply.confirmation.confirmed


def _without_requests(done: Done) -> Done:
    """Calls of a run that died which now want to ask a human are told as interrupted: the model makes them anew, and then they
    are asked about. A stored call may have come from outside, and nobody is to be asked about that."""
    event = done.event
    wanted = event.actions.requested_tool_confirmations if event is not None else {}
    asks = {*wanted, *done.questions}
    if event is None or not asks:
        return done
    actions = structs.replace(event.actions, requested_tool_confirmations={}, skip_summarization=False)
    parts = event.content.parts if event.content is not None else []
    kept = [p for p in parts if p.function_response is None or p.function_response.id not in asks]
    return Done(structs.replace(event, content=Content(role="user", parts=kept), actions=actions), {}, done.waits)


def _complete(ctx: RunContext, done: Done, calls: Sequence[FunctionCall], begun: Container[str]) -> Event | None:
    """The event of a step with a response for each of `calls`, but for those that go on later: what has none is reported as
    begun, or as interrupted."""
    event = done.event
    responses = {r.id: r for r in (event.responses if event is not None else ())}
    parts: list[Part] = []
    for call in calls:
        response = responses.get(call.id)
        if response is None and call.id in done.waits:
            continue
        if response is None and call.id in begun:
            response = FunctionResponse(id=call.id, name=call.name, response=dict(BEGUN))
        parts.append(Part(function_response=response or interrupted_response(call)))
    if not parts:
        return event
    content = Content(role="user", parts=parts)
    return structs.replace(event, content=content) if event is not None else ctx.event(content=content)


def _open(asked: Event, answered: Event | None) -> bool:
    """Whether a call of the event is neither answered nor long-running: another agent goes on with it later."""
    done = {r.id for r in answered.responses} if answered is not None else set[str]()
    return any(c.id not in done and c.id not in asked.long_running_tool_ids for c in asked.calls)


def _waits(asked: Event, answered: Event | None) -> bool:
    """Whether a call of the event waits for somebody outside: it is long-running, and has not failed."""
    failed = {r.id for r in answered.responses if "error" in (r.response or {})} if answered is not None else set[str]()
    return any(id not in failed for id in asked.long_running_tool_ids)
