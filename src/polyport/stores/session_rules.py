"""What every session store does in the same way: names, stored events, state, pages (spec core 5.1, 5.2).

Called by the session stores of this package, and meant for those of others. Pure functions; never does I/O.
"""

import base64
import binascii
import unicodedata
from collections.abc import Iterable
from datetime import UTC
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from polyport.codec import encode, json_safe, own
from polyport.data.event import Event
from polyport.data.session import TEMP, Session, SessionKey, StateDelta, split_delta
from polyport.errors import BadRequest
from polyport.seams import Seams


def check_part(name: str, value: str) -> None:
    """BadRequest unless `value` can be kept by every store: text that has a UTF-8 form, without control characters."""
    if value.isprintable():
        return
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in value):
        raise BadRequest(f"the {name} holds a control character or half a character pair", name)


def check_key(app: str, user: str, session_id: str | None = None) -> None:
    """BadRequest naming, in order, each part that is empty or unfit. A session id of None is not asked for."""
    if app and user and session_id != "" and f"{app}{user}{session_id}".isprintable():
        return  # as nearly always
    parts = {"app": app, "user": user} if session_id is None else {"app": app, "user": user, "session id": session_id}
    missing = [name for name, value in parts.items() if not value]
    if missing:
        raise BadRequest(f"required, but empty: {', '.join(missing)}", missing[0])
    for name, value in parts.items():
        check_part(name, value)


def new_session(
    seams: Seams, app: str, user: str, session_id: str, state: dict[str, Any] | None, events: Iterable[Event] | None
) -> tuple[SessionKey, StateDelta, list[Event]]:
    """What a new session consists of: its key (a blank id is generated), all its state by scope with the deltas of
    `events` applied in order, and the events as stored."""
    check_key(app, user)
    check_part("session id", session_id)
    key = SessionKey(app, user, session_id or seams.new_id())
    stored = [as_stored(event, seams) for event in events or () if not event.partial]
    merged = safe_delta(state or {})
    for event in stored:
        merged.update(event.actions.state_delta or {})
    return key, split_delta(merged), stored


def safe_delta(delta: dict[str, Any]) -> dict[str, Any]:
    """`delta` as plain JSON data of its own, without `temp:` keys. BadRequest naming the key that has no JSON form."""
    return {
        key: value if type(value) is str and value.isascii() else json_safe(value, f"state key {key!r}")
        for key, value in delta.items()
        if not key.startswith(TEMP)
    }


def as_stored(event: Event, seams: Seams) -> Event:
    """The event as every store keeps it: with id and time, without `temp:` keys, its actions no longer shared with
    the caller, who may go on to change them. The given event is left alone."""
    actions = event.actions
    given = actions.state_delta
    at = event.timestamp or seams.now()
    return structs.replace(
        event,
        id=event.id or seams.new_id(),
        timestamp=at if at.tzinfo is not None else at.replace(tzinfo=UTC),
        output=None if event.output is None else json_safe(event.output, "output"),
        custom_metadata=None if event.custom_metadata is None else json_safe(event.custom_metadata, "custom metadata"),
        actions=structs.replace(
            actions,
            state_delta=safe_delta(given) if given else given if given is None else {},
            artifact_delta=None if actions.artifact_delta is None else dict(actions.artifact_delta),
            requested_tool_confirmations=dict(actions.requested_tool_confirmations),
        ),
    )


def owned(state: dict[str, Any]) -> dict[str, Any]:
    """A state whose values the reader may change."""
    return {key: value if type(value) is str else own(value) for key, value in state.items()}


def took_in(session: Session, given: Event, stored: Event, *, at: float, fence: int) -> None:
    """Bring the writer's session up to date after its append.

    `revision` grows by this one write. So it stays below the stored one when somebody else wrote in between, and
    `strict` tells of that until the session is read again.
    """
    session.events.append(stored)
    delta = given.actions.state_delta
    if delta:
        session.state.update(owned(stored.actions.state_delta or {}))
        session.state.update((k, v) for k, v in delta.items() if k.startswith(TEMP))
    session.revision += 1
    session.fence = fence
    session.updated_at = max(session.updated_at, at)


def event_time(event: Event) -> float:
    """The time of a stored event in epoch seconds."""
    return event.timestamp.timestamp() if event.timestamp is not None else 0.0


def check_window(recent: int | None) -> None:
    if recent is not None and recent < 0:
        raise BadRequest("the number of recent events must be 0 or more", "recent")


def window(events: list[Event], recent: int | None, after: float | None) -> list[Event]:
    """A new list of those events at or after epoch time `after`, of those the newest `recent`."""
    if after is not None:
        events = [event for event in events if event_time(event) >= after]
    if recent is None:
        return events.copy()
    return events[-recent:] if recent else []


class Place(NamedTuple):
    """Where a session stands in a list: newest first, then by id and user. `age` is `-updated_at`."""

    age: float
    id: str
    user: str


_Token = tuple[str, str, float, str, str]


def page_token(app: str, user: str, last: Session) -> str:
    """A token for the page after `last`, bound to the question that was asked."""
    text = encode([app, user, last.updated_at, last.key.id, last.key.user])
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def page_start(app: str, user: str, page_size: int, token: str) -> Place | None:
    """The place after which the asked page begins, None for the first.

    BadRequest for a token of another question or of nobody."""
    if not app:
        raise BadRequest("required, but empty: app", "app")
    check_part("app", app)
    check_part("user", user)
    if page_size < 0:
        raise BadRequest("the page size must be 0 or more", "page_size")
    if not token:
        return None
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        asked_app, asked_user, updated_at, last_id, last_user = msgspec.json.decode(text, type=_Token)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise BadRequest("the page token is not one that this server gave", "page_token") from None
    if (asked_app, asked_user) != (app, user):
        raise BadRequest("the page token belongs to a list of another app or user", "page_token")
    return Place(-updated_at, last_id, last_user)
