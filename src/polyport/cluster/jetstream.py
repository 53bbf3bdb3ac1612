"""What we need of NATS JetStream, over nats-py's core client: streams, compare-and-set, reading back, and core messages.

Used by the parts of the cluster. Unavailable says what could not be reached; nothing is tried again here. The connection comes
back by itself. No password ever gets into a message or the log.
"""

import logging
import uuid
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar, cast

import anyio
import msgspec

from polyport.cluster.nats_url import NatsUrl
from polyport.errors import ConfigError, TooLarge, Unavailable

try:
    from nats import errors as faults
    from nats.aio.client import Client
    from nats.aio.msg import Msg
except ModuleNotFoundError as error:
    if error.name != "nats":
        raise
    raise ConfigError("a cluster needs the package 'nats-py': pip install 'polyport[nats]'") from None

T = TypeVar("T")
log = logging.getLogger("polyport.cluster")

ANSWER_S = 1.0
"""How long a server may take: more is as if it was not there."""
TRIES = 3
CONNECT_S = 10.0
FIRST_TRIES = 8
"""How often each server is tried at first, four times a second."""
PAGE = 256
HEADERS_BYTES = 1024
"""What headers may take of a message, at most."""
EXPECT, TTL = "Nats-Expected-Last-Subject-Sequence", "Nats-TTL"
NO_STREAM = "no stream is there; is JetStream on (-js)?"
_WRONG_SEQUENCE = (10071, 10164)
_NOT_FOUND = 10037
_NAME_IN_USE = 10058
_AWAY = (faults.Error, OSError, RuntimeError)
"""What the client says when the connection is lost; a RuntimeError is uvloop's."""


class Message(NamedTuple):
    """`seq` is its place in its stream; `previous` that of the message before it on its subject, where that is known."""

    subject: str
    data: bytes
    headers: dict[str, str]
    seq: int = 0
    previous: int = 0
    reply: str = ""


