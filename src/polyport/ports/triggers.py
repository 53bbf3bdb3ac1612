"""The port of deliveries: what was sent to a trigger, so that a message which comes twice is carried out once, and one that
could not be carried out is not lost.

Implemented in `stores/`, required to pass `polyport.testing.trigger_suite`; called by `protocols/triggers` only, which alone
knows what the texts mean.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct, structs

SHOWN = 2000
"""How many characters of its text a list of dead letters has."""
DeliveryState = Literal["running", "done", "dead"]
"""Somebody is at it, until its lease is over; it was carried out; it failed for good and is a dead letter."""


class DeliveryKey(NamedTuple):
    """By which a message is known again: `id` is what its sender calls it, `origin` who the sender is (a subscription, a
    source, the name of a webhook or of a schedule)."""

    app: str
    source: str
    origin: str
    id: str


class Delivery(Struct, frozen=True, kw_only=True):
    """A message and what became of it. `session_id` is where the agent works at it, and names it in lists of dead letters.
    `kind` is what the sender says that happened, "" if nothing. Times are epoch milliseconds; `at_ms` is the last change."""

    key: DeliveryKey
    user: str
    text: str
    session_id: str
    kind: str = ""
    state: DeliveryState = "running"
    attempts: int = 0
    error: str = ""
    at_ms: int = 0
    lease_ms: int = 0


def taken_over(found: Delivery, wanted: Delivery, *, again: bool) -> Delivery | None:
    """What `TriggerStore.claim` makes of a delivery that is stored already: the same, in the hands of who wants it. None when
    it is not to be had."""
    left = found.state == "dead" or (found.state == "running" and found.lease_ms <= wanted.at_ms)
    if not (again and left):
        return None
    attempts = 0 if found.state == "dead" else found.attempts
    return structs.replace(
        found, state="running", error="", attempts=attempts, at_ms=wanted.at_ms, lease_ms=wanted.lease_ms
    )


class TriggerStore(Protocol):
    """Keeps deliveries. All methods may be called concurrently, by several processes.

    Errors: NotFound; Unavailable when the storage cannot be reached.
    """

    async def claim(self, delivery: Delivery, *, again: bool) -> tuple[bool, Delivery]:
        """Whether the delivery is the caller's to carry out until `delivery.lease_ms`, and what is stored of it now.

        It is, when its key is new; with `again` also when it is dead, or when the lease of whoever had it was over at
        `delivery.at_ms`. What was stored keeps its session and text, and its count of attempts unless it was dead. Of two
        claims at once one wins.
        """
        ...

    async def update(self, delivery: Delivery) -> None:
        """Store a new state, attempts, error, time and lease; a delivery that is done stays so, and its text goes."""
        ...

    async def get(self, app: str, session_id: str) -> Delivery:
        """NotFound if there is none."""
        ...

    async def dead(self, app: str, limit: int) -> Sequence[Delivery]:
        """The dead letters of an app, the newest first, their texts cut to SHOWN characters."""
        ...

    async def stranded(self, now_ms: int, limit: int) -> Sequence[Delivery]:
        """Deliveries of all apps at which nobody is any more, though they are neither done nor dead; the oldest first,
        without their texts."""
        ...

    async def remove(self, app: str, session_id: str) -> None:
        """Forget a delivery. Silent if there is none."""
        ...

    async def forget(self, done_before_ms: int, dead_before_ms: int) -> int:
        """Forget what was done, or died, before these times; how many."""
        ...

    async def aclose(self) -> None: ...
