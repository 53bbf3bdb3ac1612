"""The OpenAPI document: complete, valid, and true: what the server answers is what it says (spec rest 11, 33).

`schemathesis` reads the document as a client would, makes requests from it, good and bad, and checks the answers.
"""

import json
import re
from typing import Any

import anyio
import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from polyport import App, FunctionAgent, LlmAgent, RunContext
from polyport.auth.authorize import Strict
from polyport.auth.combine import AnyOf, FunctionAuth
from polyport.auth.header import HeaderAuth
from polyport.auth.jwt import JwtAuth
from polyport.auth.keys import ApiKeyAuth, new_key
from polyport.ports.auth import Auth
from polyport.protocols.answers import send_empty
from polyport.protocols.rest.openapi import document, page
from polyport.protocols.routes import Route
from polyport.testing import connect
from polyport.testing.exchange import Response
from support.talk import Serve

URL = "http://localhost"


async def silent(ctx: RunContext) -> None:
    return None


AGENT = FunctionAgent(name="app", function=silent)


async def served(path: str) -> Response:
    async with connect(App(AGENT)) as client:
        response = await client.get(path)
    assert response.status == 200
    return response


DOCUMENT: dict[str, Any] = anyio.run(served, "/openapi.json").json()
OPERATIONS = [(path, method, found) for path, item in DOCUMENT["paths"].items() for method, found in item.items()]


def refs(value: Any) -> set[str]:
    return set(re.findall(r'"\$ref":\s*"([^"]*)"', json.dumps(value)))


# ---- complete and valid


def test_every_route_of_rest_is_in_the_document():
    routes = [r for r in App(AGENT).asgi.routes if r.handler.__module__.startswith("polyport.protocols.rest")]
    told = {(r.method, r.pattern.replace("*}", "}")) for r in routes if r.method != "WEBSOCKET"}
    assert told == {(method.upper(), path) for path, method, _ in OPERATIONS}


def test_the_document_is_valid_openapi():
    assert DOCUMENT["openapi"].startswith("3.1")
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    with pytest.raises(jsonschema_rs.ValidationError):  # and so it would be seen if it were not
        schemathesis.openapi.from_dict({**DOCUMENT, "paths": {"/x": {"get": {"parameters": [{"in": "x"}]}}}}).validate()
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_all_references_lead_somewhere_and_all_shapes_are_used():
    names = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert refs(DOCUMENT) == names


def test_operations_are_complete():
    ids = [found["operationId"] for _, _, found in OPERATIONS]
    assert len(set(ids)) == len(ids)
    for path, method, found in OPERATIONS:
        where = f"{method} {path}"
        assert found["summary"], where
        in_path = {p["name"] for p in found.get("parameters", ()) if p["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", path)), where
        done = {status: answer for status, answer in found["responses"].items() if status.isdigit()}
        assert done, where
        bodiless = method == "delete" or path == "/"  # the latter only leads on
        assert bodiless or all("content" in answer for answer in done.values()), where
        for status in ("4XX", "5XX"):
            assert refs(found["responses"][status]) == {"#/components/schemas/Error"}, where
        assert ("requestBody" in found) == (method in ("post", "put", "patch")), where
        assert "(spec " not in json.dumps(found), where


def test_what_a_body_must_have_is_told():
    def required(path: str) -> Any:
        return DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"]

    assert required("/run") == required("/run_sse") == ["appName", "userId", "sessionId"]
    artifacts = "/apps/{app}/users/{user}/sessions/{session}/artifacts"
    assert required(artifacts) == ["filename", "artifact"]
    assert DOCUMENT["paths"]["/run"]["post"]["requestBody"]["required"] is True
    assert DOCUMENT["paths"][artifacts.removesuffix("/{session}/artifacts")]["post"]["requestBody"]["required"] is False


