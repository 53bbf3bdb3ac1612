"""Who may call from where: spec rest 4.4 and statements 66, 85, 91; FR-226."""

from typing import Any

import pytest

from polyport.protocols.answers import send_json
from polyport.protocols.guard import Guard
from polyport.protocols.host import Host
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route
from polyport.testing.connect import Response, connect
from polyport.testing.websocket import Refused


async def ok(request: Request, send: Send) -> None:
    await send_json(send, {"user": request.caller.user})


ROUTES = [Route("GET", "/health", ok, public=True), Route("POST", "/sessions", ok), Route("GET", "/sessions", ok)]


async def ask(guard: Guard, headers: Any, method: str = "POST", path: str = "/sessions") -> Response:
    async with connect(Host(ROUTES, guard=guard)) as client:
        return await client.request(method, path, headers=headers)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8000",
        "127.0.0.1:8000",
        "127.8.9.1",
        "[::1]:8000",
        "[::1]",
        "app.localhost:1",
        "localhost.",
    ],
)
async def test_loopback_hosts_pass(host: str) -> None:
    answer = await ask(Guard(), {"host": host})
    assert (answer.status, answer.json()) == (200, {"user": ""})


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "evil.test:8000",
        "localhost.evil.test",
        "evillocalhost",
        "127.0.0.1.evil.test",
        "10.0.0.5",
        "[::2]",
        "::1",
        "localhost:80:80",
        "localhost:x",
        "[::1",
        "",
        ":80",
        "127.1",
        "0x7f.1",
        "a@localhost",
        "localhost/",
    ],
)
async def test_other_hosts_are_403_and_the_body_names_the_flag(host: str) -> None:
    answer = await ask(Guard(), {"host": host})
    assert answer.status == 403
    assert "--allowed-hosts" in answer.json()["error"]


async def test_the_bind_host_and_allowed_hosts_pass() -> None:
    guard = Guard(["api.test", "*.lan.test", "port.test:81"], bind_host="10.0.0.5")
    for host in ("10.0.0.5:8000", "api.test", "API.test:99", "a.lan.test", "port.test:81"):
        assert (await ask(guard, {"host": host})).status == 200, host
    for host in ("10.0.0.6", "lan.test", "xapi.test", "port.test:82"):
        assert (await ask(guard, {"host": host})).status == 403, host


async def test_a_server_on_all_addresses_takes_any_address_but_no_unknown_name() -> None:
    guard = Guard(bind_host="0.0.0.0")
    assert (await ask(guard, {"host": "192.168.1.7:8000"})).status == 200
    assert (await ask(guard, {"host": "[2001:db8::1]:8000"})).status == 200
    assert (await ask(guard, {"host": "rebound.test:8000"})).status == 403


async def test_a_host_that_was_accepted_once_does_not_let_a_second_one_in() -> None:
    async with connect(Host(ROUTES, guard=Guard())) as client:
        assert (await client.post("/sessions", headers={"host": "localhost"})).status == 200
        twice = [("host", "evil.test"), ("host", "localhost")]
        assert (await client.post("/sessions", headers=twice)).status == 400
        assert (await client.post("/sessions", headers={"host": "evil.test"})).status == 403


async def test_rest_66_absent_and_same_origins_pass() -> None:
    guard = Guard(["ui.test"])
    for headers in (
        {"host": "localhost:8000"},
        {"host": "localhost:8000", "origin": "http://localhost:8000"},
        {"host": "localhost", "origin": "http://localhost:80"},
        {"host": "UI.test", "origin": "http://ui.test"},
    ):
        assert (await ask(guard, headers)).status == 200, headers


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.test",
        "https://localhost:8000",
        "http://localhost:8001",
        "http://localhost:8000.evil.test",
        "null",
        "",
        "http://" + "a" * 2050,
    ],
)
async def test_rest_66_foreign_origins_are_403(origin: str) -> None:
    answer = await ask(Guard(), {"host": "localhost:8000", "origin": origin})
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


async def test_two_origins_are_refused() -> None:
    guard = Guard(allowed_origins=["https://ui.test"])
    headers = [("origin", "https://evil.test"), ("origin", "https://ui.test")]
    assert (await ask(guard, headers)).status == 403


CODESPACE = {
    "origin": "https://ws-8000.preview.test",
    "x-forwarded-host": "ws-8000.preview.test",
    "x-forwarded-proto": "https",
}


async def test_FR_226_a_proxied_browser_passes_with_the_flag_or_the_list() -> None:
    assert (await ask(Guard(trusted_proxy=True), CODESPACE)).status == 200
    assert (await ask(Guard(allowed_origins=["https://ws-8000.preview.test"]), CODESPACE)).status == 200
    through = {**CODESPACE, "host": "ws-8000.preview.test"}
    assert (await ask(Guard(allowed_origins=["https://ws-8000.preview.test"]), through)).status == 200
    forwarded = {
        "origin": CODESPACE["origin"],
        "forwarded": 'for=1.2.3.4;host="ws-8000.preview.test";proto=https, for=9.9.9.9;host=evil.test',
    }
    assert (await ask(Guard(trusted_proxy=True), forwarded)).status == 200