class _Fault(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Found(msgspec.Struct):
    subject: str
    seq: int
    data: str = ""
    hdrs: str = ""


class _Answer(msgspec.Struct):
    seq: int = 0
    error: _Fault | None = None
    message: _Found | None = None


Heard = Callable[[Message], None]


class JetStream:
    """A connection to NATS. Open while inside `connected`."""

    def __init__(self, url: NatsUrl, name: str) -> None:
        self._url = url
        self._name = name
        self._client = Client()

    @property
    def max_payload(self) -> int:
        """The largest message, in bytes, that the server takes from us."""
        return self._client.max_payload - HEADERS_BYTES

    @asynccontextmanager
    async def connected(self, back: Callable[[], None]) -> AsyncGenerator[None]:
        """`back()` is called whenever the connection was lost and is there again. Unavailable when there is none at first."""
        self._client = Client()
        told: list[str] = []

        async def failed(error: Exception) -> None:
            if isinstance(error, faults.SlowConsumerError):
                log.warning("the cluster at %s sends faster than we read", self._url.shown)
            if not any("authorization" in word.lower() for word in told):  # what comes after it says less
                told[:] = [str(error) or type(error).__name__]

        async def lost() -> None:
            if not self._client.is_closed:
                log.warning("the connection to the cluster at %s is lost; it is tried again", self._url.shown)

        async def found() -> None:
            log.info("the cluster at %s is there again", self._url.shown)
            try:
                back()
            except Unavailable as error:  # we are about to leave; raised here it would end the client's own task
                log.debug("%s", error)

        try:
            with anyio.move_on_after(CONNECT_S):
                await self._client.connect(
                    self._url.servers,
                    name=self._name,
                    error_cb=failed,
                    disconnected_cb=lost,
                    reconnected_cb=found,
                    connect_timeout=2,
                    reconnect_time_wait=0.25,  # pyright: ignore[reportArgumentType]  seconds, as it is used
                    max_reconnect_attempts=FIRST_TRIES,
                    ping_interval=2,
                    max_outstanding_pings=2,
                    **self._url.options,
                )
        except (OSError, faults.Error) as error:
            told = told or [str(error) or type(error).__name__]
        except ModuleNotFoundError:
            raise ConfigError("a creds file needs the package 'nkeys': pip install 'nats-py[nkeys]'") from None
        try:
            if not self._client.is_connected:
                raise Unavailable(
                    f"the cluster at {self._url.shown} cannot be reached ({told[-1] if told else 'timeout'}): start "
                    "nats-server with JetStream there (-js), and check host, port and sign-in"
                )
            self._client.options["max_reconnect_attempts"] = -1  # once it was there, it is tried for ever
            yield
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await self._client.close()
                except _AWAY as error:
                    log.debug("the connection to the cluster is lost already: %s", error)

    # ---- streams

    async def ensure(self, stream: str, subjects: list[str], **settings: Any) -> None:
        """Make a stream, or give it these settings. ConfigError when the server refuses them."""
        config = {"name": stream, "subjects": subjects, "storage": "file", "discard": "old", **settings}
        answer = await self._api(f"STREAM.CREATE.{stream}", config, ANSWER_S * 5)
        if answer.error is not None and answer.error.err_code == _NAME_IN_USE:
            answer = await self._api(f"STREAM.UPDATE.{stream}", config, ANSWER_S * 5)
        if answer.error is not None:
            raise ConfigError(
                f"the cluster at {self._url.shown} refuses the stream {stream!r}: {answer.error.description}; it must be "
                "nats-server 2.11 or newer with JetStream (-js), and we must be allowed to make streams"
            )

    async def put(
        self,
        subject: str,
        data: bytes,
        *,
        expect: int | None = None,
        ttl_s: int = 0,
        about: dict[str, str] | None = None,
    ) -> int | None:
        """Store a message; its sequence. None when `expect` is given and is not the sequence of the newest message of the
        subject (0: there is none). TooLarge."""
        if len(data) > self.max_payload:
            raise TooLarge(
                f"{len(data)} bytes are more than the cluster takes in one message ({self.max_payload}); raise max_payload of "
                "nats-server"
            )
        headers = dict(about or {})
        if expect is not None:
            headers[EXPECT] = str(expect)
        if ttl_s:
            headers[TTL] = f"{ttl_s}s"
        answer = msgspec.json.decode((await self._request(subject, data, ANSWER_S, headers or None)).data, type=_Answer)
        if answer.error is None:
            return answer.seq
        if answer.error.err_code in _WRONG_SEQUENCE:
            return None
        raise Unavailable(f"the cluster at {self._url.shown} does not store a message: {answer.error.description}")

    async def last(self, stream: str, subject: str) -> Message | None:
        """The newest message of a subject, which may have wildcards, as the leader of the stream knows it."""
        answer = await patient(self._api, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        if answer.error is not None:
            if answer.error.err_code == _NOT_FOUND:
                return None
            raise self._refused(stream, answer.error)
        found = answer.message
        assert found is not None
        return Message(found.subject, b64decode(found.data), _headers(b64decode(found.hdrs)), found.seq)

    async def drop(self, stream: str, seq: int) -> bool:
        """Delete one message; whether it was there."""
        answer = await patient(self._api, f"STREAM.MSG.DELETE.{stream}", {"seq": seq, "no_erase": True})
        return answer.error is None

    async def since(self, stream: str, subject: str, seq: int, tries: int = TRIES) -> list[Message]:
        """The messages of a subject, which may have wildcards, from a sequence on: as any copy of the stream knows them."""
        found: list[Message] = []
        while True:
            page, more = await patient(self._page, stream, subject, seq, tries=tries)
            found += page
            if not more:
                return found
            seq = page[-1].seq + 1

    async def _page(self, stream: str, subject: str, seq: int) -> tuple[list[Message], bool]:
        page: list[Message] = []
        ended = anyio.Event()
        more = False
        fault = ""

        def heard(message: Message) -> None:
            nonlocal more, fault
            status = message.headers.get("Status", "")
            if not status:
                page.append(message)
                return
            if status not in ("204", "404"):
                fault = NO_STREAM if status.startswith("503") else message.headers.get("Description", status)
            more = status == "204" and message.headers.get("Nats-Num-Pending", "0") != "0"
            ended.set()

        inbox = self.inbox()
        asked = {"seq": max(seq, 1), "batch": PAGE, "next_by_subj": subject}
        async with self.listening(inbox, heard):
            await self.publish(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(asked), reply=inbox)
            with anyio.move_on_after(ANSWER_S * 2):
                await ended.wait()
        if fault or not ended.is_set():
            raise Unavailable(f"the cluster at {self._url.shown} does not answer ({fault or 'timeout'})")
        return page, more and bool(page)

    async def check(self, stream: str) -> None:
        """Unavailable when the stream cannot be reached."""
        answer = await self._api(f"STREAM.INFO.{stream}", {})
        if answer.error is not None:
            raise self._refused(stream, answer.error)

    # ---- core messages

    async def publish(self, subject: str, data: bytes = b"", reply: str = "") -> None:
        """Send a message to whoever listens now; nobody knows whether it arrives."""
        try:
            if not self._client.is_connected:  # or it would be sent when nobody wants it any more
                raise faults.ConnectionReconnectingError
            await self._client.publish(subject, data, reply=reply)
        except _AWAY as error:
            raise self._gone(error) from None

    def inbox(self) -> str:
        """A subject for answers, that nobody else has."""
        return self._client.new_inbox()

    @asynccontextmanager
    async def listening(self, subject: str, heard: Heard, queue: str = "") -> AsyncGenerator[None]:
        """Call `heard` with every message of a subject; of those with the same `queue` one hears it. It must not wait."""

        async def took(message: Msg) -> None:
            try:
                heard(_message(message))
            except (msgspec.MsgspecError, ValueError) as error:
                log.debug("a message on %s is none of ours: %s", subject, error)

        try:
            subscription = await cast("Any", self._client).subscribe(subject, queue=queue, cb=took)
        except _AWAY as error:
            raise self._gone(error) from None
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await subscription.unsubscribe()
                except _AWAY:
                    log.debug("%s: no connection to unsubscribe on", subject)

    # ---- inside

    async def _api(self, call: str, body: Any, wait_s: float = ANSWER_S) -> _Answer:
        message = await self._request(f"$JS.API.{call}", msgspec.json.encode(body), wait_s, None)
        return msgspec.json.decode(message.data, type=_Answer)

    async def _request(self, subject: str, data: bytes, wait_s: float, headers: dict[str, str] | None) -> Msg:
        try:
            await self._reconnected(wait_s)
            return await self._client.request(subject, data, timeout=wait_s, headers=headers)
        except _AWAY as error:
            raise self._gone(error) from None

    async def _reconnected(self, wait_s: float) -> None:
        """Return when there is a connection. The client would keep what is asked and ask it when nobody waits any more."""
        until = anyio.current_time() + wait_s
        while not self._client.is_connected:
            if anyio.current_time() > until:
                raise faults.ConnectionReconnectingError
            await anyio.sleep(0.02)

    def _gone(self, error: Exception) -> Unavailable:
        why = NO_STREAM if isinstance(error, faults.NoRespondersError) else ""
        return Unavailable(f"the cluster at {self._url.shown} does not answer ({why or type(error).__name__})")

    def _refused(self, stream: str, fault: _Fault) -> Unavailable:
        return Unavailable(f"the stream {stream!r} at {self._url.shown} cannot be used: {fault.description}")


async def patient(call: Callable[..., Awaitable[T]], *args: Any, tries: int = TRIES) -> T:
    """Ask again what does no harm when it is asked twice: while servers agree on a new leader nobody answers."""
    while True:
        tries -= 1
        until = anyio.current_time() + ANSWER_S
        try:
            return await call(*args)
        except Unavailable:
            if tries <= 0:
                raise
        await anyio.sleep(max(0.0, until - anyio.current_time()))


def _message(message: Msg) -> Message:
    headers = message.headers or {}
    return Message(
        subject=headers.get("Nats-Subject", message.subject),
        data=message.data,
        headers=headers,
        seq=int(headers.get("Nats-Sequence", 0)),
        previous=int(headers.get("Nats-Last-Sequence", 0)),
        reply=message.reply,
    )


def _headers(text: bytes) -> dict[str, str]:
    lines = text.decode().split("\r\n")[1:]
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines if line)}


def unique() -> str:
    """A token that nobody else has."""
    return uuid.uuid4().hex[:8]
