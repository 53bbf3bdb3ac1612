"""The host over a table of toy routes: spec rest 4 and 8 (statements 1-10, 85, 90), FR-015, FR-169."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from polyport.data.limits import Limits
from polyport.errors import (
    STATUS,
    BadRequest,
    ConfigError,
    LimitExceeded,
    NotFound,
    PolyportError,
    Unauthenticated,
)
from polyport.protocols.answers import send_empty, send_json
from polyport.protocols.guard import Guard
from polyport.protocols.host import Host
from polyport.protocols.http import ClientGone, Request, Send
from polyport.protocols.routes import Route
from polyport.seams import Seams
from polyport.testing.connect import connect
from support.toys import ROUTES, params, raising, served


async def test_rest_1_health_body_is_exact() -> None:
    async with served() as client:
        answer = await client.get("/health")
    assert (answer.status, answer.body) == (200, b'{"status":"ok"}\n')
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_rest_5_unknown_path_is_404_without_redirect() -> None:
    async with served() as client:
        answer = await client.get("/nope")
    assert answer.status == 404
    assert "/nope" in answer.json()["error"]
    assert "location" not in answer.headers


async def test_rest_6_wrong_method_is_405_with_sorted_allow() -> None:
    async with served() as client:
        run = await client.put("/run")
        session = await client.patch("/apps/a/users/u/sessions/s")
    assert (run.status, run.headers["allow"]) == (405, "OPTIONS, POST")
    assert set(run.json()) == {"error", "detail"}
    assert session.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, POST"


async def test_rest_7_head_has_the_headers_and_no_body() -> None:
    async with served() as client:
        answer = await client.request("HEAD", "/health")
        stream = await client.request("HEAD", "/runs/r1/events")
        missing = await client.request("HEAD", "/nope")
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "16")
    assert stream.status == 405
    assert (missing.status, missing.body) == (404, b"")


async def test_rest_8_json_success_has_the_type_and_one_newline() -> None:
    async with served() as client:
        answer = await client.post("/run", json={"text": "héllo\n"})
        empty = await client.delete("/apps/a/users/u/sessions/s")
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    assert answer.body == '{"text":"héllo\\n","deep":null}\n'.encode()
    assert (empty.status, empty.body, empty.headers["content-type"]) == (200, b"", answer.headers["content-type"])


@pytest.mark.parametrize(
    ("error", "status", "more"),
    [
        (BadRequest("appName is required", "appName"), 400, {}),
        (Unauthenticated("unauthorized"), 401, {"www-authenticate": "Bearer"}),
        (NotFound("no such session"), 404, {}),
        (LimitExceeded("too many runs", 2.1), 429, {"retry-after": "3"}),
        (ExceptionGroup("tasks", [NotFound("no such session")]), 404, {}),
    ],
)
async def test_rest_10_error_bodies_have_error_and_detail(error: Exception, status: int, more: dict[str, str]) -> None:
    async with served(Route("GET", "/fails", raising(error))) as client:
        answer = await client.get("/fails")
    text = str(error.exceptions[0]) if isinstance(error, ExceptionGroup) else str(error)
    assert answer.status == status
    assert answer.json() == {"error": text, "detail": text}
    assert more.items() <= answer.headers.items()


def kinds(root: type[PolyportError]) -> list[type[PolyportError]]:
    """The errors of the one table; those of a protocol are tested with it."""
    found = [root, *(kind for child in root.__subclasses__() for kind in kinds(child))]
    return [kind for kind in found if kind.__module__ == PolyportError.__module__]


@pytest.mark.parametrize(
    "kind", [k for k in kinds(PolyportError) if k is not ClientGone], ids=lambda kind: kind.__name__
)
async def test_every_kind_of_error_has_the_status_of_the_table(kind: type[PolyportError]) -> None:
    async with served(Route("GET", "/fails", raising(kind("what was wrong")))) as client:
        answer = await client.get("/fails")
    assert answer.status == STATUS[kind.kind].http
    assert answer.json()["error"] == "what was wrong"


async def test_an_unexpected_error_says_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Route("GET", "/fails", raising(ValueError("postgres://me:secret@db")))) as client:
        answer = await client.get("/fails", headers={"x-request-id": "r-7"})
    assert answer.status == 500
    assert answer.json()["error"] == "internal error"
    assert answer.json()["requestId"] == answer.headers["x-request-id"] == "r-7"
    assert "secret" not in answer.text
    assert "secret" in caplog.text
    assert "r-7" in caplog.text


async def test_rest_9_3_errors_for_event_clients_are_one_data_frame() -> None:
    async with (
        served() as client,
        client.stream("POST", "/run", json={"nope": 1}, headers={"accept": "text/event-stream"}) as response,
    ):
        events = [event async for event in response.events()]
    assert response.status == 400
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [msgspec.json.decode(event.data)["error"] for event in events] == ['unknown field "nope"']


async def test_a_route_may_write_its_own_errors() -> None:
    async def writer(send: Send, request: Request, error: BaseException) -> None:
        await send_json(send, {"code": type(error).__name__}, 418)

    class Closed(Guard):
        async def admit(self, request: Request) -> Any:
            raise Unauthenticated("unauthorized")

    async with served(Route("GET", "/own", params, on_error=writer), guard=Closed()) as client:
        answer = await client.get("/own")
    assert (answer.status, answer.json()) == (418, {"code": "Unauthenticated"})


async def test_rest_81_a_refused_caller_reaches_no_handler_but_public_routes_answer() -> None:
    class Closed(Guard):
        async def admit(self, request: Request) -> Any:
            raise Unauthenticated("unauthorized")

    async with served(guard=Closed()) as client:
        assert (await client.get("/list-apps")).status == 401
        assert (await client.get("/health")).status == 200
        assert (await client.request("OPTIONS", "/run")).status == 204


async def test_rest_90_a_declared_body_over_the_limit_is_413_before_it_is_read() -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    async with served(limits=Limits(body_bytes=10)) as client:
        answer = await client.post("/size", body=never(), headers={"content-length": "11"})
        fits = await client.post("/size", body=b"0123456789")
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert "10 bytes" in answer.json()["error"]
    assert fits.json() == {"size": 10}


async def test_FR_015_a_chunked_body_of_200_MB_is_413_early() -> None:
    pulled = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal pulled
        for _ in range(200):
            pulled += 1
            yield bytes(1024 * 1024)

    async with served() as client:
        answer = await client.post("/size", body=body())
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert 11 <= pulled <= 15


async def test_FR_015_ten_megabytes_pass_whole_and_chunked() -> None:
    text = b'{"text":"' + b"x" * (10 * 1024 * 1024 - 11) + b'"}'

    async def body() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 1_000_000):
            yield text[start : start + 1_000_000]

    async with served() as client:
        assert (await client.post("/run", body=text)).status == 200
        assert (await client.post("/size", body=body())).json() == {"size": 10 * 1024 * 1024}


async def test_FR_015_a_body_made_to_slow_the_depth_check_is_refused_at_once() -> None:
    body = b'{"deep":"' + b"[" * 65 + b'\\"' * 2_000_000
    async with served() as client:
        assert (await client.post("/run", body=body)).status == 400


async def test_deep_json_is_400() -> None:
    async with served() as client:
        fine = await client.post("/run", body=b'{"deep":' + b"[" * 63 + b"]" * 63 + b"}")
        deep = await client.post("/run", body=b'{"deep":' + b"[" * 64 + b"]" * 64 + b"}")
    assert (fine.status, deep.status) == (200, 400)


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "Text/Plain"])
async def test_rest_4_5_forms_of_other_sites_are_refused(kind: str) -> None:
    async with served() as client:
        answer = await client.post("/run", body=b"{}", headers={"content-type": kind})
        missing = await client.post("/run", body=b"{}")
    assert answer.status == 400
    assert "application/json" in answer.json()["error"]
    assert missing.status == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 30, ""])
async def test_a_wrong_content_length_is_400(length: str) -> None:
    async with served() as client:
        answer = await client.post("/size", body=b"x", headers={"content-length": length})
    assert answer.status == 400


async def test_rest_4_3_options_is_204_with_allow() -> None:
    async with served() as client:
        answer = await client.request("OPTIONS", "/runs/r1:cancel")
        missing = await client.request("OPTIONS", "/nope")
    assert (answer.status, answer.body, answer.headers["allow"]) == (204, b"", "OPTIONS, POST")
    assert missing.status == 404


async def test_the_query_is_read_lazily_and_the_first_value_wins() -> None:
    async with served() as client:
        answer = await client.get("/query?app_name=b&appName=&size=7&size=9&flag=TRUE&m=1&m=2%263")
        assert answer.json() == {"name": "b", "size": 7, "flag": True, "all": ["1", "2&3"]}
        assert (await client.get("/query?appName=a&app_name=b")).json()["name"] == "a"
        assert (await client.get("/query?size=")).json()["size"] == 5
        text = (await client.get("/query?size=x")).json()["error"]
        assert text == "size parameter must be an integer"
        assert "size" in (await client.get("/query?size=11")).json()["error"]
        assert (await client.get("/query?flag=maybe")).status == 400
        assert (await client.get("/query?" + "&".join(["a=1"] * 101))).status == 400


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", 'a"\tb'])
async def test_a_request_id_is_echoed_when_sane_and_made_when_not(given: str) -> None:
    async with served(seams=Seams(new_id=lambda: "made")) as client:
        sane = await client.get("/health", headers={"x-request-id": "abc-1"})
        made = await client.get("/health", headers={"x-request-id": given})
    assert (sane.headers["x-request-id"], made.headers["x-request-id"]) == ("abc-1", "made")


async def test_the_access_log_has_one_line_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    async def ran(request: Request, send: Send) -> None:
        request.run_id = "run-1"
        await send_empty(send)

    ticks = iter([10.0, 10.25])
    caplog.set_level(logging.INFO, "polyport.access")
    async with served(Route("GET", "/ran/{x}", ran), seams=Seams(clock=lambda: next(ticks))) as client:
        await client.get("/ran/a%20b?key=secret", headers={"x-request-id": "r1"})
    lines = [record.getMessage() for record in caplog.records if record.name == "polyport.access"]
    assert lines == ["GET /ran/a%20b 200 250.0ms request=r1 run=run-1"]


async def test_the_lifespan_surrounds_the_requests() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with anyio.create_task_group():
            seen.append("up")
            yield
            seen.append("down")

    async with served(lifespan=lifespan) as client:
        await client.get("/health")
        assert seen == ["up"]
    assert seen == ["up", "down"]


async def test_a_failed_start_surfaces() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise ConfigError("no model key: set KEY")
        yield

    with pytest.raises(ConfigError, match="set KEY"):
        async with served(lifespan=lifespan):
            pass


async def test_FR_169_without_a_lifespan_the_answer_names_it() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield

    async with connect(Host(ROUTES, lifespan=lifespan), lifespan=False) as client:
        answer = await client.get("/health")
    assert answer.status == 503
    assert "lifespan" in answer.json()["error"]


async def test_FR_169_a_lazy_start_happens_once_and_is_tried_again_after_a_failure() -> None:
    starts: list[str] = []

    async def start() -> None:
        await anyio.lowlevel.checkpoint()
        starts.append("try")
        if len(starts) == 1:
            raise ConfigError("store is down")

    async with connect(Host(ROUTES, ensure_started=start), lifespan=False) as client:
        assert (await client.get("/health")).status == 500
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(client.get, "/health")
    assert starts == ["try", "try"]


async def test_FR_169_mounted_under_a_path_it_serves_below_it() -> None:
    async def prefix(request: Request, send: Send) -> None:
        await send_json(send, {"prefix": request.prefix, **request.params})

    host = Host([Route("GET", "/card/{x}", prefix)])

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        await host({**scope, "root_path": "/agents/x"}, receive, send)

    async with connect(outer, lifespan=False) as client:
        assert (await client.get("/agents/x/api/card/1")).json() == {"prefix": "/agents/x/api", "x": "1"}
        assert (await client.get("/agents/x/card/a%2Fb")).json() == {"prefix": "/agents/x", "x": "a/b"}
        assert (await client.get("/card/1")).json() == {"prefix": "/agents/x", "x": "1"}
        assert (await client.get("/agents/y/card/1")).status == 404


async def test_FR_015_a_client_that_is_still_sending_gets_to_read_the_413() -> None:
    log: list[str] = []

    async def receive() -> dict[str, Any]:
        log.append("receive")
        last = log.count("receive") == 5
        return {"type": "http.request", "body": bytes(6), "more_body": not last}

    async def send(message: Any) -> None:
        log.append(f"{message['type']} {message.get('more_body', '')}".strip())

    scope = {"type": "http", "method": "POST", "path": "/size", "query_string": b"", "headers": []}
    await Host(ROUTES, limits=Limits(body_bytes=10))(scope, receive, send)
    answer = ["http.response.start", "http.response.body True"]
    assert log == ["receive"] * 2 + answer + ["receive"] * 3 + ["http.response.body"]
