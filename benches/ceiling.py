"""The ceiling: bare ASGI on uvicorn that does no more than take the same requests and give answers of the same size.

`/run` decodes JSON and encodes one event (app `ready`: bytes made before), `/run_sse` sends 201 frames, each encoded (app
`ready`: bytes made before). No routing, no sessions, no agent.
"""

from typing import Any

import msgspec
from script import ANSWER, PIECES, WHOLE
from serving import arguments, serve

encode = msgspec.json.Encoder().encode


class Part(msgspec.Struct, omit_defaults=True):
    text: str = ""


class Content(msgspec.Struct):
    role: str
    parts: list[Part]


class Event(msgspec.Struct, rename="camel", omit_defaults=True):
    id: str
    invocation_id: str
    author: str
    timestamp: float
    content: Content
    partial: bool = False


class Run(msgspec.Struct, rename="camel"):
    app_name: str
    user_id: str
    session_id: str
    new_message: Content
    streaming: bool = False


decoder = msgspec.json.Decoder(Run)
JSON = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
SSE = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}


def event(text: str, partial: bool = False) -> Event:
    return Event("0123456789abcdef", "e-0123456789abcdef", "one", 1.5, Content("model", [Part(text)]), partial)


READY = encode([event(ANSWER)])
FRAMES = [b"data: " + encode(event(piece, True)) + b"\n\n" for piece in PIECES]


async def _answer(send: Any, body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({**JSON, "headers": [*JSON["headers"], length]})
    await send({"type": "http.response.body", "body": body})


async def _stream(send: Any, ready: bool) -> None:
    await send(SSE)
    if ready:
        for frame in FRAMES:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
    else:
        for piece in PIECES:
            frame = b"data: " + encode(event(piece, True)) + b"\n\n"
            await send({"type": "http.response.body", "body": frame, "more_body": True})
    frame = b"data: " + encode(event(WHOLE)) + b"\n\n"
    await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    path = scope["path"]
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if path == "/run_sse":
        await _stream(send, decoder.decode(body).app_name == "ready")
    elif path == "/run":
        ready = b'"appName":"ready"' in body
        await _answer(send, READY if ready else encode([event(decoder.decode(body) and ANSWER)]))
    else:
        await _answer(send, b"[]" if path == "/list-apps" else b'{"id":"s"}')


if __name__ == "__main__":
    serve(app, arguments().fd)
