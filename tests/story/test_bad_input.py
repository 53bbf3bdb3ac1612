"""Bad input to every route, generated from the routes themselves, so that a new route cannot be forgotten.

Whatever is sent: a 4xx, in JSON that says what was wrong and where; never a redirect, a traceback or a 5xx.
"""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast
from urllib.parse import quote

import pytest
from msgspec import inspect as mi

from polyport import App, FunctionAgent, Part, RunContext
from polyport.data.content import FunctionCall
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.protocols.routes import Route
from polyport.testing.exchange import Response
from polyport.wire.adk import RunBody, SessionBody
from support.talk import Serve, Talk


async def silent(ctx: RunContext) -> None:
    return None


AGENT = FunctionAgent(name="app", function=silent)
ROUTES: list[Route] = [*App(AGENT).asgi.routes]
HTTP = [route for route in ROUTES if route.method != "WEBSOCKET"]
WITH_BODY = [route for route in HTTP if route.body is not None]
WITH_PARAMS = [route for route in ROUTES if "{" in route.pattern]
PARAM = re.compile(r"\{([a-z_]+)(\*?)\}")
HOME = {"app": "app", "user": "u1", "session": "s1", "name": "a.txt", "version": "1", "run": "e-1"}

DROPS_UNKNOWN = {
    ("POST", "/apps/{app}/users/{user}/sessions"): "spec rest 4.5",
    ("POST", "/apps/{app}/users/{user}/sessions/{session}"): "spec rest 4.5",
    ("PATCH", "/apps/{app}/users/{user}/sessions/{session}"): "spec rest 1.5",
    ("POST", "/apps/{app}/users/{user}/sessions/{session}/artifacts"): "google-adk's shape, with more fields",
}
"""Routes whose bodies may have unknown fields, and why; all others refuse them."""


def name_of(route: Route) -> str:
    return f"{route.method} {route.pattern}"


def each(routes: list[Route]) -> Any:
    return pytest.mark.parametrize("route", routes, ids=name_of)


def path_of(route: Route, **values: str) -> str:
    """The route's path with these parameters (as sent), and sound ones for the rest."""
    return PARAM.sub(lambda m: values.get(m[1], HOME.get(m[1], "x")), route.pattern)


def params_of(route: Route) -> list[str]:
    return [m[1] for m in PARAM.finditer(route.pattern)]


def ours(route: Route) -> bool:
    """Whether errors have REST's shape; other protocols spell theirs themselves."""
    return route.on_error is None


def check_error(response: Response, route: Route | None, *statuses: int) -> str:
    """The text of an error answer; AssertionError unless it is one of `statuses` and fit for a stranger."""
    assert response.status in (statuses or range(400, 500)), f"{response.status} {response.text[:300]}"
    assert "location" not in response.headers
    assert "Traceback" not in response.text and ".py" not in response.text
    if route is not None and not ours(route):
        return response.text
    body = response.json()
    assert set(body) == {"error", "detail"} and body["error"] == body["detail"] != ""
    assert response.headers["x-content-type-options"] == "nosniff"
    return body["error"]


@pytest.fixture
async def talk(serve: Serve) -> AsyncGenerator[Talk]:
    async with serve(AGENT) as talk:
        saved = await talk.client.post(
            talk.path + "/artifacts", json={"filename": "a.txt", "artifact": {"text": "unharmed"}}
        )
        assert saved.status == 200
        yield talk
        assert (await talk.client.get("/health")).status == 200


async def send(talk: Talk, route: Route, path: str, **options: Any) -> Response:
    """A request to the route; a valid empty body where one may be sent."""
    if route.method in ("POST", "PUT", "PATCH") and not options.keys() & {"json", "body"}:
        options["json"] = {}
    method = "GET" if route.method == "WEBSOCKET" else route.method
    return await talk.client.request(method, path, **options)


