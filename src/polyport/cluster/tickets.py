"""Tickets on NATS: one message for each session that is run, changed by compare-and-set only.

Used by the cluster. The sequence of its first message is the `life` of a ticket, that of its newest one the `revision`: whoever
knows an older one can neither change nor delete it.
"""

import logging
from collections.abc import Sequence

import anyio
import msgspec
from msgspec import structs

from polyport.cluster.jetstream import JetStream, Message
from polyport.cluster.subjects import Subjects
from polyport.codec import encode
from polyport.data.session import SessionKey
from polyport.errors import BadRequest, TooLarge, Unavailable
from polyport.ports.peers import Ticket

log = logging.getLogger("polyport.cluster")
_decoder = msgspec.json.Decoder(Ticket)
LOOK_S = 1.0
"""How long a message that a session is free may be lost before somebody looks."""
TRIES = 3
ROOM = 512
"""By how many bytes a ticket may grow, when others take it, or the run turns out to be one that goes on."""


class Tickets:
    def __init__(self, jetstream: JetStream, subjects: Subjects) -> None:
        self._jetstream = jetstream
        self._subjects = subjects

    async def claim(self, ticket: Ticket) -> tuple[bool, Ticket]:
        """True and the ticket, with its `life`; or False and the one that somebody has. Tried again, for what was lost may be
        the answer only."""
        data = self._data(ticket, ROOM)
        unsure = False
        for left in reversed(range(TRIES)):
            try:
                seq = await self._jetstream.put(self._subjects.ticket(ticket.request.key), data, expect=0)
                if seq is not None:
                    return True, structs.replace(ticket, life=seq, revision=seq)
                held = await self.read(ticket.request.key)
                if held is not None:
                    return unsure and (held.owner, held.run_id) == (ticket.owner, ticket.run_id), held
            except Unavailable:
                unsure = True
                if not left:
                    raise
        raise Unavailable(f"{ticket.request.key} changes hands too often")

    async def read(self, key: SessionKey) -> Ticket | None:
        message = await self._jetstream.last(self._subjects.tickets, self._subjects.ticket(key))
        if message is None:
            return None
        found = _tickets([message])
        if not found:
            raise Unavailable(f"{key} is in use by another version of Polyport, whose words are not known here")
        return found[0]

    async def change(self, ticket: Ticket, changed: Ticket) -> Ticket | None:
        """Put `changed` in the place of `ticket`; None when that is no longer there."""
        changed = structs.replace(changed, life=ticket.life)
        data, subject = self._data(changed), self._subjects.ticket(ticket.request.key)
        unsure = False
        for left in reversed(range(TRIES)):
            try:
                seq = await self._jetstream.put(subject, data, expect=ticket.revision)
            except Unavailable:
                unsure = True
                if not left:
                    raise
                continue
            if seq is not None:
                return structs.replace(changed, revision=seq)
            break
        now = await self.read(ticket.request.key) if unsure else None  # perhaps it was us: what was lost is the answer
        return now if now is not None and _who(now) == _who(changed) else None

    async def drop(self, ticket: Ticket) -> bool:
        """Delete it, and tell those who wait for the session; whether it was still there."""
        dropped = await self._jetstream.drop(self._subjects.tickets, ticket.revision)
        if dropped:
            await self._jetstream.publish(self._subjects.freed(ticket.request.key))
        return dropped

    async def all(self) -> list[Ticket]:
        return _tickets(await self._jetstream.since(self._subjects.tickets, self._subjects.all_tickets, 0))

    async def freed(self, ticket: Ticket, wait_s: float) -> bool:
        """See ports.peers.Peers."""
        key = ticket.request.key
        heard = anyio.Event()
        until = anyio.current_time() + wait_s
        async with self._jetstream.listening(self._subjects.freed(key), lambda message: heard.set()):
            while True:
                held = await self.read(key)
                if held is None or held.life != ticket.life:
                    return True
                left = until - anyio.current_time()
                if left <= 0:
                    return False
                with anyio.move_on_after(min(left, LOOK_S)):
                    await heard.wait()
                heard = anyio.Event()

    # ---- those that wait for somebody who takes them

    async def wait(self, key: SessionKey) -> None:
        """Say that the ticket of a session waits."""
        await self._jetstream.put(self._subjects.waiting(key), encode(key))

    async def offer(self, key: SessionKey) -> None:
        """Say so, and wake somebody."""
        await self.wait(key)
        await self._jetstream.publish(self._subjects.work(key.app), encode(key))

    async def waiting(self) -> list[tuple[SessionKey, int]]:
        """The sessions whose ticket waits, or has waited, and the sequence of what says so."""
        found = await self._jetstream.since(self._subjects.tickets, self._subjects.all_waiting, 0)
        waiting: list[tuple[SessionKey, int]] = []
        for message in found:
            try:
                waiting.append((session_key(message.data), message.seq))
            except msgspec.DecodeError as error:
                log.debug("%s names no session: %s", message.subject, error)
        return waiting

    async def taken(self, key: SessionKey, seq: int = 0) -> None:
        """Say so no longer."""
        if not seq:
            message = await self._jetstream.last(self._subjects.tickets, self._subjects.waiting(key))
            seq = 0 if message is None else message.seq
        if seq:
            await self._jetstream.drop(self._subjects.tickets, seq)

    def _data(self, ticket: Ticket, room: int = 0) -> bytes:
        try:
            data = encode(ticket)
        except (TypeError, NotImplementedError) as error:
            raise BadRequest(f"what a run is asked for has no JSON form: {error}") from None
        if len(data) + room > self._jetstream.max_payload:
            raise TooLarge(
                f"a message of {len(data)} bytes is more than the cluster passes on ({self._jetstream.max_payload}); raise "
                "max_payload of nats-server"
            )
        return data


def session_key(data: bytes) -> SessionKey:
    return msgspec.json.decode(data, type=SessionKey)


def _who(ticket: Ticket) -> tuple[int, str, str, int]:
    return ticket.life, ticket.owner, ticket.run_id, ticket.taken


def _tickets(messages: Sequence[Message]) -> list[Ticket]:
    found: list[Ticket] = []
    for message in messages:
        try:
            ticket = _decoder.decode(message.data)
        except msgspec.DecodeError as error:
            log.warning("a ticket of another version is left alone: %s", error)
        else:
            found.append(structs.replace(ticket, life=ticket.life or message.seq, revision=message.seq))
    return found
