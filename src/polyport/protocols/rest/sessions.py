"""Sessions over REST: create, get, list, patch, delete (spec rest 1.2, 1.4, 1.5, TARGET lines).

Called by the host. What may be stored is decided by the stores' rules; here is what only a caller from outside may not do.
"""

import math
import re
from typing import Any, cast

from msgspec import structs

from polyport.data.event import Event, new_actions
from polyport.data.limits import Limits
from polyport.data.session import APP, TEMP, USER, Session, SessionKey
from polyport.engine.imports import check_name, check_session_id, imported
from polyport.errors import BadRequest, Superseded
from polyport.ports.stores import SessionStore
from polyport.protocols.answers import send_empty, send_json
from polyport.protocols.http import Header, Request, Send
from polyport.protocols.rest.openapi import Query
from polyport.protocols.routes import Route
from polyport.seams import Seams
from polyport.wire.adk import PatchBody, SessionBody, SessionShape, session_shape

MAX_EVENTS, MAX_PAGE = 1_000_000, 1000

_SCOPED = (APP, USER, TEMP)
_BASE = "/apps/{app}/users/{user}/sessions"
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_EVENTS: tuple[Query, ...] = (
    (
        "num_recent_events",
        {"type": "integer", "minimum": 0, "maximum": MAX_EVENTS, "description": "Only so many of the newest events"},
    ),
    ("after_timestamp", {"type": "number", "description": "Only events at or after this time, in epoch seconds"}),
)
_PAGES: tuple[Query, ...] = (
    ("page_size", {"type": "integer", "minimum": 0, "maximum": MAX_PAGE, "description": "0 is all in one page"}),
    ("page_token", {"type": "string", "description": "The X-Next-Page-Token header of the page before"}),
)


class Sessions:
    def __init__(self, store: SessionStore, limits: Limits, seams: Seams) -> None:
        self._store = store
        self._limits = limits
        self._seams = seams

    def routes(self) -> list[Route]:
        one, shape, optional = _BASE + "/{session}", SessionShape, SessionBody | None
        return [
            Route(
                "GET",
                _BASE,
                self.list,
                summary="The sessions of a user, newest first, without events",
                returns=list[SessionShape],
                query=_PAGES,
            ),
            Route("POST", _BASE, self.create, summary="Make a session", body=optional, returns=shape),
            Route("POST", one, self.create, summary="Make a session with this id", body=optional, returns=shape),
            Route("GET", one, self.get, summary="A session with its events", returns=shape, query=_EVENTS),
            Route("PATCH", one, self.patch, summary="Change session state", body=PatchBody, returns=shape),
            Route("DELETE", one, self.delete, summary="Delete a session"),
        ]

    async def create(self, request: Request, send: Send) -> None:
        """Events are imported in order with their ids, times and state deltas, all or nothing; partial ones are left out,
        for they are never stored. What they ask a human can never be carried out, unless it was sealed with a secret. 409 if
        the id exists."""
        body = await request.json(SessionBody, unknown="drop", empty=SessionBody())
        app, user, named = request.params["app"], request.params["user"], request.params.get("session", "")
        session_id = named or body.session_id or ""
        if named and body.session_id and body.session_id != named:
            raise BadRequest(f"sessionId is {body.session_id!r}, but the path names {named!r}", "sessionId")
        _check_new(app, user, session_id)
        await request.change_state(app, body.state or ())
        events = imported(body.events, "events") if body.events is not None else None
        session = await self._store.create(app, user, session_id, state=body.state, events=events)
        await send_json(send, session_shape(session))

    async def get(self, request: Request, send: Send) -> None:
        """`?num_recent_events=N` and `?after_timestamp=T` (epoch seconds) limit the events."""
        recent = request.query_int("num_recent_events", 0, MAX_EVENTS)
        after = request.query_text("after_timestamp")
        since = float(after) if _NUMBER.fullmatch(after) else math.nan
        if after and not math.isfinite(since):
            raise BadRequest("after_timestamp parameter must be a number of seconds", "after_timestamp")
        key = session_key(request)
        await send_json(send, session_shape(await self._store.get(key, recent=recent, after=since if after else None)))

    async def list(self, request: Request, send: Send) -> None:
        """`?page_size=N` gives pages; the token of the next one is in the header `X-Next-Page-Token`, which the last page
        does not have."""
        size = request.query_int("page_size", 0, MAX_PAGE) or 0
        token = request.query_text("page_token")
        page = await self._store.list(request.params["app"], request.params["user"], page_size=size, page_token=token)
        headers: list[Header] = [(b"x-next-page-token", page.next_token.encode())] if page.next_token else []
        await send_json(send, [session_shape(s) for s in page.sessions], headers=headers)

    async def patch(self, request: Request, send: Send) -> None:
        """Change state that belongs to this session, as one more event by the user. Shared keys (`app:`, `user:`, `temp:`)
        that a client only echoes are ignored; changing one is 400."""
        body = await request.json(PatchBody, unknown="drop")
        key = session_key(request)
        for attempt in range(3):
            session = await self._store.get(key, recent=0)
            delta = _own_changes(session, body.state_delta or {})
            if not delta:
                break
            try:
                await self._store.append(session, self._event(delta))
                break
            except Superseded:  # a run started in this moment; read again
                if attempt == 2:
                    raise
        await send_json(send, session_shape(await self._store.get(key)))

    def _event(self, delta: dict[str, Any]) -> Event:
        return Event(
            id=self._seams.new_id(),
            timestamp=self._seams.now(),
            invocation_id="p-" + self._seams.new_id(),
            author="user",
            actions=structs.replace(new_actions(), state_delta=delta),
        )

    async def delete(self, request: Request, send: Send) -> None:
        """Also 200 if there is none. State that the user's other sessions share stays."""
        await self._store.delete(session_key(request))
        await send_empty(send)


def session_key(request: Request) -> SessionKey:
    """The session that a path names."""
    return SessionKey(request.params["app"], request.params["user"], request.params["session"])


def _check_new(app: str, user: str, session_id: str) -> None:
    """BadRequest for a name that no new session may have."""
    check_name("app", app)
    check_name("user", user)
    check_session_id("sessionId", session_id)


def _own_changes(session: Session, delta: dict[str, Any]) -> dict[str, Any]:
    """The part of a patch that changes this session. BadRequest for a changed key that is shared or temporary."""
    own: dict[str, Any] = {}
    for name, value in delta.items():
        if not name.startswith(_SCOPED):
            own[name] = value
        elif name not in session.state or not _same(session.state[name], value):
            where = f"stateDelta.{name}"
            raise BadRequest(f"stateDelta may not change {name!r}: only keys of this session, without a prefix", where)
    return own


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal to a client that has one kind of number and no order of keys (a browser)."""
    if isinstance(one, dict) and isinstance(other, dict):
        mine, theirs = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return mine.keys() == theirs.keys() and all(_same(value, theirs[key]) for key, value in mine.items())
    if isinstance(one, list) and isinstance(other, list):
        ours, given = cast("list[Any]", one), cast("list[Any]", other)
        return len(ours) == len(given) and all(map(_same, ours, given))
    return isinstance(one, bool) == isinstance(other, bool) and one == other
