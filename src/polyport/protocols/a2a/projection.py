"""The events of a run as the steps of a task (spec a2a 3.2-3.5): one Projector per turn, fed with every event in order.

Used by the executor. Decides what an artifact update looks like in each output mode, what is kept back for the question at the
end, and which status a turn ends with. Pure, but for what it remembers between events; the executor writes and shows.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from msgspec import structs

from polyport.data.content import Part
from polyport.data.event import Event
from polyport.data.run import RunOutcome
from polyport.errors import ModelError, describe
from polyport.protocols.a2a.tasks import NewStatus
from polyport.wire import a2a_translate as translate
from polyport.wire.a2a import Artifact, Message, Role, TaskArtifactUpdateEvent, TaskState
from polyport.wire.a2a import Part as A2aPart

Output = Literal["artifact-per-run", "artifact-per-event"]
"""One artifact for all that a turn says, with what is streamed beside it; or one for each event, streamed into."""

ToA2aPart = Callable[[Event, Part, bool], A2aPart | None]
"""`(event, part, whether it is a pending call)` -> what the caller sees; None drops the part."""

PARTIAL = "adk_partial"
_PARTIAL: dict[str, Any] = {PARTIAL: True}
CREDENTIAL = "adk_request_credential"


def to_a2a_part(event: Event, part: Part, pending: bool) -> A2aPart | None:
    """The default converter."""
    call = part.function_call
    return translate.to_a2a_part(part, (call.id,) if pending and call is not None else ())


class Place:
    """Which task a turn works on, and how new ids are made."""

    __slots__ = ("base", "context_id", "new_id", "task_id")

    def __init__(self, task_id: str, context_id: str, base: dict[str, Any], new_id: Callable[[], str]) -> None:
        self.task_id = task_id
        self.context_id = context_id
        self.base = base
        """Metadata of every update: app, user and session."""
        self.new_id = new_id

    def message(self, parts: list[A2aPart]) -> Message:
        """A message of the agent."""
        return Message(
            message_id=self.new_id(), context_id=self.context_id, task_id=self.task_id, role=Role.AGENT, parts=parts
        )

    def update(
        self, artifact: Artifact, metadata: dict[str, Any] | None, *, append: bool, last: bool
    ) -> TaskArtifactUpdateEvent:
        return TaskArtifactUpdateEvent(
            task_id=self.task_id,
            context_id=self.context_id,
            artifact=artifact,
            append=append,
            last_chunk=last,
            metadata=metadata,
        )


class Projector:
    """One turn. `stored` and `partial` give the update for an event, None when the caller sees nothing of it."""

    def __init__(self, place: Place, output: Output, convert: ToA2aPart) -> None:
        self.place = place
        self._per_run = output == "artifact-per-run"
        self._convert = convert
        self._main = ""
        self._preview = ""
        self._open: dict[str, str] = {}
        self._pending: dict[str, list[A2aPart]] = {}
        self._names: dict[str, str] = {}
        self._question = ""
        self._error: tuple[str, str, list[A2aPart]] | None = None
        self._escalate = False
        self._transfer = ""
        self._shared: dict[tuple[str, str, str], dict[str, Any]] = {}

    # ---- events

    def stored(self, event: Event) -> TaskArtifactUpdateEvent | None:
        """The update for an event that is true."""
        self._escalate |= event.actions.escalate
        self._transfer = event.actions.transfer_to_agent or self._transfer
        if event.requested_input is not None:
            self._question = event.requested_input.message
        parts = self._parts(event)
        if (event.error_code or event.error_message) and self._error is None:
            self._error = (event.error_code or "", event.error_message or "", parts)
        if not parts:
            return None
        metadata = translate.event_metadata(event, self.place.base)
        if self._per_run:
            append = bool(self._main)
            self._main = self._main or self.place.new_id()
            artifact = Artifact(artifact_id=self._main, parts=parts)
            return self.place.update(artifact, {**metadata, PARTIAL: False}, append=append, last=False)
        id = self._open.pop(event.author, "") or self.place.new_id()
        artifact = Artifact(artifact_id=id, parts=parts, metadata=metadata)
        return self.place.update(artifact, None, append=False, last=True)

    def partial(self, event: Event) -> TaskArtifactUpdateEvent | None:
        """The update for a piece of what is being said. Calls are seen when they are whole."""
        said = event.content.parts if event.content is not None else ()
        shown = [p for p in said if p.function_call is None and p.function_response is None]
        parts = [made for p in shown if (made := self._convert(event, p, False)) is not None]
        if not parts:
            return None
        metadata = self._piece_metadata(event)
        if self._per_run:
            self._preview = self._preview or self.place.new_id()
            marked = [_marked(p) for p in parts]
            artifact = Artifact(artifact_id=self._preview, parts=marked, metadata=_PARTIAL)
            return self.place.update(artifact, metadata, append=False, last=False)
        append = event.author in self._open
        id = self._open.setdefault(event.author, "") or self.place.new_id()
        self._open[event.author] = id
        artifact = Artifact(artifact_id=id, parts=parts, metadata=metadata)
        return self.place.update(artifact, None, append=append, last=False)

    def _piece_metadata(self, event: Event) -> dict[str, Any]:
        """Metadata of a piece. Most pieces say only who speaks, and share theirs."""
        plain = (
            event.usage_metadata is event.grounding_metadata is event.citation_metadata is event.custom_metadata is None
            and not event.error_code
        )
        key = (event.invocation_id, event.author, event.branch) if plain else None
        found = self._shared.get(key) if key is not None else None
        if found is None:
            found = translate.event_metadata(event, self.place.base)
            if self._per_run:
                found[PARTIAL] = True
            if key is not None:
                self._shared[key] = found
        return found

    def _parts(self, event: Event) -> list[A2aPart]:
        """What of an event is shown at once. Long-running calls and interim answers to them are kept for the question
        (spec a2a 3.5); a call that failed is no question."""
        shown, kept = translate.split_pending(event, self._pending)
        late: list[A2aPart] = []
        for part in kept:
            made = self._convert(event, part, True)
            call, response = part.function_call, part.function_response
            if call is not None:
                self._pending[call.id] = [made] if made is not None else []
                self._names[call.id] = call.name
            elif response is not None and response.id in self._pending:
                if "error" in (response.response or {}):
                    late += self._pending.pop(response.id)
                    late += [made] if made is not None else []
                elif made is not None:
                    self._pending[response.id].append(made)
        return late + [made for p in shown if (made := self._convert(event, p, False)) is not None]

    def adopt(self, artifact_id: str) -> None:
        """Go on with an artifact that another process began."""
        self._main = artifact_id

    # ---- the end

    def reset(self) -> TaskArtifactUpdateEvent | None:
        """Tells readers to forget what was streamed beside the artifact (T089)."""
        if not self._preview:
            return None
        empty = A2aPart(data={}, metadata={PARTIAL: True})
        artifact = Artifact(artifact_id=self._preview, parts=[empty], metadata={PARTIAL: True})
        return self.place.update(artifact, {PARTIAL: True}, append=False, last=True)

    def ending(self, outcome: RunOutcome) -> NewStatus:
        """The status after a run: failed beats asking beats completed (spec a2a 3.1)."""
        if outcome.status == "failed":
            return self.failed(failure_text(outcome))
        if outcome.status == "cancelled":
            return self._status(TaskState.CANCELED, [A2aPart(text=outcome.reason)] if outcome.reason else [])
        if self._error is not None:
            code, text, parts = self._error
            return self.failed(f'llm error response{f" (code {code})" if code else ""}: "{text}"', parts)
        if self._pending or outcome.status == "paused":
            credentials = bool(self._pending) and all(self._names[id] == CREDENTIAL for id in self._pending)
            asked = [part for parts in self._pending.values() for part in parts]
            if self._question and not asked:
                asked = [A2aPart(text=self._question)]
            return self._status(TaskState.AUTH_REQUIRED if credentials else TaskState.INPUT_REQUIRED, asked)
        return self._status(TaskState.COMPLETED)

    def failed(self, text: str, parts: list[A2aPart] | None = None) -> NewStatus:
        return self._status(TaskState.FAILED, [translate.error_part(text), *(parts or [])])

    def working(self) -> NewStatus:
        return NewStatus(state=TaskState.WORKING, metadata={translate.EXTENSION: True, **self.place.base})

    def _status(self, state: TaskState, parts: list[A2aPart] | None = None) -> NewStatus:
        metadata = translate.final_metadata(self.place.base, escalate=self._escalate, transfer=self._transfer)
        message = self.place.message(parts) if parts else None
        return NewStatus(state=state, message=message, metadata=cast("dict[str, object]", metadata))


def _marked(part: A2aPart) -> A2aPart:
    if part.metadata is None and part.text is not None and not part.filename and not part.media_type:
        return A2aPart(text=part.text, metadata=_PARTIAL)  # as nearly all pieces are
    return structs.replace(part, metadata={**(part.metadata or {}), PARTIAL: True})


def failure_text(outcome: RunOutcome) -> str:
    """What a caller is told of a run that failed."""
    error = outcome.error
    if isinstance(error, ModelError):
        code: Mapping[str, Any] = describe(error)
        return f'llm error response (code {code["code"]}): "{error}"'
    return f"agent run failed: {describe(error)['message'] if error is not None else outcome.reason}"