def test_rest_33_what_is_always_there_is_told():
    shapes = DOCUMENT["components"]["schemas"]
    always = ["id", "invocationId", "author", "content", "groundingMetadata", "usageMetadata", "actions"]
    assert shapes["EventShape"]["required"] == always
    assert shapes["ActionsShape"]["required"] == ["stateDelta", "artifactDelta"]
    assert {"type": "number"} in shapes["Event"]["properties"]["timestamp"]["anyOf"], "as sessions give it"


async def test_the_server_is_where_the_document_was_found(serve: Serve):
    async with serve(AGENT) as talk:
        for prefix, url in (("", "/"), ("/api", "/api")):
            found = (await talk.client.get(prefix + "/openapi.json")).json()
            assert found["servers"] == [{"url": url}]
            assert f'href="{prefix}/openapi.json"' in (await talk.client.get(prefix + "/docs")).text


# ---- true

HOME = {"app": "app", "user": "u1", "session": "s1", "name": "a.txt", "version": "1"}


async def exchange(case: Any, at_home: bool) -> tuple[requests.PreparedRequest, Response]:
    """Send a generated request to a fresh server; `at_home` makes it meet what is there."""
    async with connect(App(LlmAgent(name="app", model="demo"))) as client:
        session = "/apps/app/users/u1/sessions/s1"
        events = [{"author": "user", "content": {"parts": [{"text": "hi"}]}, "timestamp": 1.5}]
        assert (await client.post(session, json={"state": {"k": 1}, "events": events})).status == 200
        artifact = {"filename": "a.txt", "artifact": {"text": "x"}}
        assert (await client.post(session + "/artifacts", json=artifact)).status == 200
        names = dict(HOME)
        if "{run}" in case.operation.path or case.operation.path.startswith("/run"):
            body = {"appName": "app", "userId": "u1", "sessionId": "s1", "newMessage": {"parts": [{"text": "hi"}]}}
            run = await client.post("/run", json=body)
            names["run"] = run.headers["x-run-id"]
            if at_home and isinstance(case.body, dict):
                case.body |= body
        if at_home:
            case.path_parameters = {name: names[name] for name in case.path_parameters or {}}
        given = {k: v for k, v in case.as_transport_kwargs(base_url=URL).items() if k in REQUEST}
        request = requests.Request(**given).prepare()
        headers = [(k, v if isinstance(v, str) else v.decode("latin-1")) for k, v in request.headers.items()]
        headers = [(k, v) for k, v in headers if k.lower() != "content-length"]
        assert request.url is not None and request.method is not None
        path = request.url.removeprefix(URL)
        return request, await client.request(request.method, path, body=request.body, headers=headers)


def unjudged(case: Any, request: requests.PreparedRequest) -> list[Any]:
    """Checks that do not apply. What a schema cannot say may make good data wrong (an unknown session); a blank parameter
    or body is no bad one, it is the same as none."""
    blank = any(value in ("", [""]) for value in (case.query or {}).values())
    blank = blank or (isinstance(request.body, bytes) and not request.body.strip())
    return [positive_data_acceptance, negative_data_rejection] if blank else [positive_data_acceptance]


REQUEST = {"method", "url", "headers", "params", "json", "data"}
LABELS = {f"{method.upper()} {path}": found for path, method, found in OPERATIONS}
MAY_BE_BAD = [label for label, found in LABELS.items() if found.keys() & {"parameters", "requestBody"}]
CASES = [(label, GenerationMode.POSITIVE) for label in LABELS] + [
    (label, GenerationMode.NEGATIVE) for label in MAY_BE_BAD
]