def test_rest_routes_say_what_they_take():
    """Every route of REST that takes a body declares its type; what follows is generated from that."""
    silent_routes = [
        name_of(r)
        for r in HTTP
        if r.method in ("POST", "PUT", "PATCH")
        and r.body is None
        and r.handler.__module__.startswith("polyport.protocols.rest")
    ]
    assert silent_routes == []
    assert {(r.method, r.pattern) for r in HTTP} >= set(DROPS_UNKNOWN), "the table names a route that is gone"


# ---- methods


@pytest.mark.parametrize("pattern", sorted({r.pattern for r in ROUTES}))
async def test_rest_6_wrong_methods_are_405_with_allow(talk: Talk, pattern: str):
    here = [r for r in ROUTES if r.pattern == pattern]
    right = {"GET" if r.method == "WEBSOCKET" else r.method for r in here} | {"OPTIONS"}
    right |= {"HEAD" for r in here if r.method == "GET" and r.head}
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"} - right:
        response = await talk.client.request(method, path_of(here[0]))
        assert response.status == 405 and "location" not in response.headers
        assert set(response.headers["allow"].split(", ")) == right
        if method != "HEAD":
            check_error(response, None, 405)
    options = await talk.client.request("OPTIONS", path_of(here[0]))
    assert options.status == 204 and set(options.headers["allow"].split(", ")) == right


# ---- bodies

MALFORMED = [
    b"{",
    b"}",
    b'{"a":1',
    b"[]",
    b'"x"',
    b"1",
    b"true",
    b"{}x",
    b"{}{}",
    b'{"a":NaN}',
    b"{'a':1}",
    b"\xff\xfe",
    b'{"a":"\xff"}',
    b'{"a":"\\ud800"}',
    b"\xef\xbb\xbf{}",
    b"\0",
    b'{"a":"\n"}',
]


@each(WITH_BODY)
async def test_rest_15_45_malformed_json_is_400(talk: Talk, route: Route):
    for body in MALFORMED:
        response = await send(talk, route, path_of(route), body=body, headers={"content-type": "application/json"})
        check_error(response, route, 400)


@each(WITH_BODY)
async def test_json_deeper_than_the_limit_is_400(talk: Talk, route: Route):
    for body in ('{"a":' + "[" * 64 + "]" * 64 + "}", '{"a":' * 65 + "1" + "}" * 65, "[" * 100_000):
        response = await send(talk, route, path_of(route), body=body)
        assert "64" in check_error(response, route, 400)


async def test_json_as_deep_as_the_limit_is_kept(talk: Talk):
    state = json.loads('{"a":' + "[" * 62 + "]" * 62 + "}")  # the body around it is one more
    response = await talk.client.post(talk.at("deep").path, json={"state": state})
    assert response.status == 200 and response.json()["state"] == state


@each([r for r in HTTP if r.method in ("POST", "PUT", "PATCH")])
async def test_rest_90_bodies_over_the_limit_are_413(serve: Serve, route: Route):
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    async with serve(AGENT, limits=Limits(body_bytes=2000)) as talk:
        for body in (b"{" + b" " * 2000 + b"}", endless()):
            response = await send(talk, route, path_of(route), body=body)
            assert "body_bytes" in check_error(response, route, 413)
        declared = {"content-length": "99999999999"}
        check_error(await send(talk, route, path_of(route), body=b"{}", headers=declared), route, 413)
        for length in ("-1", "x", "9" * 30):
            response = await send(talk, route, path_of(route), body=b"{}", headers={"content-length": length})
            check_error(response, route, 400, 413)


@each(WITH_BODY)
async def test_what_a_form_can_send_is_400(talk: Talk, route: Route):
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "Text/Plain; charset=utf-8"):
        response = await send(talk, route, path_of(route), body=b"{}", headers={"content-type": kind})
        assert "application/json" in check_error(response, route, 400)


# ---- fields


