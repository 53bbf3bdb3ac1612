"""Agent Engine as part of an app: two paths, and the method that a call names (spec rest 6.1, 6.2).

`POST /reasoning_engine` answers once, `POST /stream_reasoning_engine` in lines of JSON; the host serves both under `/api`, too.
One app is served, to the platform under the name of its engine id.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from polyport import codec
from polyport.errors import BadRequest, ConfigError, PolyportError, TimedOut, describe
from polyport.protocols.agent_engine.methods import Call, Engine, Method, table
from polyport.protocols.agent_engine.sessions import SESSION_METHODS
from polyport.protocols.agent_engine.streams import STREAM_METHODS
from polyport.protocols.answers import JSON, send_json
from polyport.protocols.http import Request, Send
from polyport.protocols.parts import Parts, Still
from polyport.protocols.routes import Route
from polyport.protocols.streaming import SseStream, pump
from polyport.wire.agent_engine import Envelope, error_line

log = logging.getLogger("polyport.agent_engine")

UNARY, STREAM = "/reasoning_engine", "/stream_reasoning_engine"


@dataclass(frozen=True, kw_only=True)
class AgentEngine:
    """The Agent Engine protocol, for `App(protocols=[...])`.

    - `engine_id` is the name of the app in sessions that callers see; the name of the app without it.
    - `app` is which app is served; the first one without it.
    - `methods` are methods beside the built-in ones.
    - `max_payload_bytes` is the largest body; `Limits.body_bytes` without it. More is 413.
    """

    engine_id: str = ""
    app: str = ""
    methods: Sequence[Method] = ()
    max_payload_bytes: int | None = None

    def mount(self, parts: Parts) -> "AgentEngineServer":
        """ConfigError for an app that there is not, and for two methods of one name."""
        app = self.app or next(iter(parts.trees))
        if app not in parts.trees:
            raise ConfigError(f"Agent Engine: there is no app {app!r}; the apps are: {', '.join(parts.trees)}")
        if self.max_payload_bytes is not None and self.max_payload_bytes <= 0:
            raise ConfigError(f"Agent Engine: max_payload_bytes is {self.max_payload_bytes}; it must be above zero")
        engine = Engine(self.engine_id or app, app, parts.runs, parts.limits, parts.seams)
        return AgentEngineServer(engine, table(_all(self.methods)), self.max_payload_bytes)


def class_methods(more: Iterable[Method] = ()) -> list[dict[str, Any]]:
    """The metadata of all methods, which a deployment registers as its `class_methods` (spec rest 6.5). `more` are the
    methods that were given to AgentEngine. ConfigError for two of one name."""
    return [method.metadata for method in table(_all(more)).values()]


def _all(more: Iterable[Method]) -> list[Method]:
    return [*SESSION_METHODS, *STREAM_METHODS, *more]


class AgentEngineServer(Still):
    """See the module."""

    def __init__(self, engine: Engine, methods: Mapping[str, Method], max_bytes: int | None) -> None:
        self.engine = engine
        self.methods = methods
        self._max_bytes = max_bytes

    def routes(self) -> list[Route]:
        return [
            Route("POST", UNARY, self.unary, summary="Agent Engine: call a session method"),
            Route("POST", STREAM, self.stream, summary="Agent Engine: ask the agent", streams=True),
        ]

    async def unary(self, request: Request, send: Send) -> None:
        """`{"output": ...}`."""
        method, call = await self._read(request)
        if method.unary is None:
            raise BadRequest(f"unrecognized class method: {method.name}; it streams: POST {STREAM}", "class_method")
        await send_json(send, {"output": await method.unary(call)})

    async def stream(self, request: Request, send: Send) -> None:
        """Lines of JSON, at once; what goes wrong before the first one is a status, later a last line `{"error"}`."""
        method, call = await self._read(request)
        if method.stream is None:
            raise BadRequest(f"unrecognized class method: {method.name}; it is called at POST {UNARY}", "class_method")
        async with method.stream(call) as lines:
            stream = SseStream(send)
            await stream.start([(b"x-session-id", quote(lines.session_id, safe="-_.~").encode())], kind=JSON)
            limit = self.engine.limits.sse_deadline_s
            try:
                ended = await pump(request, stream, lines.batches, timeout_s=limit)
            except Exception as error:
                if not isinstance(error, PolyportError):
                    log.exception("request %s: the stream of %s broke off", request.id, method.name)
                await stream.send(error_line(describe(error)["message"]))
                ended = "done"
            if ended == "gone":
                return
            if ended == "timeout":
                text = f"timeout: the stream was open for {limit:g} s (sse_timeout_s)"
                await stream.send(error_line(describe(TimedOut(text))["message"]))
            await stream.close()

    async def _read(self, request: Request) -> tuple[Method, Call]:
        """The method that is called. A body that is too large is refused before anything of it is done."""
        request.refuse_forms()
        body = await request.body(self._max_bytes)
        codec.check_depth(body, request.limits.json_depth)
        asked = codec.decode(body, Envelope, unknown="drop")
        method = self.methods.get(asked.class_method)
        if method is None:
            known = ", ".join(self.methods)
            raise BadRequest(
                f"unrecognized class method: {asked.class_method[:100]}; there are: {known}", "class_method"
            )
        return method, Call(self.engine, request, asked.input)