@pytest.mark.parametrize(("label", "mode"), CASES, ids=[f"{mode.value}-{label}" for label, mode in CASES])
def test_answers_are_as_the_document_says(label: str, mode: GenerationMode):
    """No 5xx, documented statuses, media types and shapes only, bad data refused; errors say what was wrong."""
    operation = schemathesis.openapi.from_dict(DOCUMENT).find_operation_by_label(label)
    assert operation is not None

    @settings(
        max_examples=6,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        for at_home in (False, mode is GenerationMode.POSITIVE):
            request, answer = anyio.run(exchange, case, at_home)
            headers = {name: [value] for name, value in answer.headers.items()}
            response = schemathesis.Response(answer.status, headers, answer.body, request, 0.1, False)
            case.validate_response(response, excluded_checks=unjudged(case, request))
            if answer.status >= 400:
                assert set(answer.json()) == {"error", "detail"}, answer.text
            assert answer.status < 500

    check()


# ---- for people


async def test_the_page_works_without_scripts(serve: Serve):
    async with serve(AGENT) as talk:
        response = await talk.client.get("/docs")
    html = response.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert not re.search(r"<script|javascript:|\son\w+=|https?://", html)
    targets = set(re.findall(r'href="#(\w+)"', html))
    assert targets and targets <= set(re.findall(r'id="(\w+)"', html))
    for path, _, found in OPERATIONS:
        assert f"<code>{path}</code>" in html and found["summary"].replace("'", "&#x27;") in html


async def test_text_in_the_page_is_escaped():
    async def handler(request: Any, send: Any) -> None:
        """<script>alert(1)</script> {0} {x}"""
        await send_empty(send)

    evil = "<img src=x onerror=alert(1)>\"'& {0} {x}"
    route = Route("GET", "/x", handler, summary=evil, returns="text/<b>", query=[(evil, {"type": "string"})])
    html = page(document([route]), '"><script>').decode()
    assert "<img" not in html and "<script" not in html and "<b>GET</b>" in html and "text/<b>" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;&quot;&#x27;&amp; {0} {x}" in html


# ---- who may call


JWKS = {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}
TOKENS: dict[str, Any] = {"issuer": "https://login.test", "audience": "a", "jwks": JWKS}
BEARER = {"bearer": {"type": "http", "scheme": "bearer"}}
KEY = {"X-API-Key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}


def everybody(credentials: Any) -> str:
    return "u"


@pytest.mark.parametrize(
    ("auth", "schemes"),
    [
        (ApiKeyAuth(keys=[]), BEARER | KEY),
        (JwtAuth(**TOKENS), BEARER),
        (JwtAuth(**TOKENS, header="x-a!b"), {"x-a_b": {"type": "apiKey", "in": "header", "name": "x-a!b"}}),
        (AnyOf(JwtAuth(**TOKENS), ApiKeyAuth(keys=[])), BEARER | KEY),
        (
            FunctionAuth(everybody, 'Basic realm="a, b", charset="UTF-8"'),
            {"basic": {"type": "http", "scheme": "basic"}},
        ),
        (HeaderAuth("X-User", ["127.0.0.1"]), {}),
    ],
    ids=["keys", "tokens", "tokens-in-a-header", "any-of", "function", "proxy"],
)
def test_the_document_says_how_callers_sign_in(auth: Any, schemes: dict[str, Any]):
    routes = App(AGENT).asgi.routes
    found = document(routes, auth)
    assert found["components"].get("securitySchemes", {}) == schemes
    wanted = [{name: []} for name in schemes] or None
    public = {(route.method.lower(), route.pattern) for route in routes if route.public}
    assert ("get", "/health") in public
    for path, item in found["paths"].items():
        for method, operation in item.items():
            assert operation.get("security") == (None if (method, path) in public else wanted), (method, path)
    schemathesis.openapi.from_dict(found).validate()


async def test_the_server_tells_of_the_authenticator_that_is_in_force():
    key, kept = new_key("u")
    app = App(AGENT)
    app.asgi.guard = app.asgi.guard.behind(Auth(ApiKeyAuth(keys=[kept]), Strict()))  # as --auth does
    async with connect(app) as client:
        assert (await client.get("/openapi.json")).status == 401
        found = (await client.get("/openapi.json", headers={"x-api-key": key})).json()
    assert found["components"]["securitySchemes"] == BEARER | KEY
    assert found["paths"]["/run"]["post"]["security"] == [{"bearer": []}, {"X-API-Key": []}]


def test_without_an_authenticator_nothing_is_said_of_it():
    assert "securitySchemes" not in DOCUMENT["components"]
    assert not [found for _, _, found in OPERATIONS if "security" in found]