def shape_of(kind: Any) -> mi.StructType:
    """The Struct inside a route's body."""
    info: Any = mi.type_info(kind)
    while isinstance(info, mi.Metadata):
        info = info.type
    if isinstance(info, mi.UnionType):
        info = next(t for t in info.types if not isinstance(t, mi.NoneType))
    return cast("mi.StructType", info)


def wrong(info: mi.Type, seen: frozenset[type]) -> list[tuple[Any, str]]:
    """Values that are wrong for a type, each with how its field's path ends."""
    if isinstance(info, mi.UnionType):
        return [w for t in info.types if not isinstance(t, mi.NoneType) for w in wrong(t, seen)]
    if isinstance(info, mi.StructType):
        return [(5, ""), ([], ""), ("x", ""), *wrong_fields(info, seen)]
    if isinstance(info, mi.ListType):
        return [("x", ""), ({"a": 1}, ""), *[([value], f"[0]{tail}") for value, tail in wrong(info.item_type, seen)]]
    if isinstance(info, mi.DictType):
        inner = [({"key": value}, tail) for value, tail in wrong(info.value_type, seen)]
        return [("x", ""), ([1], ""), (5, ""), *inner]
    if isinstance(info, mi.StrType):
        return [(5, ""), (True, ""), ([], ""), ({}, "")]
    if isinstance(info, mi.BoolType):
        return [("true", ""), (1, ""), ([], "")]
    if isinstance(info, mi.IntType | mi.FloatType):
        return [("1", ""), (True, ""), ({}, "")]
    if isinstance(info, mi.BytesType):
        return [(5, ""), ("@", ""), ("A", ""), ("\u00e4", ""), ("AA=A", "")]
    if isinstance(info, mi.DateTimeType):
        return [("yesterday", ""), (True, ""), ({}, ""), (1e300, ""), (-1e300, ""), ("2020-13-01T00:00:00Z", "")]
    assert isinstance(info, mi.AnyType), f"say what is wrong for {info}"
    return []


def wrong_fields(info: mi.StructType, seen: frozenset[type]) -> list[tuple[Any, str]]:
    if info.cls in seen:
        return []
    found: list[tuple[Any, str]] = []
    for field in info.fields:
        inner = wrong(field.type, seen | {info.cls})
        found += [({field.encode_name: value}, f".{field.encode_name}{tail}") for value, tail in inner]
    return found


@each(WITH_BODY)
async def test_wrong_types_are_400_and_name_the_field(talk: Talk, route: Route):
    cases = wrong_fields(shape_of(route.body), frozenset())
    assert cases
    for body, where in cases:
        text = check_error(await send(talk, route, path_of(route), json=body), route, 400)
        if "[...]" not in text:  # so msgspec writes the keys of a map
            assert where[1:] in text, (body, text)


@each(WITH_BODY)
async def test_rest_16_35_unknown_fields(talk: Talk, route: Route):
    response = await send(talk, route, path_of(route), json={"foo": 1, "__proto__": {}})
    if (route.method, route.pattern) in DROPS_UNKNOWN:
        assert "unknown" not in response.text
    else:
        assert 'unknown field "foo"' in check_error(response, route, 400)


def all_null(kind: Any) -> dict[str, None]:
    return {field.encode_name: None for field in shape_of(kind).fields}


async def test_null_is_the_same_as_not_set(talk: Talk):
    """Clients that write out their models whole send null for all they do not set."""
    part = {**all_null(Part), "text": "hi"}
    call = {**all_null(Part), "functionCall": {**all_null(FunctionCall), "name": "f"}}
    body = {**all_null(RunBody), **talk.body({"role": None, "parts": [part]})}
    response = await talk.client.post("/run", json=body)
    assert response.status == 200 and response.json() == []
    event = {**all_null(Event), "author": "model", "content": {"parts": [call]}}
    made = await talk.at("s2").create(**{**all_null(SessionBody), "events": [event]})
    assert made["events"][0]["content"]["parts"] == [{"functionCall": {"name": "f", "args": {}}}]
    for missing in ("appName", "userId", "sessionId", "newMessage"):
        assert f"{missing} is required" in check_error(
            await talk.client.post("/run", json={**body, missing: None}), None, 400
        )


