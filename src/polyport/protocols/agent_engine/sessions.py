"""The session methods: create, get, list, delete (spec rest 6.3). They never touch an agent.

Each has a name for callers that await, and the one that google-adk uses for those that do not; both do the same.
"""

from typing import Any

from polyport.errors import BadRequest
from polyport.protocols.agent_engine.methods import ApiMode, Call, Method, Unary, schema
from polyport.wire.agent_engine import CreateInput, SessionInput, UserInput, session_shape

_TEXT: dict[str, Any] = {"type": "string"}


async def create_session(call: Call) -> dict[str, Any]:
    """A new session, with the id that the caller wants, if any. Conflict when there is one with this id."""
    asked = call.read(CreateInput)
    key = call.key(await call.act_as(asked.user_id), asked.session_id)
    await call.request.change_state(key.app, asked.state or ())
    session = await call.engine.runs.stores.sessions.create(key.app, key.user, key.id, state=asked.state)
    return session_shape(session, call.engine.id)


async def get_session(call: Call) -> dict[str, Any]:
    """The session with its events; NotFound if there is none."""
    asked = call.read(SessionInput)
    key = call.key(await call.act_as(asked.user_id), _needed(asked.session_id))
    return session_shape(await call.engine.runs.stores.sessions.get(key), call.engine.id)


async def list_sessions(call: Call) -> dict[str, Any]:
    """The sessions of a user, newest first, without events."""
    user = await call.act_as(call.read(UserInput).user_id)
    page = await call.engine.runs.stores.sessions.list(call.engine.app, user)
    return {"sessions": [session_shape(session, call.engine.id) for session in page.sessions]}


async def delete_session(call: Call) -> str:
    """Silent if there is none."""
    asked = call.read(SessionInput)
    key = call.key(await call.act_as(asked.user_id), _needed(asked.session_id))
    await call.engine.runs.stores.sessions.delete(key)
    return ""


def _needed(session_id: str) -> str:
    if not session_id:
        raise BadRequest("session_id is required", "session_id")
    return session_id


_ONE = schema(("user_id", "session_id"), user_id=_TEXT, session_id=_TEXT)
_CREATE = schema(
    ("user_id",),
    user_id=_TEXT,
    session_id={"type": "string", "nullable": True},
    state={"type": "object", "nullable": True},
)
_KINDS: tuple[tuple[str, str, dict[str, Any], Unary], ...] = (
    ("create_session", "Makes a session of a user, with a state to begin with.", _CREATE, create_session),
    ("get_session", "Gives a session of a user, with its events.", _ONE, get_session),
    (
        "list_sessions",
        "Lists the sessions of a user, newest first.",
        schema(("user_id",), user_id=_TEXT),
        list_sessions,
    ),
    ("delete_session", "Deletes a session of a user, with its events.", _ONE, delete_session),
)


def _methods(prefix: str, api_mode: ApiMode) -> list[Method]:
    return [
        Method(name=prefix + name, api_mode=api_mode, description=text, parameters=parameters, unary=handle)
        for name, text, parameters, handle in _KINDS
    ]


SESSION_METHODS: tuple[Method, ...] = (*_methods("async_", "async"), *_methods("", ""))
