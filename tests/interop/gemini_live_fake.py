"""A strict Gemini Live API (BidiGenerateContent) on loopback, played by the test, for our live model and the vendor's client.

It checks every message against the public reference and closes with 1007 at the first unknown member, wrong type or wrong
order, as the real one does; such faults fail the test at its end, unless it took them away. It says only what the test says,
in binary frames, as the real one. It counts open connections, and does not resume a session that is still open elsewhere.
"""

import base64
import datetime
import ipaddress
import json
import re
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from aiohttp import WSMsgType, web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from gemini_fake import KEY, Refused
from gemini_fake import _check_part as check_part
from gemini_live_rules import FIELDS, check_declarations, is_new, plain

__all__ = ["KEY", "Line", "LiveServer", "serve", "tls_of"]

PATH = "/ws/google.ai.generativelanguage.{version}.GenerativeService.BidiGenerateContent"


class Line:
    """One accepted connection, seen from the API. `setup` is what it was opened with, in camel case."""

    def __init__(self, server: "LiveServer", websocket: web.WebSocketResponse, request: web.Request) -> None:
        self.server = server
        self.headers = {k.lower(): v for k, v in request.headers.items()}
        self.version = request.match_info["version"]
        self.setup: dict[str, Any] = {}
        self.frames: list[dict[str, Any]] = []
        """All messages after the set-up, in camel case."""
        self.calls: dict[str, str] = {}
        """Id -> name of the calls without a response."""
        self.closed = False
        self.close_code: int | None = None
        """With what the client closed it."""
        self._websocket = websocket
        self._request = request
        self._heard = 0
        self._seeding = False
        self._active = False
        self._deaf = False
        self._changed = anyio.Event()

    # -- the test's side

    async def heard(self) -> dict[str, Any]:
        """The next message that the test has not seen yet."""
        while self._heard >= len(self.frames):
            await self._changed.wait()
        self._heard += 1
        return self.frames[self._heard - 1]

    async def say(self, **message: Any) -> None:
        """Say a message of these members."""
        known("server", message, "")
        for call in message.get("toolCall", {}).get("functionCalls", []):
            self.calls[call["id"]] = call["name"]
        for id in message.get("toolCallCancellation", {}).get("ids", []):
            self.calls.pop(id, None)
        if handle := message.get("sessionResumptionUpdate", {}).get("newHandle"):
            self.server.handles[handle] = self
        await self._websocket.send_bytes(json.dumps(message).encode())

    async def content(self, **content: Any) -> None:
        known("serverContent", content, "serverContent")
        await self.say(serverContent=content)

    async def text(self, text: str, **more: Any) -> None:
        await self.content(modelTurn={"role": "model", "parts": [{"text": text}]}, **more)

    async def sound(self, data: bytes, **more: Any) -> None:
        blob = {"mimeType": "audio/pcm;rate=24000", "data": base64.b64encode(data).decode()}
        await self.content(modelTurn={"role": "model", "parts": [{"inlineData": blob}]}, **more)

    async def call(self, name: str, args: dict[str, Any], id: str) -> None:
        await self.say(toolCall={"functionCalls": [{"name": name, "args": args, "id": id}]})

    async def raw(self, data: bytes) -> None:
        await self._websocket.send_bytes(data)

    async def close(self, code: int, reason: str = "") -> None:
        await self._websocket.close(code=code, message=reason.encode())

    def drop(self) -> None:
        """Lose the connection as a broken network does."""
        assert self._request.transport is not None
        self._request.transport.abort()

    def deaf(self, deaf: bool = True) -> None:
        """Read nothing more, so that the network fills up; or read again."""
        self._deaf = deaf
        self._notify()

    async def gone(self) -> None:
        """Return when the connection is closed."""
        while not self.closed:
            await self._changed.wait()

    # -- the API's side

    async def run(self) -> None:
        """Take messages until the connection is over; Refused for one that is wrong."""
        while True:
            message = await self._websocket.receive()
            while self._deaf:
                await self._changed.wait()
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                self.close_code = message.data if message.type is WSMsgType.CLOSE else None
                return
            frame = plain(json.loads(message.data))
            if len(frame) != 1:
                raise Refused("exactly one member of a client message must be set")
            kind = next(iter(frame))
            known("client", frame, "")
            if (kind == "setup") == bool(self.setup):
                raise Refused("setup must be the first message and only the first")
            if kind == "setup":
                self._check_setup(frame["setup"])
                if self.server.mute:
                    continue
                await self._accept()
                continue
            if self._seeding and kind != "clientContent":
                raise Refused("the initial history was announced, and is not complete")
            {
                "clientContent": self._check_client_content,
                "realtimeInput": self._check_realtime_input,
                "toolResponse": self._check_tool_response,
            }[kind](frame[kind])
            self.frames.append(frame)
            self._notify()

    async def _accept(self) -> None:
        server = self.server
        if server.refusals:
            code, reason = server.refusals.popleft()
            await self.close(code, reason)
            return
        handle = self.setup.get("sessionResumption", {}).get("handle")
        if handle is not None:
            before = server.handles.get(handle)
            if before is None:
                await self.close(1008, "BidiGenerateContent session not found")
                return
            if not before.closed:
                await self.close(1011, "The session is open elsewhere.")
                return
            self.calls = dict(before.calls)
        await self._websocket.send_bytes(b'{"setupComplete": {}}')
        server.lines.append(self)
        server.notify()
        if server.cuts:
            assert self._request.transport is not None
            self._request.transport.pause_reading()
            await self.close(*server.cuts.popleft())

    def over(self) -> None:
        self.closed = True
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # -- what the API takes

    def _check_setup(self, setup: Any) -> None:
        known("setup", setup, "setup")
        self.setup = setup
        name = setup["model"].removeprefix("models/")
        if not setup["model"].startswith("models/"):
            raise Refused(f"{setup['model']} is not the name of a model")
        self._new = is_new(name)
        generation = known("generation", setup.get("generationConfig", {}), "setup.generation_config")
        if generation.get("responseModalities", ["AUDIO"]) not in (["AUDIO"], ["TEXT"]):
            raise Refused("Request contains an invalid argument: one response modality only")
        if "speechConfig" in generation and generation.get("responseModalities") == ["TEXT"]:
            raise Refused("Cannot extract voices from a non-audio request.")
        speech = known("speech", generation.get("speechConfig", {}), "speech_config")
        voice = known("voice", speech.get("voiceConfig", {}), "voice_config")
        known("prebuilt", voice.get("prebuiltVoiceConfig", {}), "prebuilt_voice_config")
        preview = self.version != "v1beta" and not self._new
        if not preview and ("enableAffectiveDialog" in generation or "proactivity" in setup):
            raise Refused("Unknown name \"enableAffectiveDialog\" at 'setup': Cannot find field.")
        resumption = known("resumption", setup.get("sessionResumption", {}), "session_resumption")
        if "handle" in resumption and not (isinstance(resumption["handle"], str) and resumption["handle"]):
            raise Refused("Request contains an invalid argument.")
        known("compression", setup.get("contextWindowCompression", {}), "context_window_compression")
        for side in ("inputAudioTranscription", "outputAudioTranscription"):
            known("transcription", setup.get(side, {}), side)
        known("proactivity", setup.get("proactivity", {}), "proactivity")
        realtime = known("realtime", setup.get("realtimeInputConfig", {}), "realtime_input_config")
        detection = known("detection", realtime.get("automaticActivityDetection", {}), "automatic_activity_detection")
        self._manual = detection.get("disabled", False)
        history = known("history", setup.get("historyConfig", {}), "history_config")
        if history and not self._new:
            raise Refused("Unknown name \"historyConfig\" at 'setup': Cannot find field.")
        self._seeding = history.get("initialHistoryInClientContent", False)
        for content in [setup["systemInstruction"]] if "systemInstruction" in setup else []:
            known("content", content, "system_instruction")
            if any(part.keys() != {"text"} for part in content["parts"]):
                raise Refused("only text should be used in the system instruction")
        check_declarations(setup.get("tools", []), new=self._new)

    def _check_client_content(self, content: Any) -> None:
        known("clientContent", content, "client_content")
        if self._new and not self._seeding:
            raise Refused("Request contains an invalid argument.")
        open_calls: list[str] = []
        for i, turn in enumerate(content.get("turns", [])):
            known("content", turn, f"turns[{i}]")
            if turn.get("role") not in ("user", "model") or not turn.get("parts"):
                raise Refused("a turn has the role user or model, and parts")
            for j, part in enumerate(turn["parts"]):
                check_part(part, f"turns[{i}].parts[{j}]")
                if part.get("inlineData", {}).get("mimeType", "").startswith("audio/"):
                    raise Refused("Request contains an invalid argument.")
            if open_calls != [p["functionResponse"]["name"] for p in turn["parts"] if "functionResponse" in p]:
                raise Refused("the number of function responses is not that of function calls")
            open_calls = [p["functionCall"]["name"] for p in turn["parts"] if "functionCall" in p]
        if not isinstance(content.get("turnComplete", False), bool):
            raise Refused("Invalid value at 'client_content.turn_complete'")
        if self._seeding:
            self._seeding = not content.get("turnComplete", False)

    def _check_realtime_input(self, given: Any) -> None:
        known("realtimeInput", given, "realtime_input")
        if len(given) != 1:
            raise Refused("exactly one member of realtime_input must be set")
        kind, value = next(iter(given.items()))
        if kind in ("audio", "video"):
            known("inlineData", value, kind)
            if not re.match({"audio": r"audio/pcm(;rate=\d+)?$", "video": r"image/[a-z]+$"}[kind], value["mimeType"]):
                raise Refused(f"Unsupported MIME type: {value['mimeType']}")
            base64.b64decode(value["data"], validate=True)
        elif kind in ("activityStart", "activityEnd"):
            if not self._manual or value != {} or self._active == (kind == "activityStart"):
                raise Refused("explicit activity control is out of place")
            self._active = kind == "activityStart"
        elif kind == "audioStreamEnd":
            if self._manual or value is not True:
                raise Refused("audio_stream_end is out of place")
        elif not (isinstance(value, str) and value) or (self._manual and not self._active):
            raise Refused("text is out of place")

    def _check_tool_response(self, given: Any) -> None:
        known("toolResponse", given, "tool_response")
        if not given.get("functionResponses"):
            raise Refused("no function_responses")
        for response in given["functionResponses"]:
            known("functionResponse", response, "function_responses")
            if self.calls.get(response.get("id")) != response.get("name"):
                raise Refused(f"no open call has the id {response.get('id')!r}")
            if not isinstance(response.get("response"), dict):
                raise Refused("function_response.response: a Struct is required")
            if response.get("scheduling", "SILENT") not in ("SILENT", "WHEN_IDLE", "INTERRUPT"):
                raise Refused("Invalid value at 'scheduling'")
            if not response.get("willContinue"):
                del self.calls[response["id"]]


