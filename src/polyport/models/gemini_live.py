"""Gemini models over the Live API: the WebSocket around `wire/gemini_live.py` and `wire/gemini_live_request.py`.

Made by the registry for names of live models, or by users; connections are opened by the engine's live loop, which also
opens the next one when one is lost. The key travels in a header, never in a URL, never to another host, and never shows up
in an error. Every connection is closed when its block is left, and has nothing that outlives it.
"""

import contextlib
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import anyio

from polyport.data.live import LiveConfig, LiveInput, LiveMessage
from polyport.data.model import ModelRequest
from polyport.errors import ConfigError, ModelError
from polyport.models.gemini import GeminiHttp, GeminiModel
from polyport.ports.live import CONNECTION_LOST
from polyport.wire.gemini_live import LiveReader, read_close
from polyport.wire.gemini_live_request import LiveWriter

SETUP_S = 30.0
"""How long a connection may take until the set-up is accepted and the conversation so far is sent."""
CLOSING_S = 1.0
"""How long saying goodbye may take, and finding out why a connection broke."""
HEARTBEAT_S = 90.0
"""A connection on which nothing came for so long is asked for a sign of life, and given up after half that time more. The API
was seen to take 30 seconds for one."""
MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest message that is taken from the API."""

_METHOD = "google.ai.generativelanguage.{}.GenerativeService.BidiGenerateContent"
_VERSION = re.compile(r"/(v\d\w*)/?$")


def live_url(base_url: str, *, preview: bool) -> str:
    """Where live sessions are held, for the base URL of the API. `preview` is for what only `v1alpha` knows."""
    parts = urlsplit(base_url)
    found = _VERSION.search(parts.path)
    version = found[1] if found else "v1beta"
    if preview and version == "v1beta":
        version = "v1alpha"
    prefix = parts.path[: found.start()] if found else parts.path.rstrip("/")
    scheme = "ws" if parts.scheme == "http" else "wss"
    return urlunsplit((scheme, parts.netloc, f"{prefix}/ws/{_METHOD.format(version)}", "", ""))


@dataclass
class LiveHttp(GeminiHttp):
    """Http that dials WebSockets, and says what broke one."""

    @contextlib.asynccontextmanager
    async def dial(self, url: str, headers: dict[str, str]) -> AsyncGenerator[aiohttp.ClientWebSocketResponse[bool]]:
        """An open WebSocket, with a session of its own. ModelError when it cannot be opened."""
        sockets: list[socket.socket] = []

        def make(info: tuple[Any, ...]) -> socket.socket:
            sockets.append(socket.socket(*info[:3]))
            return sockets[-1]

        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=make),
            timeout=aiohttp.ClientTimeout(total=None, connect=SETUP_S),
            trust_env=True,
            middlewares=(_no_detour,),
        )
        websocket: aiohttp.ClientWebSocketResponse[bool] | None = None
        try:
            try:
                websocket = await session.ws_connect(
                    url,
                    headers={**self.headers, **headers},
                    timeout=aiohttp.ClientWSTimeout(None, CLOSING_S),  # pyright: ignore[reportCallIssue]  attrs class
                    heartbeat=HEARTBEAT_S,
                    max_msg_size=MESSAGE_BYTES,
                    decode_text=False,
                )
            except aiohttp.WSServerHandshakeError as error:
                raise _refused(error) from None
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise self.lost(error) from None
            yield websocket
        finally:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(CLOSING_S):
                    if websocket is not None:
                        await websocket.close()
                for made in sockets:  # what still waits to be sent would keep the connection open
                    with contextlib.suppress(OSError):
                        made.shutdown(socket.SHUT_RDWR)
                await session.close()

    def lost(self, error: BaseException) -> ModelError:
        """A connection that could not be made, or broke; a new one may work."""
        return ModelError(str(self._broken(error)), code=CONNECTION_LOST)

    def closed(self, code: int, reason: str, *, ready: bool) -> ModelError | None:
        """Why the API closed a connection; None when the session was simply over."""
        why = read_close(code, reason, ready=ready)
        return None if why is None else self.struck(why, {})


class GeminiLiveConnection:
    """See `ports.live.LiveConnection`."""

    def __init__(
        self, http: LiveHttp, websocket: aiohttp.ClientWebSocketResponse[bool], writer: LiveWriter, reader: LiveReader
    ) -> None:
        self._http = http
        self._websocket = websocket
        self._writer = writer
        self._reader = reader
        self._sending = anyio.Lock()
        self._over = anyio.Event()
        self._why: ModelError | None = None
        """What the connection ended with, once it is over."""

    async def begin(self) -> None:
        """Send the set-up, wait until it is accepted, and tell the conversation so far. ModelError if that fails."""
        try:
            await self._write([self._writer.setup])
            while not self._reader.ready and await self._next() is not None:
                pass
            if self._reader.ready:
                await self._write(self._writer.opening())
                return
        except (aiohttp.ClientError, OSError):
            while await self._next() is not None:
                pass  # what it said last tells why
        raise self._why or self._http.lost(ConnectionError())

    async def send(self, message: LiveInput) -> None:
        async with self._sending:
            try:
                await self._write(self._writer.write(message))
            except (aiohttp.ClientError, OSError) as error:
                with anyio.move_on_after(CLOSING_S):
                    await self._over.wait()  # whoever reads may find out why
                raise self._why or self._http.lost(error) from None

    async def _write(self, frames: list[bytes]) -> None:
        for frame in frames:
            await self._websocket.send_frame(frame, aiohttp.WSMsgType.TEXT)

    def __aiter__(self) -> AsyncIterator[LiveMessage]:
        return self

    async def __anext__(self) -> LiveMessage:
        while True:
            data = await self._next()
            if data is None:
                if self._why is not None:
                    raise self._why
                raise StopAsyncIteration
            if data:
                return data[0]

    async def _next(self) -> list[LiveMessage] | None:
        """The next frame as a message, or as none; None when the connection is over."""
        if self._over.is_set():
            return None
        frame = await self._websocket.receive()
        if frame.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            try:
                message = self._reader.read(frame.data)
            except ModelError as error:
                self._end(self._http.struck(error, {}))
                return None
            return [message] if message is not None else []
        self._end(self._reason(frame.type, frame.data, frame.extra))
        return None

    def _reason(self, kind: aiohttp.WSMsgType, data: object, extra: object) -> ModelError | None:
        if kind is aiohttp.WSMsgType.CLOSE and isinstance(data, int):
            reason = extra if isinstance(extra, str) else ""
            return self._http.closed(data, reason, ready=self._reader.ready)
        if isinstance(data, aiohttp.WebSocketError) and data.code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
            return ModelError(f"Gemini sent a message of more than {MESSAGE_BYTES} bytes", code="BAD_ANSWER")
        return self._http.lost(data if isinstance(data, Exception) else ConnectionError())

    def _end(self, why: ModelError | None) -> None:
        self._why = why
        self._over.set()


class GeminiLiveModel(GeminiModel):
    """A Gemini model by the name of a live one, such as `gemini-3.8-live`; see `ports.live.LiveModel`, and GeminiModel for
    what it is made with. `generate` is for the runs that are not live, as far as the API serves them with this model."""

    @contextlib.asynccontextmanager
    async def connect(self, request: ModelRequest, config: LiveConfig) -> AsyncGenerator[GeminiLiveConnection]:
        """See `ports.live.LiveModel`."""
        name = request.model or self.name
        writer = LiveWriter(request, config, name)
        base_url = self._http.base_url
        if not isinstance(base_url, str):
            raise ConfigError(
                f"{name!r} holds live sessions over the Gemini API itself only; give it a base_url of that"
            )
        http = LiveHttp(base_url, self._http.headers)
        url = live_url(base_url, preview=writer.preview)
        headers = {key.lower(): value for key, value in request.config.headers.items()}
        async with http.dial(url, headers) as websocket:
            connection = GeminiLiveConnection(http, websocket, writer, LiveReader(name))
            try:
                with anyio.fail_after(SETUP_S):
                    await connection.begin()
            except TimeoutError:
                raise ModelError(
                    f"Gemini has not accepted the live session of {name!r} within {SETUP_S:g} s; "
                    "it may not know a part of the set-up",
                    code=CONNECTION_LOST,
                ) from None
            yield connection


async def _no_detour(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """The key does not follow a redirect to another place."""
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        raise aiohttp.WSServerHandshakeError(
            response.request_info, response.history, status=response.status, headers=response.headers
        )
    return response


_STATUS = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}


def _refused(error: aiohttp.WSServerHandshakeError) -> ModelError:
    message = f"Gemini answered {error.status} instead of opening a live session"
    lost = error.status >= 500 or error.status in (101, 408)
    code = CONNECTION_LOST if lost else _STATUS.get(error.status, "INVALID_ARGUMENT")
    return ModelError(message, http_status=error.status, code=code)
