"""What is shown of a run to other processes: the messages of a feed on NATS, and how a run's end is written down.

Written by `showing.py`, read by `mirror.py`. Pure.
"""

from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct

from polyport.data.event import Event
from polyport.data.run import RunOutcome
from polyport.data.session import SessionKey
from polyport.errors import BadRequest, LimitExceeded, ModelError, PolyportError, describe

TAIL = "Polyport-Tail"


class Tail(NamedTuple):
    """Where a feed stands after a message; in its header, so that whoever goes on need not read what was shown.

    `by` is the revision of the writer's ticket, `offset` and `stored` are those of the last item, `read` is how much of its own
    run the writer has shown. A message that is too large is cut: `part` counts from 0; all but the last have `more`, and say
    where the feed stood before.
    """

    by: int = 0
    offset: int = 0
    stored: int = 0
    read: int = 0
    part: int = 0
    more: int = 0
    ended: int = 0

    @property
    def header(self) -> dict[str, str]:
        return {TAIL: " ".join(map(str, self))}

    @classmethod
    def of(cls, headers: dict[str, str]) -> "Tail | None":
        """None for what is none of ours."""
        words = headers.get(TAIL, "").split()
        if len(words) != len(cls._fields) or not all(w.isascii() and w.isdigit() and len(w) < 18 for w in words):
            return None
        return cls(*map(int, words))


class Ended(Struct, frozen=True, omit_defaults=True):
    """A RunOutcome. An error is its kind and what it says; one that is not ours is named only (see errors.describe)."""

    status: Literal["finished", "paused", "failed", "cancelled"]
    reason: str = ""
    kind: str = ""
    text: str = ""
    code: str = ""
    http_status: int = 0
    field: str = ""
    retry_after_s: float | None = None


class Shown(Struct, frozen=True, omit_defaults=True):
    """One message: the next items as pairs of `stored` and the event, the first with the offset `first`; at last the end."""

    run_id: str
    key: SessionKey
    base: int = 0
    first: int = 1
    items: list[tuple[int, Event]] = []
    ended: Ended | None = None


class ToShow(Struct, omit_defaults=True):
    """The same, with events as they are encoded already."""

    run_id: str
    key: SessionKey
    base: int = 0
    first: int = 1
    items: list[tuple[int, Raw]] = []
    ended: Ended | None = None


_decoder = msgspec.json.Decoder(Shown)
read_shown = _decoder.decode


def ended_of(outcome: RunOutcome) -> Ended:
    error = outcome.error
    if error is None:
        return Ended(outcome.status, outcome.reason)
    return Ended(
        outcome.status,
        outcome.reason,
        kind=error.kind if isinstance(error, PolyportError) else PolyportError.kind,
        text=str(error) if isinstance(error, PolyportError) else describe(error)["message"],
        code=error.code if isinstance(error, ModelError) else "",
        http_status=error.http_status if isinstance(error, ModelError) else 0,
        field=error.field if isinstance(error, BadRequest) else "",
        retry_after_s=error.retry_after_s if isinstance(error, LimitExceeded | ModelError) else None,
    )


def outcome_of(ended: Ended) -> RunOutcome:
    return RunOutcome(status=ended.status, reason=ended.reason, error=_error(ended) if ended.kind else None)


def _error(ended: Ended) -> PolyportError:
    kind = _kinds().get(ended.kind, PolyportError)
    if issubclass(kind, ModelError):
        return kind(ended.text, http_status=ended.http_status, code=ended.code, retry_after_s=ended.retry_after_s)
    if issubclass(kind, BadRequest):
        return kind(ended.text, ended.field)
    if issubclass(kind, LimitExceeded):
        return kind(ended.text, ended.retry_after_s)
    return kind(ended.text)


def _kinds() -> dict[str, type[PolyportError]]:
    """kind -> the class of ours that has it; the first one, for those that share it say the same to a caller."""
    found: dict[str, type[PolyportError]] = {}
    waiting: list[type[PolyportError]] = [PolyportError]
    for each in waiting:
        if each.__module__ == PolyportError.__module__:
            found.setdefault(each.kind, each)
        waiting += each.__subclasses__()
    return found