class LiveServer:
    """`url` has no version. `open` is the number of connections that are open now."""

    def __init__(self) -> None:
        self.url = ""
        self.tls_url = ""
        self.lines: list[Line] = []
        """All sessions that were accepted, oldest first."""
        self.refusals: deque[tuple[int, str]] = deque()
        """Close codes and reasons for the next set-ups."""
        self.statuses: deque[int] = deque()
        """HTTP statuses for the next handshakes."""
        self.cuts: deque[tuple[int, str]] = deque()
        """Close codes and reasons with which the next sessions end as soon as they are accepted; nothing more is read then."""
        self.mute = False
        """Whether set-ups are left without an answer."""
        self.handles: dict[str, Line] = {}
        self.faults: list[str] = []
        """What was wrong with what clients sent."""
        self.urls: list[str] = []
        """All handshakes, path and query."""
        self.open = 0
        self._seen = 0
        self._changed = anyio.Event()

    async def connection(self) -> Line:
        """The next session that the test has not seen yet."""
        while self._seen >= len(self.lines):
            await self._changed.wait()
        self._seen += 1
        return self.lines[self._seen - 1]

    async def all_closed(self) -> None:
        while self.open:
            await self._changed.wait()

    async def opened(self) -> None:
        """Return when there is a connection, accepted or not."""
        while not self.open:
            await self._changed.wait()

    def notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.urls.append(request.path_qs)
        if self.statuses:
            return web.Response(status=self.statuses.popleft(), headers={"location": self.url + "/elsewhere"})
        websocket = web.WebSocketResponse(timeout=0.2, max_msg_size=16 * 1024 * 1024)
        await websocket.prepare(request)
        self.open += 1
        line = Line(self, websocket, request)
        self.notify()
        try:
            if "key" in request.query or line.headers.get("x-goog-api-key") != KEY:
                await line.close(1007, f"API key {line.headers.get('x-goog-api-key')} not valid. Pass a valid one.")
                return websocket
            await line.run()
        except (Refused, KeyError, TypeError, AttributeError, ValueError) as error:
            self.faults.append(f"{type(error).__name__}: {error}")
            await line.close(1007, str(error)[:120])
        finally:
            self.open -= 1
            line.over()
            self.notify()
        return websocket


@asynccontextmanager
async def serve(tls: ssl.SSLContext | None = None) -> AsyncIterator[LiveServer]:
    """The server, for as long as the block runs; with `tls` also at `tls_url`, as the vendor's client needs it. At the end all
    connections must be closed by their clients, and nothing wrong have been sent."""
    server = LiveServer()
    app = web.Application()
    app.router.add_get(PATH.replace("{version}", "{version:v1beta|v1alpha}"), server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        ear = socket.socket()
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # so that a network without a reader fills up soon
        ear.bind(("127.0.0.1", 0))
        await web.SockSite(runner, ear).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        if tls is not None:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            server.tls_url = f"https://127.0.0.1:{runner.addresses[1][1]}"
        yield server
        await server.all_closed()
        assert not server.faults
    finally:
        await runner.cleanup()


def tls_of(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The two sides of TLS for 127.0.0.1: a server's, and that of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fake")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "fake.pem", folder / "fake.key"
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(public, private)
    return server, ssl.create_default_context(cafile=str(public))


def known(kind: str, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"Invalid value at '{where}'")
    for name in value.keys() - FIELDS[kind]:
        raise Refused(f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field.")
    return value
