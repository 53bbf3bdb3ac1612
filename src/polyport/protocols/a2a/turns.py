"""A turn of a task: one message, the work that it leads to, and who waits for that.

Made by the intake and by a recovery, carried out by the executor, one at a time for a task. Never writes anything.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.session import Session
from polyport.ports.runs import Run
from polyport.protocols.a2a.calls import CallContext
from polyport.runs.feed import until_woken, wake
from polyport.wire.a2a import Message, SendMessageRequest


class Past(NamedTuple):
    """What a process that died had done for a turn: the run, its events since the user's last word, which of them are in the
    task already (event id -> artifact id), and whether there is nothing left to do."""

    run_id: str
    events: Sequence[Event]
    seen: Mapping[str, str]
    ended: bool


class Turn:
    """One message and the work that it leads to."""

    __slots__ = (
        "_waiting",
        "begun",
        "call",
        "content",
        "ended_at",
        "late",
        "past",
        "question",
        "request",
        "run",
        "settled",
        "streaming",
        "taken_up",
    )

    def __init__(
        self,
        call: CallContext,
        request: SendMessageRequest,
        *,
        streaming: bool = False,
        late: bool = False,
        question: Message | None = None,
        content: Content | None = None,
    ) -> None:
        self.call = call
        self.request = request
        self.streaming = streaming
        self.late = late
        """Whether the message came while an earlier one was being worked on."""
        self.question = question
        """What the task had asked when the message came."""
        self.content = content
        """The message as the agent gets it, if it was looked at already."""
        self.past: Past | None = None
        self.taken_up = False
        """Whether another process took the message in."""
        self.begun = False
        self.run: Run | None = None
        self.ended_at: int | None = None
        """The offset of the frame with which the streams of this turn end."""
        self.settled = False
        """Whether nobody needs to wait for it any more."""
        self._waiting: set[asyncio.Future[None]] = set()

    def adopt(self, turn: "Turn") -> None:
        """Be carried out as another one of the same message."""
        self.past, self.question, self.late, self.taken_up = turn.past, turn.question, turn.late, turn.taken_up

    def settle(self, offset: int | None) -> None:
        """Let those go who wait; `offset` None leaves the streams open."""
        if offset is not None and self.ended_at is None:
            self.ended_at = offset
        self.settled = True
        wake(self._waiting)

    async def over(self) -> None:
        """Return when the task has ended or asks, as far as this message is concerned."""
        while not self.settled:
            await until_woken(self._waiting)


def since_user(session: Session, run_id: str) -> tuple[list[Event], Event | None]:
    """The agent's events of a run since the user's last word in it, and that word."""
    events: list[Event] = []
    for event in reversed(session.events) if run_id else ():
        if event.invocation_id != run_id:
            continue
        if event.author == "user":
            return events[::-1], event
        if not event.unpublished:
            events.append(event)
    return events[::-1], None
