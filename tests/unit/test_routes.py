"""How paths find routes: spec rest 4.1, 4.2 and statements 86-98, and hostile paths of any kind."""

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyport.data.limits import Limits
from polyport.errors import (
    ConfigError,
)
from polyport.protocols.host import Host
from polyport.protocols.routes import Route
from support.toys import ROUTES, params, served


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
