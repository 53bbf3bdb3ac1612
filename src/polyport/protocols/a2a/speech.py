"""How the HTTP+JSON binding spells requests and answers in each version of A2A (spec a2a 1.4, 2.1).

Used by `http`; the frames of 0.3 also by `jsonrpc`. Requests and answers are those of 1.0 on this side. Pure.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from polyport.codec import encode
from polyport.protocols.a2a.edge import V03, V1
from polyport.protocols.a2a.fold import Update
from polyport.protocols.http import Header, Request
from polyport.wire import a2a, a2a_v03
from polyport.wire.a2a_errors import rest_error

A2A_JSON = "application/a2a+json"
JSON = "application/json"


class Speech(Protocol):
    version: str
    prefix: str
    """What its paths begin with."""
    card_path: str

    def media(self, request: Request) -> Header:
        """The Content-Type of the answer."""
        ...

    def read_send(self, body: bytes) -> a2a.SendMessageRequest: ...

    def read_push(self, body: bytes, task_id: str) -> a2a.TaskPushNotificationConfig: ...

    def history_length(self, said: int | None) -> int | None: ...

    def write(self, value: Any) -> bytes:
        """An answer; None is an empty one."""
        ...

    def frames(self, updates: Sequence[Update], *, last: bool) -> bytes:
        """Whole server-sent events; `last` says that none follow."""
        ...

    def error(self, error: BaseException, codes: str) -> tuple[int, bytes]:
        """HTTP status and body."""
        ...


class Speech10:
    """A2A 1.0."""

    version = V1
    prefix = ""
    card_path = "/extendedAgentCard"

    def media(self, request: Request) -> Header:
        """What Accept names first, else the type of the request, else A2A's own."""
        accept = request.header("accept").lower()
        at = {kind: accept.find(kind) for kind in (A2A_JSON, JSON) if kind in accept}
        if at:
            kind = min(at, key=at.__getitem__)
        else:
            said = request.header("content-type").partition(";")[0].strip().lower()
            kind = JSON if said == JSON else A2A_JSON
        return b"content-type", kind.encode()

    def read_send(self, body: bytes) -> a2a.SendMessageRequest:
        return a2a.read(body, a2a.SendMessageRequest)

    def read_push(self, body: bytes, task_id: str) -> a2a.TaskPushNotificationConfig:
        return a2a.read(body, a2a.TaskPushNotificationConfig)

    def history_length(self, said: int | None) -> int | None:
        return said

    def write(self, value: Any) -> bytes:
        return encode({} if value is None else value)

    def frames(self, updates: Sequence[Update], *, last: bool) -> bytes:
        return b"".join([b"data: " + update.json + b"\n\n" for update in updates])

    def error(self, error: BaseException, codes: str) -> tuple[int, bytes]:
        status, body = rest_error(error, codes)
        return status, encode(body)


class Speech03:
    """A2A 0.3."""

    version = V03
    prefix = "/v1"
    card_path = "/card"

    def media(self, request: Request) -> Header:
        return b"content-type", JSON.encode()

    def read_send(self, body: bytes) -> a2a.SendMessageRequest:
        return a2a_v03.read_rest_send(body)

    def read_push(self, body: bytes, task_id: str) -> a2a.TaskPushNotificationConfig:
        return a2a_v03.read_rest_push(body, task_id)

    def history_length(self, said: int | None) -> int | None:
        return said or None

    def write(self, value: Any) -> bytes:
        return encode(a2a_v03.rest_result(value))

    def frames(self, updates: Sequence[Update], *, last: bool) -> bytes:
        marked = (a2a_v03.rest_event(payload_of(u), final=last and u is updates[-1]) for u in updates)
        return b"".join(b"data: " + encode(event) + b"\n\n" for event in marked)

    def error(self, error: BaseException, codes: str) -> tuple[int, bytes]:
        status, body = a2a_v03.rest_error_body(error, codes)
        return status, encode(body)


def payload_of(update: Update) -> a2a.Payload:
    payload = update.frame.payload
    assert payload is not None  # our own frames have one
    return payload
