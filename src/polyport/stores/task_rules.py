"""What every task store does in the same way: the order of a list, its page tokens, and what a change does to a head.

Called by the task stores of this package, and meant for those of others. Pure functions; never does I/O.
"""

import base64
import binascii
import hashlib
from typing import NamedTuple

import msgspec
from msgspec import structs

from polyport.codec import encode
from polyport.errors import BadRequest, Conflict, NotFound
from polyport.ports.tasks import TaskFilter, TaskHead, TaskScope, TaskUpdate


class Place(NamedTuple):
    """Where a task stands in a list: by the time of its status, then by when it was made (`seq` counts tasks). Pages go
    from the greatest place down."""

    status_ms: int
    seq: int


def page_token(scope: TaskScope, filter: TaskFilter, last: Place) -> str:
    """A token for the page after `last`, bound to the question that was asked."""
    text = encode([last.status_ms, last.seq, _question(scope, filter)])
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def page_start(scope: TaskScope, filter: TaskFilter, page_size: int, token: str) -> Place | None:
    """The place below which the asked page begins, None for the first. BadRequest for a token of another question or of
    nobody, and for a page size below 1."""
    if page_size < 1:
        raise BadRequest("the page size must be 1 or more", "pageSize")
    if not token:
        return None
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        status_ms, seq, question = msgspec.json.decode(text, type=tuple[int, int, str])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise BadRequest("pageToken is not one that this server gave", "pageToken") from None
    if question != _question(scope, filter):
        raise BadRequest("pageToken belongs to a list with other filters", "pageToken")
    return Place(status_ms, seq)


def _question(scope: TaskScope, filter: TaskFilter) -> str:
    return hashlib.blake2b(encode([scope, filter]), digest_size=9).hexdigest()


def matches(head: TaskHead, filter: TaskFilter) -> bool:
    """Whether a task of the right scope is one that the filter lets through."""
    return (
        (not filter.context_id or head.context_id == filter.context_id)
        and (not filter.state or head.state == filter.state)
        and (filter.since_ms is None or head.status_ms >= filter.since_ms)
    )


def updated(head: TaskHead, version: int, update: TaskUpdate) -> TaskHead:
    """The head after an append. Conflict if `version` is not the stored one."""
    if head.version != version:
        raise stale(head.id, version, head.version)
    return structs.replace(
        head,
        version=version + len(update.changes),
        state=head.state if update.state is None else update.state,
        status_ms=head.status_ms if update.status_ms is None else update.status_ms,
        run_id=head.run_id if update.run_id is None else update.run_id,
    )


def unknown(task_id: str) -> NotFound:
    """One text for what does not exist and for what is somebody else's (T045)."""
    return NotFound(f"there is no task {task_id!r}")


def stale(task_id: str, known: int, stored: int) -> Conflict:
    return Conflict(f"task {task_id!r} was changed by somebody else: it has version {stored}, not {known}")
