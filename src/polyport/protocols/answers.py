"""Answers: what goes back over HTTP, as bytes on an ASGI `send`.

Called by handlers and by the host. A value is encoded before the first byte leaves, so that a failing encoder still becomes
a proper error. Never decides what an answer says; the words for errors come from `polyport.errors`.
"""

import math
from collections.abc import Awaitable, Iterable
from typing import Any

from polyport import codec
from polyport.errors import STATUS, LimitExceeded, PolyportError, Unauthenticated, describe, unwrap
from polyport.protocols.http import Header, Request, Scope, Send
from polyport.wire import sse

JSON = (b"content-type", b"application/json; charset=UTF-8")
EVENTS = (b"content-type", b"text/event-stream; charset=UTF-8")


async def send_body(send: Send, status: int, body: bytes, headers: Iterable[Header]) -> None:
    """A whole answer, with its Content-Length added to `headers`."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


def send_json(send: Send, value: Any, status: int = 200, headers: Iterable[Header] = ()) -> Awaitable[None]:
    """`value` as compact JSON and one newline (spec rest 1.1). Bytes are taken as JSON that is already encoded."""
    body = value if isinstance(value, bytes) else codec.encode(value)
    return send_body(send, status, body + b"\n", (JSON, *headers))


async def send_empty(send: Send, status: int = 200, headers: Iterable[Header] = ()) -> None:
    """An answer without a body: 200 with the JSON type (spec rest 1.1), or 204."""
    if status == 204:
        await send({"type": "http.response.start", "status": 204, "headers": [*headers]})
        await send({"type": "http.response.body", "body": b""})
    else:
        await send_body(send, status, b"", (JSON, *headers))


def status_of(error: BaseException) -> int:
    """The HTTP status for an error; 500 for one that is not ours."""
    return error.status.http if isinstance(error, PolyportError) else STATUS["internal"].http


def error_body(error: BaseException, request_id: str = "") -> dict[str, str]:
    """`{"error", "detail"}` for a caller. An error that is not ours says nothing but `internal error` and the request id
    under which the log has the rest."""
    if isinstance(error, PolyportError):
        text = str(error) or error.status.reason
        return {"error": text, "detail": text}
    detail = f"internal error; the server's log has the details under request id {request_id}"
    return {"error": "internal error", "detail": detail, "requestId": request_id}


def error_headers(error: BaseException) -> list[Header]:
    """What a kind of error adds: Retry-After, WWW-Authenticate."""
    if isinstance(error, LimitExceeded):
        return [(b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s or 1)))]
    if isinstance(error, Unauthenticated):
        return [(b"www-authenticate", (error.challenge or "Bearer").encode("latin-1", "replace"))]
    return []


async def send_error(send: Send, request: Request, error: BaseException, headers: Iterable[Header] = ()) -> None:
    """The JSON error answer (spec rest 1.1); for a client that asked for an event stream the same status with the body as
    one `data:` frame (spec rest 9.3)."""
    error = unwrap(error)
    body = codec.encode(error_body(error, "" if isinstance(error, PolyportError) else request.id))
    more = [*error_headers(error), *headers]
    if request.wants_events:
        fixed, text = (EVENTS, (b"cache-control", b"no-cache")), sse.frame(body)
    else:
        fixed, text = (JSON,), body + b"\n"
    await send_body(send, status_of(error), text, (*fixed, *more))


def error_frame(error: BaseException) -> bytes:
    """The frame that ends an event stream with an error (spec rest 2.3): `event: error`, `{"error", "errorCode"}`."""
    said = describe(unwrap(error))
    return sse.frame(codec.encode({"error": said["message"], "errorCode": said["code"]}), event="error")


async def refuse_websocket(scope: Scope, send: Send, status: int, body: bytes, headers: Iterable[Header] = ()) -> None:
    """Answer a handshake with an HTTP status; where the server cannot, with a close (which clients see as 403)."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": f"HTTP {status}"})
        return
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "websocket.http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "websocket.http.response.body", "body": body})


def close_reason(text: str) -> str:
    """`text` cut to the 123 bytes that a WebSocket close frame may carry, on a character boundary (spec rest 74)."""
    return text.encode()[:123].decode("utf-8", "ignore")
