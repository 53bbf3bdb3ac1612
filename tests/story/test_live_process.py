"""Live sessions of a real server: frames over sockets, limits of the protocol, a signal in the middle, clients that vanish."""

import json
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from support.processes import PATIENCE_S, Serving

AGENT = '''
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from polyport import App, LlmAgent
from polyport.models.demo import DemoModel
from polyport.protocols.live import Live

class Told(DemoModel):
    """Says when a connection begins and ends."""

    @asynccontextmanager
    async def connect(self, request, config):
        print("line open", flush=True)
        try:
            async with super().connect(request, config) as line:
                yield line
        finally:
            print("line closed", flush=True)

def get_weather(city: str) -> dict:
    """The weather of a city."""
    return {"city": city, "sky": "clear"}

app = App(LlmAgent(name="bot", model=Told(), tools=[get_weather]), protocols=["rest", Live()])
'''


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot.py").write_text(AGENT)
    return tmp_path / "bot.py"


@asynccontextmanager
async def talking(serving: Serving, **query: Any) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
    """A client of a session of its own."""
    with anyio.fail_after(PATIENCE_S):
        async with aiohttp.ClientSession(serving.url) as http:
            made = await http.post("/apps/bot/users/u/sessions")
            params = {"appName": "bot", "userId": "u", "sessionId": (await made.json())["id"], **query}
            async with http.ws_connect("/run_live", params=params, max_msg_size=0) as socket:
                yield socket


async def turn(line: aiohttp.ClientWebSocketResponse) -> list[dict[str, Any]]:
    """The events up to the end of the model's turn."""
    events: list[dict[str, Any]] = []
    while not events or not events[-1].get("turnComplete"):
        events.append(json.loads(await line.receive_str()))
    return events


async def test_rest_69_72_73_a_conversation_in_words_and_in_sound(bot: Path):
    with Serving(str(bot)) as serving:
        async with talking(serving) as line:
            await line.send_json({"content": {"parts": [{"text": "What is the weather in Rome?"}]}})
            events = await turn(line)
            spoken = [
                e["outputTranscription"]["text"] for e in events if e.get("outputTranscription", {}).get("finished")
            ]
            assert spoken == ["Rome: city Rome, sky clear."]
            sounds = [
                p["inlineData"] for e in events for p in (e["content"] or {}).get("parts", []) if "inlineData" in p
            ]
            assert {s["mimeType"] for s in sounds} == {"audio/pcm;rate=24000"}
            loud, quiet = b"\x00\x20" * 8000, bytes(16000)
            for piece in (loud, quiet):
                await line.send_bytes(piece)
            heard = await turn(line)
            assert heard[0]["inputTranscription"]["text"] == "(0.5 seconds of sound)"
            await line.send_json({"close": True})
            end = await line.receive()
            assert (end.type, line.close_code) == (aiohttp.WSMsgType.CLOSE, 1000)
        serving.says("line closed")


async def test_rest_75_a_message_that_is_too_large_closes_with_1009_and_leaves_nothing_open(bot: Path):
    with Serving(str(bot)) as serving:
        async with talking(serving) as line:
            await line.send_bytes(bytes(17 * 1024 * 1024))
            while (await line.receive()).type not in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED):
                pass
            assert line.close_code == 1009
        serving.says("line closed")


async def test_a_signal_closes_sessions_and_their_models_and_the_server_ends(bot: Path):
    with Serving(str(bot)) as serving:
        async with talking(serving) as line:
            await line.send_json({"content": {"parts": [{"text": "hello"}]}})
            await turn(line)
            serving.signal(signal.SIGTERM)
            end = await line.receive()
            assert end.type == aiohttp.WSMsgType.CLOSE
            assert line.close_code in (1001, 1012)
        assert serving.ended() == 0
        assert serving.out.find("line closed")
        assert "Traceback" not in serving.err.text


async def test_a_client_that_vanishes_leaves_no_connection_to_the_model(bot: Path):
    with Serving(str(bot)) as serving:
        async with aiohttp.ClientSession(serving.url) as http:
            session = (await (await http.post("/apps/bot/users/u/sessions")).json())["id"]
        with socket.create_connection(("127.0.0.1", serving.port)) as raw:
            raw.sendall(
                f"GET /run_live?appName=bot&userId=u&sessionId={session} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
            )
            assert b" 101 " in raw.recv(4096)
            serving.says("line open")
        serving.says("line closed")


async def test_rest_63_the_handshake_is_refused_with_a_status(bot: Path):
    with Serving(str(bot)) as serving:
        async with aiohttp.ClientSession(serving.url) as http:
            with pytest.raises(aiohttp.WSServerHandshakeError) as missing:
                await http.ws_connect("/run_live", params={"appName": "bot"})
            assert missing.value.status == 400
            with pytest.raises(aiohttp.WSServerHandshakeError) as foreign:
                await http.ws_connect("/run_live", params={"appName": "bot"}, headers={"Origin": "https://evil.test"})
            assert foreign.value.status == 403