# ---- paths

NEVER = ["..", ".", "%2e%2e", "%2E", ".%2e", "%00", "a%00b", "%0a", "%0d%0aset-cookie:x", "%1b", "%7f", "%c2%85", "%ff"]
NEVER += ["%", "a%", "%zz", "%ed%a0%80", "%c0%af", "a/../b", "a//b", "%u0041"]


@each(WITH_PARAMS)
async def test_rest_98_hostile_segments_are_4xx(talk: Talk, route: Route):
    for name in params_of(route):
        for value in NEVER:
            response = await send(talk, route, path_of(route, **{name: value}))
            check_error(response, None)
            assert "set-cookie" not in response.headers
    artifact = await talk.client.get(talk.path + "/artifacts/a.txt")
    assert artifact.json() == {"text": "unharmed"}


ODD = [
    "%2F",
    "a%2Fb",
    "..%2F..%2Fetc%2Fpasswd",
    "%5C",
    "..%5Cx",
    "%25",
    "%2500",
    "%3Cscript%3E",
    "'",
    '"',
    ";drop",
    "%20",
]
ODD += ["{x}", "$%7Bx%7D", "%F0%9F%98%80", "%E2%80%AE", "~", "*", "con", "-", "x" * 5000, "%C3%BC"]


@each(WITH_PARAMS)
async def test_odd_segments_are_never_a_5xx_or_a_redirect(talk: Talk, route: Route):
    for name in params_of(route):
        for value in ODD:
            response = await send(talk, route, path_of(route, **{name: value}))
            assert response.status < 300 or check_error(response, route)


@each([r for r in HTTP if r.pattern.endswith("/{session}") and r.method in ("GET", "PATCH")])
async def test_nobody_elses_session_is_found_under_odd_spellings(talk: Talk, route: Route):
    """A name is compared as it is: no case folding, no trimming, no Unicode normal forms."""
    for spelling in ("S1", "s1 ", " s1", "s1.", "\uff531", "s1/", "s1;", "s1%00"):
        check_error(await send(talk, route, path_of(route, session=quote(spelling, safe=""))), route, 404)


# ---- queries


@each([r for r in HTTP if r.query])
async def test_odd_queries_name_the_parameter(talk: Talk, route: Route):
    for name, schema in route.query:
        for value in ("x", "-1", "nan", "1e999", "null", "[]", "%00", "%ff", "1;2", "9" * 400, "\u0661"):
            response = await send(talk, route, path_of(route) + f"?{name}=" + quote(value, safe="%"))
            if schema["type"] == "string":
                assert response.status < 300 or check_error(response, route)
            elif schema["type"] == "boolean" or value in ("x", "nan", "null", "[]", "%00", "1;2"):
                assert name in check_error(response, route, 400)
            else:
                assert response.status < 300 or name in check_error(response, route)
    many = "&".join(f"a{n}=1" for n in range(101))
    assert "100" in check_error(await send(talk, route, path_of(route) + "?" + many), route, 400)


# ---- names in bodies


@pytest.mark.parametrize("field", ["appName", "userId", "sessionId"])
@pytest.mark.parametrize("value", ["", "a\0b", "a\nb", "\x7f", "\x9b", "..", "x" * 5000, "\ud83d"])
@pytest.mark.parametrize("path", ["/run", "/run_sse"])
async def test_names_of_runs(talk: Talk, path: str, field: str, value: str):
    body = json.dumps({**talk.body(), field: value})
    response = await talk.client.post(path, body=body)
    text = check_error(response, None, 400, 404)
    assert "\0" not in text and "\n" not in text
    assert not response.headers["content-type"].startswith("text/event-stream")