async def test_FR_226_without_them_the_403_and_the_log_say_what_to_set(caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask(Guard(), CODESPACE)
    assert answer.status == 403
    assert "--trusted-proxy" in answer.json()["error"]
    assert "--allowed-origins https://ws-8000.preview.test" in answer.json()["error"]
    assert "ws-8000.preview.test" in caplog.text


async def test_a_trusted_proxy_does_not_let_foreign_origins_or_hosts_in() -> None:
    guard = Guard(trusted_proxy=True)
    assert (await ask(guard, {**CODESPACE, "origin": "https://evil.test"})).status == 403
    assert (await ask(guard, {**CODESPACE, "host": "evil.test"})).status == 403


async def test_public_routes_answer_any_origin_but_only_known_ones_may_read() -> None:
    answer = await ask(Guard(), {"origin": "http://evil.test"}, "GET", "/health")
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_rest_91_cors_is_for_exactly_the_allowed_origins() -> None:
    guard = Guard(allowed_origins=["https://ui.test/", "http://localhost:4200"])
    answer = await ask(guard, {"origin": "https://ui.test"})
    assert answer.headers["access-control-allow-origin"] == "https://ui.test"
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers
    missing = await ask(guard, {"origin": "https://ui.test"}, "GET", "/nope")
    assert (missing.status, missing.headers["access-control-allow-origin"]) == (404, "https://ui.test")
    plain = await ask(guard, {})
    assert plain.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in plain.headers
    assert (await ask(guard, {"origin": "http://ui.test"})).status == 403


async def test_rest_85_91_a_preflight_is_204_without_credentials() -> None:
    class Closed(Guard):
        async def admit(self, request: Request) -> Any:
            raise AssertionError("a preflight has no credentials")

    ask_first = {"origin": "https://ui.test", "access-control-request-method": "POST"}
    answer = await ask(Closed(allowed_origins=["https://ui.test"]), ask_first, "OPTIONS")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "https://ui.test"
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    assert "X-ADK-Telemetry-Request" in answer.headers["access-control-allow-headers"]
    assert (await ask(Guard(), ask_first, "OPTIONS")).status == 403


async def test_a_star_turns_a_check_off() -> None:
    headers = {"host": "any.test", "origin": "https://other.test"}
    answer = await ask(Guard.open(), headers)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
    assert (await ask(Guard(["*"]), headers)).status == 403
    assert (await ask(Guard(allowed_origins=["*"]), headers)).status == 403


async def test_a_page_never_sees_hostile_text_of_its_own_raw_in_the_body() -> None:
    answer = await ask(Guard(), {"host": "évil\x1b[2J"})
    assert answer.status == 403
    assert answer.body.isascii()
    assert "\x1b" not in answer.text


async def hello(request: Request, send: Send) -> None:
    await request.receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": 1000})


async def handshake(guard: Guard, **headers: str) -> int:
    async with connect(Host([Route("WEBSOCKET", "/live", hello)], guard=guard)) as client:
        try:
            async with client.websocket("/live", headers=headers):
                return 101
        except Refused as refused:
            return refused.response.status


async def test_a_websocket_is_opened_by_known_pages_and_for_known_hosts_only() -> None:
    here = {"host": "localhost:8000"}
    assert await handshake(Guard(), **here) == 101, "no browser"
    assert await handshake(Guard(), **here, origin="http://localhost:8000") == 101
    for origin in ("http://evil.test", "https://localhost:8000", "null", "http://localhost:8001"):
        assert await handshake(Guard(), **here, origin=origin) == 403, origin
    assert await handshake(Guard(allowed_origins=["http://evil.test"]), **here, origin="http://evil.test") == 101
    assert await handshake(Guard(), host="evil.test", origin="http://evil.test") == 403, "DNS rebinding"
    proxied = {"host": "localhost", "origin": "https://ws.preview.test", "x-forwarded-host": "ws.preview.test"}
    assert await handshake(Guard(trusted_proxy=True), **proxied, **{"x-forwarded-proto": "https"}) == 101
    assert await handshake(Guard(), **proxied, **{"x-forwarded-proto": "https"}) == 403


async def test_pages_of_allowed_origins_may_send_credentials_and_read_what_they_need() -> None:
    guard = Guard(allowed_origins=["https://ui.test"])
    ask_first = {"origin": "https://ui.test", "access-control-request-method": "POST"}
    preflight = await ask(guard, ask_first, "OPTIONS")
    allowed = preflight.headers["access-control-allow-headers"].split(", ")
    for name in (
        "Authorization",
        "X-API-Key",
        "Content-Type",
        "Last-Event-ID",
        "Mcp-Session-Id",
        "Mcp-Protocol-Version",
    ):
        assert name in allowed
    answer = await ask(guard, {"origin": "https://ui.test"})
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    for name in ("X-Next-Page-Token", "X-Run-Id", "X-Request-Id", "Retry-After", "Mcp-Session-Id", "WWW-Authenticate"):
        assert name in exposed
