"""One model call with its hooks; its pieces go out as partial events, its answer comes back as one event (spec core 3.8).

Called by the turn loop only. Counts the run's budget of calls. A piece and the answer it belongs to share the event id and
the ids of function calls, so that a client can group them (FR-068, FR-071).
"""

from msgspec import Struct, structs

from polyport.data.content import EMPTY_PART, Content, FunctionCall, Part
from polyport.data.event import NO_ACTIONS, Event, EventActions
from polyport.data.model import ModelRequest, ModelResponse
from polyport.engine.delegation import Delegate
from polyport.engine.hooks import first, wrap_model
from polyport.engine.prepare import Toolbox, run_request_hooks
from polyport.engine.scopes import call_event
from polyport.engine.spec import LlmSpec
from polyport.errors import AgentError
from polyport.ports.agent import CallbackContext, RunContext
from polyport.ports.model import Model, OnPartial

_NOTHING = (EMPTY_PART, Part(text=""))


class ModelCall(Struct):
    """The state of one call. `event()` turns an answer into the event that is committed."""

    ctx: RunContext
    agent: LlmSpec
    model: Model
    box: Toolbox
    actions: EventActions
    event_id: str = ""
    early: bool = False
    """Whether a callback answered in the model's place."""
    broken: Exception | None = None
    """What a callback or plugin raised on a piece: no error of the model, though it came through it."""
    made_ids: list[str] = []

    async def ask(self, request: ModelRequest) -> ModelResponse | None:
        """The answer after all hooks; None when it says nothing at all, or when a callback ended the run before the model was
        asked. Raises what no hook could mend."""
        scope, agent = self.ctx.scope, self.agent
        hooks = scope.hooks
        self.event_id = scope.seams.new_id()
        callback = CallbackContext(self.ctx, self.actions)
        if self.box.hooked:
            await run_request_hooks(callback, self.box, request)
        if "before_model" in hooks or agent.before_model:
            early = await first(hooks, "before_model", agent.before_model, callback, request)
            if early is not None:
                self.early = True
                return _said(early)
        if scope.ended:
            return None
        if scope.calls_left <= 0:
            raise AgentError(
                f"the run has used its budget of {scope.config.max_llm_calls} model calls (max_llm_calls); it may be "
                "going round in circles"
            )
        scope.calls_left -= 1
        generate = wrap_model(hooks, callback, self.event_id, self.model.generate)
        try:
            answer = await generate(request, self._partial(callback) if scope.config.streaming else None)
        except Exception as error:
            if self.broken is not None:
                raise self.broken from None
            mended = await first(hooks, "on_model_error", agent.on_model_error, callback, request, error)
            if mended is None:
                raise
            answer = mended
        if self.broken is not None:
            raise self.broken
        if not isinstance(answer, ModelResponse):  # pyright: ignore[reportUnnecessaryIsInstance]  models may be a user's
            raise AgentError(f"model {self.model.name!r} gave a {type(answer).__name__}, not a ModelResponse")
        return _said(await self._after(callback, answer) if self._watched else answer)

    @property
    def _watched(self) -> bool:
        return "after_model" in self.ctx.scope.hooks or bool(self.agent.after_model)

    async def _after(self, callback: CallbackContext, response: ModelResponse) -> ModelResponse:
        replaced = await first(self.ctx.scope.hooks, "after_model", self.agent.after_model, callback, response)
        return response if replaced is None else replaced

    def _partial(self, callback: CallbackContext) -> OnPartial:
        ctx = self.ctx
        seams, commit = ctx.scope.seams, ctx.scope.commit
        base = (self.event_id, ctx.scope.id, self.agent.name, ctx.branch, ctx.isolation_scope)
        watched = self._watched

        async def on_partial(piece: ModelResponse) -> None:
            try:
                await publish(await self._after(callback, piece) if watched else piece)
            except Exception as error:
                self.broken = error
                raise

        async def publish(piece: ModelResponse) -> None:
            event_id, run_id, author, branch, scope = base
            content = piece.content
            if content is not None:
                for part in content.parts:
                    if part.function_call is not None:
                        content = self._with_ids(content, preview=True)
                        break
            await commit(
                Event(
                    id=event_id,
                    timestamp=seams.now(),
                    invocation_id=run_id,
                    author=author,
                    branch=branch,
                    isolation_scope=scope,
                    content=content,
                    partial=True,
                    actions=NO_ACTIONS,
                    usage_metadata=piece.usage_metadata,
                    finish_reason=piece.finish_reason,
                    turn_complete=piece.turn_complete,
                    grounding_metadata=piece.grounding_metadata,
                )
            )

        return on_partial

    def event(self, response: ModelResponse) -> Event:
        """The final event of the answer: ids made, long-running calls listed, callbacks' writes attached."""
        ctx = self.ctx
        content = response.content
        long_running: list[str] = []
        if content is not None:
            calls = content.calls
            if calls or not content.role or EMPTY_PART in content.parts:
                content = self._with_ids(content, preview=False)
            if calls:
                tools = self.box.by_name
                long_running = [c.id for c in content.calls if c.name in tools and tools[c.name].long_running]
        return Event(
            id=self.event_id,
            timestamp=ctx.scope.seams.now(),
            invocation_id=ctx.scope.id,
            author=self.agent.name,
            branch=ctx.branch,
            isolation_scope=ctx.isolation_scope,
            content=content,
            actions=self.actions,
            long_running_tool_ids=long_running,
            usage_metadata=response.usage_metadata,
            finish_reason=response.finish_reason,
            error_code=response.error_code,
            error_message=response.error_message,
            model_version=response.model_version,
            turn_complete=response.turn_complete,
            interrupted=response.interrupted,
            grounding_metadata=response.grounding_metadata,
            citation_metadata=response.citation_metadata,
            custom_metadata=response.custom_metadata,
            logprobs_result=response.logprobs_result,
            avg_logprobs=response.avg_logprobs,
            input_transcription=response.input_transcription,
            output_transcription=response.output_transcription,
            session_resumption_handle=response.session_resumption_handle,
        )

    def _with_ids(self, content: Content, *, preview: bool) -> Content:
        """Calls without an id get one; the n-th of the answer the same as the n-th of its previews. So do calls to agents whose
        id was used before: it is to be the isolation scope."""
        parts: list[Part] = []
        used = 0
        given: set[str] = set()
        for part in content.parts:
            call = part.function_call
            if call is not None and (not call.id or self._used(call, given)):
                if preview or used >= len(self.made_ids):
                    self.made_ids.append("adk-" + self.ctx.scope.seams.new_id())
                    made = self.made_ids[-1]
                else:
                    made = self.made_ids[used]
                used += 1
                part = structs.replace(part, function_call=structs.replace(call, id=made))
            if not preview and part.empty:
                continue
            parts.append(part)
        return structs.replace(content, parts=parts, role=content.role or "model")

    def _used(self, call: FunctionCall, given: set[str]) -> bool:
        """Whether a call to an agent has an id that another call has. `given` are those of this content."""
        if not isinstance(self.box.by_name.get(call.name), Delegate):
            return False
        before = len(given)
        given.add(call.id)
        return len(given) == before or call_event(self.ctx.session.events, call.id) is not None


def _said(answer: ModelResponse) -> ModelResponse | None:
    """The answer, or None when it holds nothing (spec core 3.4.4a; also no part that means anything, FR-082)."""
    if answer.error_code or answer.interrupted:
        return answer
    content = answer.content
    for part in content.parts if content is not None else ():
        if part.text or part not in _NOTHING:
            return answer
    return None
