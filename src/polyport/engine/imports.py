"""Sessions that a caller brings along: what their names and events may be (spec rest 8, statement 19; 11.8).

Called by the protocols at which sessions are made, before a store is touched. What may be stored at all is decided by the
stores' rules; here is what only a caller from outside may not do. Never touches a store.
"""

from collections.abc import Sequence

from polyport.data.event import Event
from polyport.data.session import APP
from polyport.engine.pause import disarmed
from polyport.errors import BadRequest

MAX_ID = 256
"""How many characters the app, user and id of a new session may have."""


def check_name(name: str, value: str) -> None:
    """BadRequest for a `value` that is too long for `name`: an app, a user, or the id of a session."""
    if len(value) > MAX_ID:
        raise BadRequest(f"{name} has {len(value)} characters; {MAX_ID} are allowed", name)


def check_session_id(name: str, value: str) -> None:
    """BadRequest for an id that no new session may have: too long, or a step that paths never resolve."""
    check_name(name, value)
    if value in (".", ".."):
        raise BadRequest(f"{name} may not be {value!r}: no path could name that session", name)


def imported(events: Sequence[Event], where: str) -> list[Event]:
    """Events of a stranger, fit for a session: they change nothing that other users see, and what they ask a human can never be
    carried out, unless it was sealed with a secret. BadRequest names the event; `where` is the name of the list."""
    for index, event in enumerate(events):
        for key in event.actions.state_delta or ():
            if key.startswith(APP):
                raise BadRequest(
                    f"{where}[{index}] may not set {key!r}: imported events cannot change state that all users share",
                    f"{where}[{index}].actions.stateDelta",
                )
    return [disarmed(event) for event in events]
