"""What a live model says, as events of the run (spec core 2.4, 11.44).

Used by the live loop and its tools. Pieces are published as they come; a whole text or utterance becomes one stored event.
Sound is published and not stored. Whatever comes in the middle of an utterance is stored after it, in the order in which it
came: the history reads as it was spoken.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio
from msgspec import structs

from polyport.data.content import Blob, Content, FunctionCall, Part
from polyport.data.event import NO_ACTIONS, Event, new_actions
from polyport.data.live import LiveMessage
from polyport.data.model import ModelResponse, Transcription, Usage
from polyport.engine.hooks import first
from polyport.engine.live_recording import Recording
from polyport.engine.output import remember
from polyport.engine.spec import LlmSpec
from polyport.ports.agent import CallbackContext, RunContext

CLOSING_S = 5.0
"""How long what was said last may take to be stored when the session is broken off."""


class Utterance:
    """Something that is being said: one direction's transcription, or a text. `done` when nothing will be added."""

    __slots__ = ("done", "heard", "id", "parts", "text")

    def __init__(self, id: str, heard: bool | None) -> None:
        self.id = id
        self.heard = heard
        """Whether the user is heard, or the model; None for what the model writes."""
        self.done = False
        self.text = ""
        self.parts: list[Part] = []

    def add(self, part: Part) -> None:
        """Written text grows; a thought and an answer are kept apart, and so is all else."""
        last = self.parts[-1] if self.parts else None
        grows = last is not None and last.text is not None and part.text is not None and last.thought == part.thought
        if last is not None and grows and not last.thought_signature:
            joined = (last.text or "") + (part.text or "")
            self.parts[-1] = structs.replace(part, text=joined)
        else:
            self.parts.append(part)

    def response(self) -> ModelResponse | None:
        """The whole of it; None when it says nothing."""
        if self.heard is None:
            said = [p for p in self.parts if p.text != ""]
            return ModelResponse(content=Content(role="model", parts=said)) if said else None
        if not self.text.strip():
            return None
        content = Content(role="user" if self.heard else "model", parts=[Part(text=self.text)])
        spoken = Transcription(text=self.text, finished=True)
        if self.heard:
            return ModelResponse(content=content, input_transcription=spoken)
        return ModelResponse(content=content, output_transcription=spoken)


