"""The methods that run the agent and stream its events as lines of JSON (spec rest 6.3, 6.4).

`async_stream_query` (and `stream_query`, the same for callers that do not await) gives partial and whole events. In
`streaming_agent_run_with_events` each text comes once, for its readers would show it twice. A run is attached: a caller that
hangs up cancels it.
"""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from polyport import codec
from polyport.data.content import Content, user_text
from polyport.data.event import Event
from polyport.data.run import RunConfig, RunOutcome, RunRequest
from polyport.data.session import SessionKey
from polyport.engine.imports import imported
from polyport.errors import BadRequest, Conflict, NotFound, describe
from polyport.ports.runs import Run
from polyport.protocols.agent_engine.methods import ApiMode, Call, Lines, Method, schema
from polyport.protocols.streaming import attached_run
from polyport.wire.adk import clean_message
from polyport.wire.agent_engine import AgentRunInput, QueryInput, RequestJson, error_line, event_shape, line

EXTERNAL = "__external_session_id"
"""The key of session state that keeps the name by which the caller knows the session."""
_NAMES = uuid.UUID("5a5c2d0f-3f0e-5c36-9d0b-0f5c7b1f5a11")

Spell = Callable[[Event], dict[str, Any]]


@asynccontextmanager
async def stream_query(call: Call) -> AsyncGenerator[Lines]:
    """Run the agent on a session that is made when there is none. Lines are events; when the caller gave no session id, each
    says it in `custom_metadata.session_id` (FR-228)."""
    asked = call.read(QueryInput)
    user = await call.act_as(asked.user_id)
    message = _message(asked.message)
    key = call.key(user, asked.session_id or call.engine.seams.new_id())
    if asked.session_events:
        await _seed(call, key, asked.session_events, "session_events")

    def told(event: Event) -> dict[str, Any]:
        shape = event_shape(event)
        shape["custom_metadata"] = {**shape.get("custom_metadata", {}), "session_id": key.id}
        return shape

    async with _run(call, key, message, streaming=True) as run:
        yield Lines(key.id, _lines(run, event_shape if asked.session_id else told))


@asynccontextmanager
async def agent_run(call: Call) -> AsyncGenerator[Lines]:
    """Run the agent on the session that the caller names by its id, or by a name from outside, which gets a session of its
    own at first use. Lines are `{"events", "session_id"}`."""
    asked = codec.decode(_json(call), AgentRunInput, unknown="drop")
    if asked.session_id and not asked.user_id:
        raise BadRequest("user_id is required for backend session handling", "user_id")
    user = await call.act_as(asked.user_id)
    message = _message(asked.message)
    key = await _backend_session(call, user, asked.session_id, asked.events)

    def spell(event: Event) -> dict[str, Any]:
        return {"events": [event_shape(event)], "session_id": key.id}

    async with _run(call, key, message, streaming=False) as run:
        yield Lines(key.id, _lines(run, spell))


def _json(call: Call) -> str:
    text = call.read(RequestJson).request_json
    if not text.strip():
        raise BadRequest("request_json is required: a string that holds JSON", "request_json")
    codec.check_depth(text.encode("utf-8", "replace"), call.engine.limits.json_depth)
    return text


def _message(given: Content | str | None) -> Content:
    if isinstance(given, str):
        given = user_text(given) if given else None
    if given is None or not given.parts:
        raise BadRequest("message is required: text, or {role, parts} with parts", "message")
    return clean_message(given)


# ---- sessions


async def _backend_session(call: Call, user: str, given: str, events: Sequence[Event]) -> SessionKey:
    """The session of this id, or the one that belongs to this name from outside (spec rest 6.4). The id of the latter follows
    from the name, so that a name always leads to one session, also when two calls come at once. Only "there is none" leads to a
    new session; a store that fails is an error."""
    sessions = call.engine.runs.stores.sessions
    if not given:
        key = call.key(user, call.engine.seams.new_id())
        if events:
            await _seed(call, key, events, "events")
        return key
    named = call.key(user, given)
    try:
        await sessions.get(named, recent=0)
        return named
    except NotFound:
        pass
    place = codec.encode([call.engine.app, user, given]).decode()
    key = call.key(user, str(uuid.uuid5(_NAMES, place)))
    with suppress(Conflict):  # it was made by an earlier call; `events` are its history as it was then
        await sessions.create(*key, state={EXTERNAL: given}, events=imported(events, "events") or None)
    return key


async def _seed(call: Call, key: SessionKey, events: Sequence[Event], name: str) -> None:
    """Make the session with a history. Conflict if there is one with this id."""
    await call.engine.runs.stores.sessions.create(*key, events=imported(events, name))


# ---- the run


@asynccontextmanager
async def _run(call: Call, key: SessionKey, message: Content, *, streaming: bool) -> AsyncGenerator[Run]:
    request = RunRequest(key=key, message=message, create_session=True, config=RunConfig(streaming=streaming))
    run = await attached_run(call.request, call.engine.runs, request)
    call.request.run_id = run.id
    async with run.watching():
        yield run


async def _lines(run: Run, spell: Spell) -> AsyncIterator[bytes]:
    """The events that have content; a last line says what went wrong, if anything did. A run of which nothing could be shown
    never ends in silence (FR-227)."""
    shown, trouble = False, ""
    async with aclosing(run.follow()) as batches:
        async for items in batches:
            events = [item.event for item in items]
            lines = [line(spell(event)) for event in events if event.content is not None]
            trouble = next((_trouble(e) for e in reversed(events) if e.error_code or e.error_message), trouble)
            if lines:
                shown = True
                yield b"".join(lines)
    problem = _problem(await run.wait()) or ("" if shown else trouble)
    if problem:
        yield error_line(problem)


def _problem(outcome: RunOutcome) -> str:
    """Why a run did not do what it was asked, or ""."""
    if outcome.status == "cancelled":
        return f"the run was cancelled: {outcome.reason}"
    return describe(outcome.error)["message"] if outcome.error is not None else ""


def _trouble(event: Event) -> str:
    return f"{event.error_code}: {event.error_message}".strip(": ")


_TEXT: dict[str, Any] = {"type": "string"}
_QUERY = schema(
    ("message", "user_id"),
    message={"anyOf": [_TEXT, {"type": "object", "additionalProperties": True}]},
    user_id=_TEXT,
    session_id={"type": "string", "nullable": True},
    session_events={"type": "array", "items": {"type": "object"}, "nullable": True},
)


def _query_method(name: str, api_mode: ApiMode) -> Method:
    text = "Asks the agent, and streams the events of its answer, partial ones too."
    return Method(name=name, api_mode=api_mode, description=text, parameters=_QUERY, stream=stream_query)


STREAM_METHODS: tuple[Method, ...] = (
    _query_method("async_stream_query", "async_stream"),
    Method(
        name="streaming_agent_run_with_events",
        api_mode="async_stream",
        description="Asks the agent by a JSON text with user_id, session_id and message, and streams its whole events.",
        parameters=schema(("request_json",), request_json=_TEXT),
        stream=agent_run,
    ),
    _query_method("stream_query", "stream"),
)
