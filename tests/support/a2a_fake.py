"""A remote A2A agent that does exactly what a test scripted, on loopback: JSON-RPC, with cards wherever a test puts them.

Strict both ways: a call that was not scripted answers 500 and fails the test at its end, and so do steps that were not used.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from aiohttp import web

WELL_KNOWN = "/.well-known/agent-card.json"


def card(url: str, *interfaces: tuple[str, str], streaming: bool | None = True, **more: Any) -> dict[str, Any]:
    """A card with interfaces (binding, version) at `url`; JSONRPC 1.0 by default."""
    return {
        "name": "fake",
        "description": "An agent.",
        "version": "1",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": version}
            for binding, version in interfaces or [("JSONRPC", "1.0")]
        ],
        "capabilities": {} if streaming is None else {"streaming": streaming},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        **more,
    }


# ---- what an agent may say


def message(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": as_parts(parts), **more}}


def as_parts(parts: Any) -> list[dict[str, Any]]:
    return [{"text": p} if isinstance(p, str) else p for p in parts]


def as_status(state: str, *said: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"state": "TASK_STATE_" + state}
    if said:
        found["message"] = {"messageId": "s", "role": "ROLE_AGENT", "parts": as_parts(said)}
    return found


def task(state: str = "SUBMITTED", *said: Any, id: str = "t1", artifacts: Any = None, **more: Any) -> dict[str, Any]:
    """A bare task, as GetTask answers; `{"task": task()}` in streams. `artifacts` maps ids to parts."""
    found = {"id": id, "contextId": "c1", "status": as_status(state, *said), **more}
    if artifacts is not None:
        found["artifacts"] = [{"artifactId": k, "parts": as_parts(v)} for k, v in artifacts.items()]
    return found


def status(state: str, *said: Any, id: str = "t1", **more: Any) -> dict[str, Any]:
    return {"statusUpdate": {"taskId": id, "contextId": "c1", "status": as_status(state, *said), **more}}


def chunk(*parts: Any, append: bool = False, last: bool = False, artifact: str = "a", **more: Any) -> dict[str, Any]:
    inner = {"artifactId": artifact, "parts": as_parts(parts), **more.pop("head", {})}
    return {
        "artifactUpdate": {
            "taskId": "t1", "contextId": "c1", "artifact": inner, "append": append, "lastChunk": last, **more
        }
    }  # fmt: skip


# ---- steps


@dataclass
class Answer:
    """One JSON-RPC response; `id` None is that of the call. `body` is sent instead, as it is."""

    result: Any = None
    error: dict[str, Any] | None = None
    id: Any = None
    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    media: str = "application/json"


@dataclass
class Frames:
    """A stream. `end`: "close", "cut" (the connection breaks) or "hang". A function among the frames is awaited. `ids`
    replaces the id of each frame."""

    frames: list[Any]
    end: str = "close"
    ids: list[Any] | None = None


def frames(*found: Any, end: str = "close", ids: list[Any] | None = None) -> Frames:
    return Frames(list(found), end, ids)


@dataclass
class Call:
    method: str
    params: dict[str, Any]
    headers: dict[str, str]
    path: str

    @property
    def texts(self) -> list[str]:
        return [part.get("text", "?") for part in self.params["message"]["parts"]]

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self.params["message"]["parts"]


@dataclass
class Fake:
    url: str = ""
    cards: dict[str, Any] = field(default_factory=dict)
    """Path -> a card, or a web.Response maker called with the request."""
    steps: list[tuple[str, Any]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    gets: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    gone: anyio.Event = field(default_factory=anyio.Event)
    """Set when a client hung up on a stream."""

    def on(self, method: str, step: Any) -> None:
        """The next call is to be `method`; `step` is an Answer, Frames, or a result."""
        self.steps.append((method, step))

    def streams(self, *found: Any, **more: Any) -> None:
        self.on("SendStreamingMessage", frames(*found, **more))

    @property
    def methods(self) -> list[str]:
        return [call.method for call in self.calls]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {k.lower(): v for k, v in request.headers.items()}
        if request.method == "GET":
            self.gets.append((request.path, headers))
            found = self.cards.get(request.path)
            if found is None:
                return web.Response(status=404)
            return found(request) if callable(found) else web.json_response(found)
        body = await request.json()
        self.calls.append(Call(body["method"], body["params"], headers, request.path))
        expected, step = self.steps.pop(0) if self.steps else ("nothing", None)
        if expected != body["method"]:
            self.wrong.append(f"{body['method']} came instead of {expected}")
            return web.Response(status=500)
        if isinstance(step, Frames):
            return await self.stream(request, step, body["id"])
        answer = step if isinstance(step, Answer) else Answer(step)
        if answer.body is None:
            envelope = {"jsonrpc": "2.0", "id": body["id"] if answer.id is None else answer.id}
            answer.body = json.dumps(
                envelope | ({"error": answer.error} if answer.error else {"result": answer.result})
            ).encode()
        return web.Response(
            body=answer.body, status=answer.status, headers={"content-type": answer.media, **answer.headers}
        )

    async def stream(self, request: web.Request, step: Frames, id: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        ids = step.ids or [id] * len(step.frames)
        try:
            for frame, own in zip(step.frames, ids, strict=True):
                if callable(frame):
                    await frame()
                    continue
                body = json.dumps({"jsonrpc": "2.0", "id": own, "result": frame})
                await response.write(b": ping\r\n\r\ndata: " + body.encode() + b"\r\n\r\n")
            if step.end == "hang":
                await anyio.sleep_forever()
        except BaseException:
            self.gone.set()
            raise
        if step.end == "cut":
            assert request.transport is not None
            request.transport.abort()
        return response


@asynccontextmanager
async def fake_agent(**options: Any) -> AsyncIterator[Fake]:
    """A fake with its card at the well-known place; `options` are those of `card`."""
    fake = Fake()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        fake.cards[WELL_KNOWN] = card(fake.url + "/rpc", **options)
        yield fake
    finally:
        await runner.cleanup()
    assert not fake.wrong, fake.wrong
    assert not fake.steps, f"steps that were not used: {fake.steps}"


Maker = Callable[[web.Request], web.Response]


def cached(plain: dict[str, Any], etag: str, control: str = "max-age=60") -> Maker:
    """A card that knows If-None-Match."""

    def make(request: web.Request) -> web.Response:
        headers = {"etag": etag, "cache-control": control}
        if request.headers.get("if-none-match") == etag:
            return web.Response(status=304, headers=headers)
        return web.json_response(plain, headers=headers)

    return make