class LiveEvents:
    """The events of one agent in a live session. `take` may be called by one task, `put` by any."""

    def __init__(self, ctx: RunContext, agent: LlmSpec) -> None:
        self._ctx = ctx
        self._agent = agent
        self._queue: deque[Utterance | Event] = deque()
        self._open: dict[bool | None, Utterance] = {}
        self._usage: Usage | None = None
        live = ctx.scope.live
        assert live is not None
        self._show = live.show
        self.recording = Recording(ctx, live.source.config.save_blobs)
        self._watched = "after_model" in ctx.scope.hooks or bool(agent.after_model)
        self.lock = anyio.Lock()
        """Held while something is stored; whoever stores something else in between holds it, too."""
        self.actions = new_actions()
        """What callbacks wrote since the last stored event of the model."""

    @property
    def quiet(self) -> bool:
        """Whether nobody is in the middle of saying something."""
        return not self._open

    async def cut_off(self) -> bool:
        """What is being said now will not be ended by who says it; whether that is the model."""
        speaking = None in self._open or False in self._open
        await self._end(*list(self._open))
        return speaking

    async def take(self, message: LiveMessage) -> None:
        """Make events of all but the calls of a message."""
        if message.usage_metadata is not None:
            await self._tell_usage()
            self._usage = message.usage_metadata
        if message.input_transcription is not None:
            await self._hear(message.input_transcription, True)
        if message.output_transcription is not None:
            await self._hear(message.output_transcription, False)
        if message.content is not None:
            await self._say(message.content)
        if message.interrupted:
            await self._end(None, False)
            await self._ctx.emit(self._ctx.event(interrupted=True))
        if message.turn_complete or message.error_code:
            await self._end(*list(self._open))
            await self.put(self._closing(message))
            await self._keep_sound()

    async def calls(self, calls: Sequence[FunctionCall], long_running: Sequence[str]) -> Event:
        """The event with calls of the model, whose ids are those of our own; it is stored, or waits for its turn."""
        await self._end(None)
        parts = [Part(function_call=call) for call in calls]
        event = self._ctx.event(content=Content(role="model", parts=parts), long_running_tool_ids=list(long_running))
        event = structs.replace(event, actions=self._written())
        await self.put(event)
        return event

    async def put(self, *events: Event) -> None:
        """Store events, behind what is being said now."""
        self._queue.extend(events)
        await self._store()

    async def record(self, side: str, blob: Blob) -> None:
        """Keep sound, if that is asked for."""
        event = await self.recording.take(side, blob)
        if event is not None:
            await self.put(event)

    async def close(self) -> None:
        """Store what was said so far, also when the run is being cancelled."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSING_S):
            await self._end(*list(self._open))
            await self._keep_sound()
            await self._tell_usage()

    async def _tell_usage(self) -> None:
        """Store the usage that no end of a turn has told of."""
        usage, self._usage = self._usage, None
        if usage is not None:
            await self.put(self._ctx.event(usage_metadata=usage))

    async def _keep_sound(self) -> None:
        event = await self.recording.flush()
        if event is not None:
            await self.put(event)

    # -- pieces

    async def _hear(self, spoken: Transcription, heard: bool) -> None:
        if spoken.text:
            now = self._utterance(heard)
            now.text += spoken.text
            piece = Transcription(text=spoken.text)
            if heard:
                await self._piece(ModelResponse(input_transcription=piece, partial=True), now, author="user")
            else:
                await self._piece(ModelResponse(output_transcription=piece, partial=True), now)
        if spoken.finished:
            await self._end(heard)

    async def _say(self, content: Content) -> None:
        blobs = [p for p in content.parts if p.inline_data is not None]
        rest = [p for p in content.parts if p.inline_data is None and p.function_call is None and not p.empty]
        if rest:
            now = self._utterance(None)
            for part in rest:
                now.add(part)
            await self._piece(ModelResponse(content=Content(role="model", parts=rest), partial=True), now)
        if blobs:
            shown = await self._after(ModelResponse(content=Content(role="model", parts=blobs)))
            await self._show(structs.replace(self._event(shown), actions=NO_ACTIONS))
            for part in blobs:
                if part.inline_data is not None:
                    await self.record("model", part.inline_data)

    async def _piece(self, response: ModelResponse, now: Utterance, author: str = "") -> None:
        event = self._event(response if now.heard else await self._after(response))
        await self._ctx.emit(
            structs.replace(event, id=now.id, author=author or event.author, partial=True, actions=NO_ACTIONS)
        )

    def _utterance(self, heard: bool | None) -> Utterance:
        """The one that is being said in this direction; a new one takes its place in the order."""
        now = self._open.get(heard)
        if now is None:
            now = self._open[heard] = Utterance(self._ctx.scope.seams.new_id(), heard)
            self._queue.append(now)
        return now

    # -- wholes

    async def _end(self, *which: bool | None) -> None:
        for heard in which:
            now = self._open.pop(heard, None)
            if now is not None:
                now.done = True
        await self._store()

    async def _store(self) -> None:
        """Store what is at the head of the queue and not being said any more."""
        async with self.lock:
            while self._queue:
                head = self._queue[0]
                if isinstance(head, Utterance):
                    if not head.done:
                        return
                    self._queue.popleft()
                    response = head.response()
                    if response is not None:
                        await self._ctx.emit(await self._whole(head, response))
                else:
                    self._queue.popleft()
                    await self._ctx.emit(head)

    async def _whole(self, said: Utterance, response: ModelResponse) -> Event:
        if said.heard:
            return structs.replace(self._event(response), id=said.id, author="user")
        event = structs.replace(self._event(await self._after(response)), id=said.id, actions=self._written())
        return remember(self._agent, event, None)

    def whole(self, response: ModelResponse) -> Event:
        """The event of an answer that came from a callback."""
        event = structs.replace(self._event(response), partial=False, actions=self._written())
        return remember(self._agent, event, None)

    def _closing(self, message: LiveMessage) -> Event:
        """The event that ends a turn of the model, or tells that it failed."""
        usage, self._usage = self._usage, None
        return self._ctx.event(
            turn_complete=message.turn_complete,
            usage_metadata=usage,
            grounding_metadata=message.grounding_metadata,
            finish_reason=message.finish_reason,
            error_code=message.error_code,
            error_message=message.error_message,
            model_version=message.model_version,
            custom_metadata=message.custom_metadata,
            actions=self._written(),
        )

    async def _after(self, response: ModelResponse) -> ModelResponse:
        if not self._watched:
            return response
        ctx = self._ctx
        callback = CallbackContext(ctx, self.actions)
        replaced: ModelResponse | None = await first(
            ctx.scope.hooks, "after_model", self._agent.after_model, callback, response
        )
        return response if replaced is None else replaced

    def _event(self, response: ModelResponse) -> Event:
        fields: dict[str, Any] = {name: getattr(response, name) for name in response.__struct_fields__}
        return self._ctx.event(**fields)

    def _written(self) -> Any:
        actions, self.actions = self.actions, new_actions()
        return actions
