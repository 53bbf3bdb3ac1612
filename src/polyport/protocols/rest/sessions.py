"""Sessions over REST: create, get, list, patch, delete (spec rest 1.2, 1.4, 1.5, TARGET lines)."""

from typing import Any

from msgspec import structs

from polyport.codec import encode
from polyport.data.event import Event, new_actions
from polyport.data.limits import Limits
from polyport.data.session import APP, TEMP, USER, Session, SessionKey
from polyport.errors import BadRequest, Superseded
from polyport.ports.stores import SessionStore
from polyport.protocols.answers import send_empty, send_json
from polyport.protocols.http import Header, Request, Send
from polyport.protocols.routes import Route
from polyport.seams import Seams
from polyport.wire.adk import PatchBody, SessionBody, session_shape

_SCOPED = (APP, USER, TEMP)
_BASE = "/apps/{app}/users/{user}/sessions"


class Sessions:
    def __init__(self, store: SessionStore, limits: Limits, seams: Seams) -> None:
        self._store = store
        self._limits = limits
        self._seams = seams

    def routes(self) -> list[Route]:
        return [
            Route("GET", _BASE, self.list, summary="The sessions of a user, newest first, without events"),
            Route("POST", _BASE, self.create, summary="Make a session", body=SessionBody),
            Route("POST", _BASE + "/{session}", self.create, summary="Make a session with this id", body=SessionBody),
            Route("GET", _BASE + "/{session}", self.get, summary="A session with its events"),
            Route("PATCH", _BASE + "/{session}", self.patch, summary="Change session state", body=PatchBody),
            Route("DELETE", _BASE + "/{session}", self.delete, summary="Delete a session"),
        ]

    async def create(self, request: Request, send: Send) -> None:
        body = await request.json(SessionBody, unknown="drop", empty=SessionBody())
        session_id = request.params.get("session") or body.session_id
        for index, event in enumerate(body.events or ()):
            for key in event.actions.state_delta or ():
                if key.startswith((APP, USER)):
                    raise BadRequest(
                        f"events[{index}] may not set {key!r}: imported events cannot change state that other sessions share",
                        f"events[{index}].actions.stateDelta",
                    )
        session = await self._store.create(
            request.params["app"], request.params["user"], session_id, state=body.state, events=body.events
        )
        await send_json(send, session_shape(session))

    async def get(self, request: Request, send: Send) -> None:
        """`?num_recent_events=N` and `?after_timestamp=T` (epoch seconds) limit the events."""
        recent = request.query_int("num_recent_events", 0, 1_000_000)
        after = request.query_text("after_timestamp")
        try:
            since = float(after) if after else None
        except ValueError:
            raise BadRequest("after_timestamp parameter must be a number of seconds", "after_timestamp") from None
        await send_json(send, session_shape(await self._store.get(session_key(request), recent=recent, after=since)))

    async def list(self, request: Request, send: Send) -> None:
        """`?page_size=N` gives pages; the token of the next one is in the header `X-Next-Page-Token`."""
        size = request.query_int("page_size", 0, 1000) or 0
        token = request.query_text("page_token")
        page = await self._store.list(request.params["app"], request.params["user"], page_size=size, page_token=token)
        headers: list[Header] = [(b"x-next-page-token", page.next_token.encode())] if page.next_token else []
        await send_json(send, [session_shape(s) for s in page.sessions], headers=headers)

    async def patch(self, request: Request, send: Send) -> None:
        """Change state that belongs to this session. Shared keys that a client only echoes are ignored; changing one is
        400."""
        body = await request.json(PatchBody, unknown="drop")
        key = session_key(request)
        for attempt in range(3):
            session = await self._store.get(key)
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
        await self._store.delete(session_key(request))
        await send_empty(send)


def session_key(request: Request) -> SessionKey:
    """The session that a path names."""
    return SessionKey(request.params["app"], request.params["user"], request.params["session"])


def _own_changes(session: Session, delta: dict[str, Any]) -> dict[str, Any]:
    """The part of a patch that changes this session. BadRequest for a changed key that is shared or temporary."""
    own: dict[str, Any] = {}
    for name, value in delta.items():
        if not name.startswith(_SCOPED):
            own[name] = value
        elif name not in session.state or encode(session.state[name]) != encode(value):
            raise BadRequest(f"stateDelta may not change {name!r}: only keys of this session, without a prefix", name)
    return own
