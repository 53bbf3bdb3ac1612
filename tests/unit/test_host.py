"""The host over a table of toy routes: spec rest 4 and 8 (statements 1-10, 85-92), FR-015, FR-169, hostile paths."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from polyport.protocols.streaming import SseStream, pump, unless_gone
from polyport.seams import Seams
from polyport.testing.connect import Client, connect
from polyport.testing.websocket import Refused, WebSocket

SESSION = "/apps/{app}/users/{user}/sessions/{session}"


class Note(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""
    deep: Any = None


async def health(request: Request, send: Send) -> None:
    await send_json(send, {"status": "ok"})


async def params(request: Request, send: Send) -> None:
    await send_json(send, request.params)


async def remove(request: Request, send: Send) -> None:
    await send_empty(send)


async def echo(request: Request, send: Send) -> None:
    await send_json(send, await request.json(Note))


async def size(request: Request, send: Send) -> None:
    await send_json(send, {"size": len(await request.body())})


async def query(request: Request, send: Send) -> None:
    await send_json(
        send,
        {
            "name": request.query_text("appName", "app_name"),
            "size": request.query_int("size", 0, 10, 5),
            "flag": request.query_bool("flag"),
            "all": request.query.get("m", []),
        },
    )


def raising(error: BaseException) -> Any:
    async def handler(request: Request, send: Send) -> None:
        raise error

    return handler


async def socket(request: Request, send: Send) -> None:
    await request.receive()
    await send({"type": "websocket.accept"})
    while (message := await request.receive())["type"] != "websocket.disconnect":
        if message.get("text") == "fail":
            raise NotFound("ünknown " * 30)
        await send({"type": "websocket.send", "text": message.get("text", "") + request.params["name"]})


ROUTES = [
    Route("GET", "/", params),
    Route("GET", "/health", health, public=True),
    Route("GET", "/list-apps", params),
    Route("POST", "/run", echo),
    Route("POST", "/size", size),
    Route("GET", "/query", query),
    Route("GET", "/apps/{app}/users/{user}/sessions", params),
    Route("GET", SESSION, params),
    Route("POST", SESSION, params),
    Route("DELETE", SESSION, remove),
    Route("GET", "/runs/{id}", params),
    Route("POST", "/runs/{id}:cancel", params),
    Route("GET", "/runs/latest", health),
    Route("GET", "/runs/latest/{what}", params),
    Route("GET", "/runs/{id}/events", params, head=False),
    Route("GET", "/ui/{path*}", params),
    Route("WEBSOCKET", "/live/{name}", socket),
]


@asynccontextmanager
async def served(*more: Route, **options: Any) -> AsyncIterator[Client]:
    async with connect(Host([*ROUTES, *more], **options)) as client:
        yield client


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
    return [root, *(kind for child in root.__subclasses__() for kind in kinds(child))]


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


async def test_rest_86_87_trailing_slashes_work_in_place() -> None:
    async with served() as client:
        assert (await client.post("/run/", json={"text": "x"})).json()["text"] == "x"
        assert (await client.post("/run//", json={"text": "x"})).json()["text"] == "x"
        assert (await client.get("/apps/a/users/u/sessions/")).json() == {"app": "a", "user": "u"}
        assert (await client.get("/run%2F")).status == 404


async def test_rest_88_the_root_stays_the_root() -> None:
    async with served() as client:
        assert (await client.get("/")).json() == {}


async def test_rest_89_an_encoded_slash_stays_in_its_segment() -> None:
    async with served() as client:
        answer = await client.get("/apps/a/users/u%40x/sessions/s%2F1%20%C3%A9")
        deeper = await client.get("/apps/a/users/u/sessions%2Fs")
    assert answer.json() == {"app": "a", "user": "u@x", "session": "s/1 é"}
    assert deeper.status == 404


@pytest.mark.parametrize("segment", ["..", ".", "%2e%2E", "", "%00", "%0a", "%7f", "%c2%85", "%ff", "%zz", "%4"])
async def test_rest_98_hostile_segments_are_400(segment: str) -> None:
    async with served() as client:
        answer = await client.get(f"/apps/a/users/{segment}/sessions/s")
    assert answer.status == 400
    assert set(answer.json()) == {"error", "detail"}


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
    assert answer.status == 413
    assert pulled == 11


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


async def test_rest_92_the_api_prefix_matches_whole_segments() -> None:
    async with served() as client:
        assert (await client.get("/api/list-apps")).status == 200
        assert (await client.get("/api/runs/r1")).json() == {"id": "r1"}
        assert (await client.get("/api/")).status == 200
        assert (await client.get("/apix/list-apps")).status == 404
        assert (await client.get("/api/api/list-apps")).status == 404


async def test_verbs_and_literals_come_before_parameters() -> None:
    async with served() as client:
        assert (await client.post("/runs/a:b:cancel")).json() == {"id": "a:b"}
        assert (await client.get("/runs/a%3Acancel")).json() == {"id": "a:cancel"}
        assert (await client.get("/runs/a:other")).json() == {"id": "a:other"}
        assert (await client.get("/runs/a:cancel")).status == 405
        assert (await client.post("/runs/%2e%2e:cancel")).status == 400
        assert (await client.get("/runs/latest")).json() == {"status": "ok"}
        assert (await client.get("/runs/latest/events")).json() == {"what": "events"}
        assert (await client.get("/runs/l%61test")).json() == {"status": "ok"}


async def test_a_literal_that_leads_nowhere_does_not_hide_a_parameter() -> None:
    routes = [
        Route("GET", "/t/{tenant}/tasks", params),
        Route("GET", "/t/me/cards", params),
        Route("GET", "/t/{id}:x/y", params),
    ]
    async with served(*routes) as client:
        assert (await client.get("/t/me/tasks")).json() == {"tenant": "me"}
        assert (await client.get("/t/a:x/tasks")).json() == {"tenant": "a:x"}
        assert (await client.get("/t/a:x/y")).json() == {"id": "a"}


async def test_the_rest_of_a_path_never_leaves_its_root() -> None:
    async with served() as client:
        assert (await client.get("/ui/")).json() == {"path": ""}
        assert (await client.get("/ui/assets/a%20b.js/")).json() == {"path": "assets/a b.js"}
        assert (await client.get("/ui")).status == 404
        for path in ("/ui/..%2f..%2fetc", "/ui/%2e%2e/x", "/ui/a//b", "/ui/..%5cx"):
            assert (await client.get(path)).status == 400, path


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


def test_routes_that_clash_are_refused_when_the_host_is_made() -> None:
    with pytest.raises(ConfigError, match="two routes for GET"):
        Host([Route("GET", "/a/{x}", params), Route("GET", "/a/{y}", params)])
    for pattern in ("a", "/a/", "/{x", "/{x}-{y}", "/{x*}/y", "/{x}/{x}"):
        with pytest.raises(ConfigError):
            Host([Route("GET", pattern, params)])
    with pytest.raises(ConfigError):
        Host([], prefixes=("api",))
    with pytest.raises(ConfigError, match="body_bytes"):
        Limits(body_bytes=0)
    Host([Route("HEAD", "/a", params), Route("GET", "/a", params)])


def test_rest_59_an_sse_timeout_of_zero_is_the_default() -> None:
    assert [Limits(sse_timeout_s=s).sse_deadline_s for s in (0, -1, 3)] == [120.0, None, 3]


# ---- start-up


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


# ---- streams


async def frames(count: int, released: anyio.Event | None = None) -> AsyncIterator[bytes]:
    for i in range(count):
        yield b"data: %d\n\n" % i
    if released is not None:
        await released.wait()
        yield b"data: last\n\n"


async def test_rest_49_51_a_stream_arrives_as_it_is_made() -> None:
    released = anyio.Event()
    ended: list[str] = []

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        ended.append(await pump(request, stream, frames(2, released)))
        await stream.close()

    async with served(Route("GET", "/s", handler)) as client, client.stream("GET", "/s") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["connection"] == "keep-alive"
        assert response.headers["x-accel-buffering"] == "no"
        events = response.events()
        assert [(await anext(events)).data, (await anext(events)).data] == ["0", "1"]
        released.set()
        assert [event.data async for event in events] == ["last"]
    assert ended == ["done"]


async def test_a_quiet_stream_gets_heartbeats_and_its_iterator_lives_on() -> None:
    released = anyio.Event()

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        await pump(request, stream, frames(1, released), heartbeat_s=0.002)
        await stream.close()

    async with served(Route("GET", "/s", handler)) as client, client.stream("GET", "/s") as response:
        lines = [await anext(response.lines()) for _ in range(6)]
        assert lines == ["data: 0", "", ": ping", "", ": ping", ""]
        released.set()
        rest = [line async for line in response.lines() if line.startswith("data")]
    assert rest == ["data: last"]


async def test_rest_57_a_hang_up_ends_the_stream_and_closes_the_iterator() -> None:
    told: list[str] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            await anyio.sleep_forever()
        finally:
            told.append("closed")

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        told.append(await pump(request, stream, endless()))

    async with served(Route("GET", "/s", handler)) as client:
        async with client.stream("GET", "/s") as response:
            await anext(response.events())
        assert told == ["closed", "gone"]
        assert response.late_writes == 0


async def test_rest_58_the_time_of_a_stream_ends_it() -> None:
    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        ended = await pump(request, stream, frames(1, anyio.Event()), timeout_s=0.01)
        await stream.send(b"data: " + ended.encode() + b"\n\n")
        await stream.close()

    async with served(Route("GET", "/s", handler)) as client, client.stream("GET", "/s") as response:
        assert [event.data async for event in response.events()] == ["0", "timeout"]


async def test_an_error_of_the_iterator_is_raised_bare() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise NotFound("gone")

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        try:
            await pump(request, stream, failing(), heartbeat_s=60)
        except NotFound as error:
            await stream.send(b"data: %s\n\n" % str(error).encode())
        await stream.close()

    async with served(Route("GET", "/s", handler)) as client, client.stream("GET", "/s") as response:
        assert [event.data async for event in response.events()] == ["1", "gone"]


async def test_an_answer_that_breaks_off_is_seen_by_the_client() -> None:
    async def handler(request: Request, send: Send) -> None:
        await SseStream(send).start()
        raise ValueError("late")

    async with served(Route("GET", "/s", handler)) as client:
        with pytest.raises(AssertionError, match="without finishing"):
            await client.get("/s")
        assert (await client.get("/health")).status == 200


async def test_unless_gone_cancels_the_work_of_a_client_that_left() -> None:
    told: list[str] = []
    working = anyio.Event()

    async def work() -> str:
        try:
            working.set()
            await anyio.sleep_forever()
        finally:
            told.append("cancelled")
        return ""

    async def handler(request: Request, send: Send) -> None:
        try:
            await unless_gone(request, work)
        except ClientGone:
            told.append("gone")
            raise

    async def quick(request: Request, send: Send) -> None:
        async def answer() -> dict[str, int]:
            return {"a": 1}

        await send_json(send, await unless_gone(request, answer))

    host = Host([Route("POST", "/slow", handler), Route("POST", "/quick", quick)])
    async with connect(host) as client:
        assert (await client.post("/quick")).json() == {"a": 1}
    scope = {"type": "http", "method": "POST", "path": "/slow", "query_string": b"", "headers": []}

    async def receive() -> dict[str, Any]:
        await working.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError("nobody reads an answer")

    await host(scope, receive, send)
    assert told == ["cancelled", "gone"]


# ---- WebSocket


async def test_a_websocket_route_gets_its_parameters() -> None:
    async with served() as client, client.websocket("/api/live/bob") as ws:
        await ws.send_text("hi ")
        assert await ws.receive() == "hi bob"


async def test_rest_65_a_plain_get_of_a_websocket_path_is_400() -> None:
    async with served() as client:
        assert (await client.get("/live/bob")).status == 400
        assert (await client.post("/live/bob")).headers["allow"] == "GET, OPTIONS"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/nope", {}, 404),
        ("/run", {}, 404),
        ("/live/..", {}, 400),
        ("/live/bob", {"origin": "http://evil.test"}, 403),
        ("/live/bob", {"host": "evil.test"}, 403),
    ],
)
async def test_rest_66_handshakes_are_refused_with_a_status(path: str, headers: dict[str, str], status: int) -> None:
    async with served() as client:
        with pytest.raises(Refused) as refused:
            async with client.websocket(path, headers=headers):
                pass
    assert refused.value.response.status == status
    assert set(refused.value.response.json()) == {"error", "detail"}


async def test_a_server_without_the_extension_closes_instead() -> None:
    ws = WebSocket({"type": "websocket", "path": "/nope", "query_string": b"", "headers": []})
    await ws.run(Host(ROUTES))
    assert (ws.code, ws.reason) == (1008, "HTTP 404")


async def test_rest_74_an_error_closes_with_1011_and_a_reason_that_fits() -> None:
    async with served() as client, client.websocket("/live/bob") as ws:
        await ws.send_text("fail")
        assert [message async for message in ws] == []
    assert ws.code == 1011
    assert ws.reason.startswith("ünknown ")
    assert 120 <= len(ws.reason.encode()) <= 123


# ---- anything at all


@settings(max_examples=300, deadline=None)
@given(
    raw=st.one_of(
        st.binary(max_size=60),
        st.lists(
            st.sampled_from(
                ["apps", "users", "sessions", "runs", "ui", "api", "..", ".", "", "%2e", "%2F", "%", "a:cancel"]
            )
            | st.text(max_size=6),
            max_size=9,
        ).map(lambda parts: "/".join(["", *parts]).encode("utf-8", "surrogatepass")),
    ),
    method=st.sampled_from(["GET", "HEAD", "POST", "OPTIONS", "DELETE", "BREW"]),
    headers=st.lists(
        st.tuples(
            st.sampled_from([b"host", b"origin", b"content-length", b"content-type", b"x-request-id", b"accept"]),
            st.binary(max_size=30),
        ),
        max_size=5,
    ),
)
def test_no_path_and_no_header_leads_to_a_redirect_or_a_crash(raw: bytes, method: str, headers: Any) -> None:
    answers: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        answers.append(message)

    async def main() -> None:
        scope = {
            "type": "http",
            "method": method,
            "path": "/",
            "raw_path": raw,
            "query_string": b"",
            "headers": headers,
        }
        await Host(ROUTES)(scope, receive, send)

    anyio.run(main)
    assert answers[0]["status"] in (200, 204, 400, 403, 404, 405, 413)
    assert not answers[-1].get("more_body")
    for name, value in answers[0]["headers"]:
        assert name != b"location"
        assert not set(b"\r\n\0") & set(value)
