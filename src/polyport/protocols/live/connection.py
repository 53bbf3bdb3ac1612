"""One live connection: what the client says goes into the run, the run's events go to the client (spec rest 2.4).

Used by `mount`. Reading and writing go on side by side, so a client that is slow to read holds up nobody but itself: it is
dropped when it falls behind. Reading stops while too much waits for the model. Opens task groups that end with the connection.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import anyio
from msgspec import structs

from polyport.data.event import Event
from polyport.data.live import LiveRequest
from polyport.data.run import RunOutcome
from polyport.errors import BadRequest, Conflict, Forbidden, LimitExceeded, describe, unwrap
from polyport.ports.runs import Run
from polyport.protocols.http import ClientGone, Message, Request, Send
from polyport.wire.adk import encode_event
from polyport.wire.adk_live import Said, from_bytes, from_text

log = logging.getLogger("polyport.live")

SHAPE = "live"
NORMAL, AWAY, POLICY, TOO_BIG, BROKEN, LATER = 1000, 1001, 1008, 1009, 1011, 1013
"""Close codes of RFC 6455: all is said; the server leaves; the client broke a rule; its message is too large; the session
failed; too busy."""
CLIENT_CLOSED = (0, "")


async def begun(request: Request, start: Callable[[], Awaitable[Run]]) -> tuple[Run, deque[Message]]:
    """The run that `start` gives, and what the client said meanwhile. ClientGone when it leaves before that: a session may be
    busy for long. Above `live_queue_bytes` no more is read, and the rest waits on the connection."""
    early: deque[Message] = deque()
    runs: list[Run] = []

    async def listen() -> None:
        room = request.limits.live_queue_bytes
        while room > 0:
            early.append(await request.receive())
            if early[-1]["type"] != "websocket.receive":
                group.cancel_scope.cancel()
                return
            room -= 1024 + len(early[-1].get("bytes") or early[-1].get("text") or "")

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            runs.append(await start())
            group.cancel_scope.cancel()
    except BaseExceptionGroup as failures:
        raise unwrap(failures) from None
    if not runs:
        raise ClientGone("the client closed the connection")
    return runs[0], early


class Connection:
    """`talk` once. `author` is whose name the errors of messages have, `early` is what the client has said already."""

    def __init__(self, request: Request, send: Send, run: Run, early: deque[Message], author: str) -> None:
        self._request = request
        self._send = send
        self._run = run
        self._early = early
        self._author = author
        self._limits = request.limits
        self._closing: tuple[int, str] | None = None

    async def talk(self) -> tuple[int, str]:
        """Until the run has ended or the client has gone; the code and reason to close with, 0 when the client has closed."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen, group.cancel_scope)
                await self._speak()
                group.cancel_scope.cancel()
        except BaseExceptionGroup as failures:
            error = unwrap(failures)
            if isinstance(error, LimitExceeded):
                return POLICY, f"the client is too slow: {error}"
            raise error from None
        if self._closing is not None:
            return self._closing
        return _close_of(await self._run.wait())

    # ---- to the client

    async def _speak(self) -> None:
        async with aclosing(self._run.follow()) as batches:
            async for items in batches:
                for item in items:
                    await self._write(item.bytes(SHAPE, _frame))
                self._run.forget(items[-1].offset)

    async def _write(self, frame: bytes) -> None:
        await self._send({"type": "websocket.send", "text": frame.decode()})

    async def _refuse(self, error: Exception) -> None:
        """Tell the client what was wrong with its message, as an event that is stored nowhere."""
        said, seams = describe(error), self._request.seams
        event = Event(id=seams.new_id(), timestamp=seams.now(), invocation_id=self._run.id, author=self._author)
        await self._write(_frame(structs.replace(event, error_code=said["code"], error_message=said["message"])))

    # ---- from the client

    async def _listen(self, scope: anyio.CancelScope) -> None:
        """Read until the client goes, or breaks a rule."""
        while self._closing is None:
            message = self._early.popleft() if self._early else await self._request.receive()
            if message["type"] != "websocket.receive":
                self._closing = CLIENT_CLOSED
            elif self._too_big(message):
                limit = self._limits.live_message_bytes
                self._closing = (TOO_BIG, f"the message is larger than {limit} bytes (live_message_bytes)")
            else:
                await self._take(message)
        scope.cancel()

    def _too_big(self, message: Message) -> bool:
        limit, data, text = self._limits.live_message_bytes, message.get("bytes"), message.get("text")
        if data is not None:
            return len(data) > limit
        return text is not None and len(text) * 4 > limit and len(text.encode("utf-8", "replace")) > limit

    async def _take(self, message: Message) -> None:
        try:
            said = self._read(message)
            if said.request is not None:
                await self._request.change_state(self._run.key.app, said.request.state_delta)
                await self._tell(said.request)
            if said.close:
                self._run.hang_up()
        except (BadRequest, Conflict, Forbidden) as error:
            await self._refuse(error)

    def _read(self, message: Message) -> Said:
        text, data = message.get("text"), message.get("bytes")
        if text is None:
            return from_bytes(data or b"")
        said = from_text(text, self._limits.json_depth)
        if said is None:
            log.info("request %s: a live message that is no JSON object was ignored", self._request.id)
            return Said(None, False)
        return said

    async def _tell(self, said: LiveRequest) -> None:
        """Back-pressure has an end: a model that takes nothing any more must not keep a client whose leaving nobody sees."""
        limit = self._limits.live_stall_s
        with anyio.move_on_after(limit) as waited:
            await self._run.tell(said)
        if waited.cancelled_caught:
            self._closing = (LATER, f"the model has taken nothing for {limit:g} s (live_stall_s); try again later")


def _frame(event: Event) -> bytes:
    return encode_event(event) + b"\n"


def _close_of(outcome: RunOutcome) -> tuple[int, str]:
    if outcome.status == "failed":
        error = outcome.error
        return BROKEN, describe(error)["message"] if error is not None else outcome.reason
    if outcome.status == "cancelled":
        return AWAY, outcome.reason
    return NORMAL, ""
