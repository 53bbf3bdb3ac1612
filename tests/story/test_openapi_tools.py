"""Tools from an OpenAPI document, in runs, against a strict API on loopback that keeps what came over the wire."""

import gc
import json
import logging
import zlib
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from interop.api_fake import FakeApi, Reply, Seen, as_json, as_text, fake_api
from polyport import App, LlmAgent, Plugin, ReadContext
from polyport.errors import ConfigError, Unavailable
from polyport.ports.stores import Stores
from polyport.stores.memory import MemoryArtifacts, MemorySessions
from polyport.testing import ScriptedModel, call
from polyport.tools.credentials import ApiKey, Bearer
from polyport.tools.openapi import OpenApiToolset
from polyport.tools.rest_call import RestClient, addresses_inside
from support.talk import Serve

SECRET = "hunter2-secret-key"


def petstore(url: str = "", **more: Any) -> dict[str, Any]:
    pet = {
        "type": "object",
        "required": ["name"],
        "properties": {"id": {"type": "integer", "readOnly": True}, "name": {"type": "string"}},
    }
    one = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "Pets", "version": "1"},
        **({"servers": [{"url": url}]} if url else {}),
        "paths": {
            "/pets": {
                "get": {
                    "operationId": "listPets",
                    "parameters": [{"name": "limit", "in": "query", "schema": {"type": "integer"}}],
                },
                "post": {
                    "operationId": "addPet",
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                    },
                },
            },
            "/pets/{id}": {
                "get": {"operationId": "getPet", "parameters": [one]},
                "head": {"operationId": "hasPet", "parameters": [one]},
            },
        },
        "components": {"schemas": {"Pet": pet}},
        **more,
    }


async def asked(toolset: OpenApiToolset, *calls: Any, stores: Stores | None = None, plugins: Any = ()) -> list[Any]:
    """The responses of calls that a model made one after the other."""
    model = ScriptedModel(*calls, "done")
    app = App(LlmAgent(name="app", model=model, tools=[toolset]), stores=stores, plugins=plugins)
    try:
        reply = await app.ask("go", user="ann")
    finally:
        await toolset.aclose()
    model.check()
    return [response.response for event in reply.events for response in event.responses]


async def answered(api: FakeApi, reply: Any, stores: Stores | None = None, **options: Any) -> Any:
    """What the model sees when the API answers that."""
    api.on("GET /pets", reply)
    (found,) = await asked(OpenApiToolset(petstore(api.url), **options), call("list_pets"), stores=stores)
    return found


# ---- a run


async def test_a_model_calls_two_operations(serve: Serve):
    async with fake_api() as api:
        api.on("POST /pets", as_json({"id": 7, "name": "Rex"}, 201))
        api.on("GET /pets/7", as_json({"id": 7, "name": "Rex", "age": 3}))
        toolset = OpenApiToolset(petstore(api.url))
        model = ScriptedModel(call("add_pet", {"name": "Rex"}), call("get_pet", {"id": "7"}), "Rex is 3.")
        async with serve(LlmAgent(name="app", model=model, tools=[toolset])) as talk:
            events = await talk.run("Add Rex")
        assert events[-1]["content"]["parts"][0]["text"] == "Rex is 3."
        assert model.prompt()[2] == "user: result add_pet {'id': 7, 'name': 'Rex'}"
        assert model.prompt()[4] == "user: result get_pet {'id': 7, 'name': 'Rex', 'age': 3}"
        names = [tool.name for tool in model.requests[0].tools]
        assert names == ["list_pets", "add_pet", "get_pet", "has_pet"]
        post, get = api.seen
        assert (post.method, post.target, post.json()) == ("POST", "/pets", {"name": "Rex"})
        assert (get.method, get.target, get.body, get.header("content-type")) == ("GET", "/pets/7", b"", None)
        assert (get.header("user-agent") or "").startswith("polyport/")
        model.check()


async def test_calls_side_by_side_share_the_connections_of_one_session():
    async with fake_api(as_json([])) as api:
        calls = [call("list_pets", {"limit": n}) for n in range(5)]
        assert await asked(OpenApiToolset(petstore(api.url)), calls) == [{"result": []}] * 5
        assert sorted(seen.query for seen in api.seen) == [f"limit={n}" for n in range(5)]


async def test_bad_arguments_go_back_to_the_model_and_nothing_is_sent():
    async with fake_api() as api:
        (found,) = await asked(OpenApiToolset(petstore(api.url)), call("add_pet", {"nom": "x", "name": 5}))
        assert "nom: is not known" in found["error"] and "name: must be a string" in found["error"]
        assert api.seen == []


FR_105: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        "/users/{userId}/items/{id}": {
            "post": {
                "operationId": "updateSession",
                "parameters": [
                    {"name": "userId", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "id", "in": "query", "schema": {"type": "string"}},
                    {"name": "page-size", "in": "query", "schema": {"type": "integer"}},
                    {"name": "class", "in": "query", "schema": {"type": "string"}},
                    {"name": "X-Trace-Id", "in": "header", "schema": {"type": "string"}},
                    {"name": "ids", "in": "query", "schema": {"type": "array", "items": {"type": "integer"}}},
                    {
                        "name": "csv",
                        "in": "query",
                        "explode": False,
                        "schema": {"type": "array", "items": {"type": "string"}},
                    },
                ],
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "properties": {
                                    "sessionInfo": {"type": "object", "properties": {"session": {"type": "string"}}}
                                },
                            }
                        }
                    }
                },
            }
        }
    },
}


async def test_FR_105_the_request_on_the_wire_has_the_names_of_the_document():
    async with fake_api(as_json({"ok": True})) as api:
        args = {
            "userId": "u/1 ü",
            "id": "in path",
            "id_query": "in query",
            "page-size": 10,
            "class": "A",
            "X-Trace-Id": "trace 1",
            "ids": [1, 2],
            "csv": ["a", "b,c"],
            "sessionInfo": {"session": "s1"},
        }
        found = await asked(OpenApiToolset(FR_105, base_url=api.url), call("update_session", args))
        assert found == [{"ok": True}]
        seen = api.last
        assert seen.path == "/users/u%2F1%20%C3%BC/items/in%20path"
        assert seen.query == "id=in%20query&page-size=10&class=A&ids=1&ids=2&csv=a,b%2Cc"
        assert ("X-Trace-Id", "trace 1") in seen.headers
        assert seen.json() == {"sessionInfo": {"session": "s1"}}


async def test_a_multipart_form_on_the_wire():
    form = {
        "type": "object",
        "properties": {"it's[a]": {"type": "string"}, "f": {"type": "string", "format": "binary"}},
    }
    spec = {
        "openapi": "3.1.0",
        "paths": {
            "/up": {
                "post": {
                    "operationId": "up",
                    "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}},
                }
            }
        },
    }
    async with fake_api(as_json({"ok": 1})) as api:
        toolset = OpenApiToolset(spec, base_url=api.url, original_names=True)
        assert await asked(toolset, call("up", {"it's[a]": "ä", "f": "text of the file"})) == [{"ok": 1}]
        kind, _, boundary = (api.last.header("content-type") or "").partition("; boundary=")
        assert kind == "multipart/form-data"
        first, second = api.last.body.decode().split(f"--{boundary}")[1:3]
        assert 'name="it\'s[a]"' in first and first.endswith("\r\n\r\nä\r\n") and "filename" not in first
        assert 'name="f"; filename="f"' in second and second.endswith("\r\n\r\ntext of the file\r\n")


# ---- answers


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        (as_json({"a": [1, None]}), {"a": [1, None]}),
        (as_json([1, 2]), {"result": [1, 2]}),
        (as_json("x"), {"result": "x"}),
        (as_json(None), {"result": None}),
        (Reply(b'{"a":1}', headers={"content-type": "application/problem+json; charset=utf-8"}), {"a": 1}),
        (Reply(b'\xef\xbb\xbf{"a":1}', headers={"content-type": "application/json"}), {"a": 1}),
        (as_text("plain ü"), {"result": "plain ü"}),
        (as_text("<a/>", "application/xml"), {"result": "<a/>"}),
        (
            Reply("caf\xe9".encode("latin-1"), headers={"content-type": "text/csv; charset=ISO-8859-1"}),
            {"result": "café"},
        ),
        (Reply(b"x", headers={"content-type": "text/plain; charset=nonsense"}), {"result": "x"}),
        (Reply(status=204), {"status": 204}),
        (Reply(status=201), {"status": 201}),
    ],
)
async def test_an_answer_is_what_its_media_type_says(reply: Reply, result: Any):
    async with fake_api() as api:
        assert await answered(api, reply) == result


async def test_an_answer_without_a_body_to_head():
    async with fake_api() as api:
        api.on("HEAD /pets/1", Reply(headers={"content-type": "application/json"}))
        assert await asked(OpenApiToolset(petstore(api.url)), call("has_pet", {"id": "1"})) == [{"status": 200}]


@pytest.mark.parametrize("body", [b"{", b'{"a": NaN}', b"\xff", b"[" * 100 + b"]" * 100])
async def test_json_that_cannot_be_read_is_an_error_result(body: bytes):
    async with fake_api() as api:
        found = await answered(api, Reply(body, headers={"content-type": "application/json"}))
        assert found["error"] == "GET /pets: the API answered with JSON that cannot be read" and found["status"] == 200


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        (
            as_json({"code": 7}, 422),
            {"error": "GET /pets: the API answered 422 Unprocessable Entity", "status": 422, "body": {"code": 7}},
        ),
        (
            as_text("no", status=404),
            {"error": "GET /pets: the API answered 404 Not Found", "status": 404, "body": "no"},
        ),
        (Reply(status=599), {"error": "GET /pets: the API answered 599", "status": 599}),
        (
            Reply(b"\x89PNG", 500, {"content-type": "image/png"}),
            {
                "error": "GET /pets: the API answered 500 Internal Server Error",
                "status": 500,
                "body": "4 bytes of image/png",
            },
        ),
        (
            as_json({}, 429, **{"retry-after": "30"}),
            {
                "error": "GET /pets: the API answered 429 Too Many Requests",
                "status": 429,
                "retry_after": "30",
                "body": {},
            },
        ),
    ],
)
async def test_what_is_no_success_is_an_error_result_with_the_status(reply: Reply, result: Any):
    async with fake_api() as api:
        found = await answered(api, reply)
        phrase = "Unprocessable Content"  # what newer Pythons call it
        assert {**found, "error": found["error"].replace(phrase, "Unprocessable Entity")} == result


async def test_the_body_of_an_error_is_bounded():
    async with fake_api() as api:
        found = await answered(api, as_json({"trace": "x" * 10_000}, 500))
        assert found["body"].startswith('{"trace": "xxx') and len(found["body"]) == 4004


async def test_an_answer_that_is_too_large_is_refused_also_when_it_is_compressed():
    async with fake_api() as api:
        fits = await answered(api, as_text("x" * 1000), max_bytes=1000)
        assert fits == {"result": "x" * 1000}
        too_large = {"error": "GET /pets: the API answered more than 1000 bytes; ask for less", "status": 200}
        assert await answered(api, as_text("x" * 1001), max_bytes=1000) == too_large
        endless = Reply(b"x" * 70_000, headers={"content-type": "text/plain"}, hang=True)
        assert await answered(api, endless, max_bytes=1000) == too_large

        packed = zlib.compress(b"x" * 5_000_000)
        assert len(packed) < 10_000
        reply = Reply(packed, headers={"content-type": "text/plain", "content-encoding": "deflate"})
        assert await answered(api, reply, max_bytes=1000) == too_large


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ("", "list_pets.png"),
        ('attachment; filename="photo 1.png"', "photo 1.png"),
        ('attachment; filename="../../etc/user:passwd"', "user_passwd"),
        ('attachment; filename="..."', "list_pets.png"),
        ("attachment; filename*=UTF-8''%C3%BC%0A.png", "ü_.png"),
    ],
)
async def test_bytes_become_an_artifact(disposition: str, name: str):
    stores = Stores(MemorySessions(), MemoryArtifacts())
    async with fake_api() as api:
        headers = {"content-type": "image/png", **({"content-disposition": disposition} if disposition else {})}
        found = await answered(api, Reply(b"\x89PNG", headers=headers), stores=stores)
        assert found == {"artifact": name, "version": 1, "mime_type": "image/png", "bytes": 4}
    sessions = (await stores.sessions.list("app", "ann")).sessions
    assert stores.artifacts is not None
    part = await stores.artifacts.load(sessions[0].key, name)
    assert part.inline_data is not None and part.inline_data.data == b"\x89PNG"


async def test_bytes_are_refused_without_a_store_of_artifacts():
    async with fake_api() as api:
        reply = Reply(b"\x00\x01", headers={"content-type": "application/octet-stream"})
        found = await answered(api, reply, stores=Stores(MemorySessions(), None))
        assert "application/octet-stream" in found["error"] and "artifact" in found["error"]


# ---- no answer


async def test_an_api_that_hangs_times_out():
    async with fake_api() as api:
        found = await answered(api, Reply(hang=True), timeout_s=0.05)
        assert found == {"error": f"GET /pets: {api.url.removeprefix('http://')} did not answer within 0.05 s"}


async def test_an_api_that_is_not_there_is_named_without_the_query():
    async with fake_api() as api:
        gone = api.url
    toolset = OpenApiToolset(petstore(gone), auth=ApiKey(SECRET, "key", "query"))
    (found,) = await asked(toolset, call("list_pets", {"limit": 4711}))
    host = gone.removeprefix("http://")
    assert found["error"].startswith(f"GET /pets: {host} could not be reached (Client")
    assert SECRET not in found["error"] and "4711" not in found["error"]


def test_a_toolset_works_in_one_event_loop_after_another_and_leaves_nothing_open():
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(fake_api(as_json({"n": 1}))) as api:
        toolset = OpenApiToolset(petstore(api.url))
        for _ in range(3):
            app = App(LlmAgent(name="app", model=ScriptedModel(call("list_pets"), "done"), tools=[toolset]))
            assert app.run_sync("go").events[1].responses[0].response == {"n": 1}
    gc.collect()  # what was not closed would warn now, and a warning is an error


# ---- redirects


async def test_a_redirect_on_the_same_host_keeps_everything():
    async with fake_api() as api:
        api.on("POST /pets", Reply(status=307, headers={"location": "/v2/pets?x=1"}))
        api.on("POST /v2/pets", as_json({"ok": 1}))
        toolset = OpenApiToolset(petstore(api.url), auth=Bearer(SECRET), headers={"X-Tenant": "acme"})
        assert await asked(toolset, call("add_pet", {"name": "a"})) == [{"ok": 1}]
        assert api.last.target == "/v2/pets?x=1" and api.last.json() == {"name": "a"}
        assert api.last.header("authorization") == f"Bearer {SECRET}" and api.last.header("x-tenant") == "acme"


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_after_a_post_is_got(status: int):
    async with fake_api() as api:
        api.on("POST /pets", Reply(status=status, headers={"location": "/pets/1"}))
        api.on("GET /pets/1", as_json({"id": 1}))
        assert await asked(OpenApiToolset(petstore(api.url)), call("add_pet", {"name": "a"})) == [{"id": 1}]
        assert api.last.body == b"" and api.last.header("content-type") is None


@pytest.mark.parametrize(
    "auth", [Bearer(SECRET), ApiKey(SECRET, "X-Key"), ApiKey(SECRET, "k", "query"), ApiKey(SECRET, "k", "cookie")]
)
async def test_a_redirect_to_another_host_carries_no_credentials(auth: Any):
    async with fake_api() as api, fake_api() as other:
        api.on("GET /pets", Reply(status=302, headers={"location": f"{other.url}/files/1?signature=abc"}))
        other.on("GET /files/1", Reply(status=302, headers={"location": f"{api.url}/back"}))
        api.on("GET /back", as_json({"ok": 1}))
        toolset = OpenApiToolset(petstore(api.url), auth=auth, headers={"X-Tenant": "acme"})
        assert await asked(toolset, call("list_pets")) == [{"ok": 1}]
        assert SECRET in str(api.seen[0])
        for seen in (other.last, api.last):
            assert SECRET not in str(seen) and seen.header("x-tenant") is None
        assert other.last.target == "/files/1?signature=abc"


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1:1/x", "ftp://h/x", "http://a:b@127.0.0.1/x", "javascript:alert(1)"]
)
async def test_a_body_is_never_redirected_to_another_host(location: str):
    async with fake_api() as api:
        api.on("POST /pets", Reply(status=307, headers={"location": location}))
        (found,) = await asked(OpenApiToolset(petstore(api.url)), call("add_pet", {"name": "a"}))
        assert found["status"] == 307 and "a redirect" in found["error"] and "is not followed" in found["error"]
        assert "a:b" not in found["error"]


async def test_redirects_that_go_round_in_circles_end():
    async with fake_api() as api:
        found = await answered(api, Reply(status=302, headers={"location": "/pets"}))
        assert found["status"] == 302 and len(api.seen) == 6


async def test_the_internet_cannot_redirect_into_this_network():
    assert await addresses_inside("http://127.0.0.1/x") and await addresses_inside("http://169.254.169.254")
    assert await addresses_inside("http://[::1]:80/") and not await addresses_inside("http://8.8.8.8/")
    client = RestClient(timeout_s=1, max_bytes=1)
    assert await client._leads_inside("http://8.8.8.8/", "http://10.0.0.1/")
    assert not await client._leads_inside("http://10.0.0.1/", "http://10.0.0.2/")


# ---- the document from a URL


async def test_a_document_from_a_url_is_fetched_once_without_credentials():
    async with fake_api(as_json({"ok": 1})) as api:
        api.on("GET /openapi.json", Reply(status=302, headers={"location": "/v3/openapi.json"}))
        api.on("GET /v3/openapi.json", as_json(petstore("/v3")))
        toolset = OpenApiToolset(f"{api.url}/openapi.json", auth=Bearer(SECRET), headers={"X-Key": SECRET})
        agents = [
            LlmAgent(name=f"a{n}", model=ScriptedModel(call("list_pets"), "done"), tools=[toolset]) for n in range(3)
        ]
        apps = [App(agent) for agent in agents]
        async with anyio.create_task_group() as group:
            for app in apps:
                group.start_soon(app.ask, "go")
        await toolset.aclose()
        assert sorted(seen.path for seen in api.seen) == ["/openapi.json", "/v3/openapi.json", *["/v3/pets"] * 3]
        assert all(SECRET not in str(seen) for seen in api.seen if "openapi" in seen.path)


async def test_a_document_that_cannot_be_fetched_is_told_and_asked_for_again():
    async with fake_api() as api, fake_api() as other:
        other.on("GET /x.json", as_json(petstore(other.url)))
        toolset = OpenApiToolset(f"{api.url}/spec.json?token={SECRET}", max_spec_bytes=100_000, timeout_s=5)
        for reply, kind, message in (
            (as_text("no", status=404), Unavailable, "status 404"),
            (Reply(status=302, headers={"location": f"{other.url}/x.json"}), Unavailable, "status 302"),
            (as_text("x" * 100_001), ConfigError, "larger than max_spec_bytes=100000"),
            (as_text("{]"), ConfigError, "neither JSON nor YAML"),
            (as_json({"swagger": "2.0"}), ConfigError, "Swagger"),
        ):
            api.on("GET /spec.json", reply)
            with pytest.raises(kind, match=message) as caught:
                await toolset.load()
            assert SECRET not in str(caught.value)
        assert other.seen == []
        api.on("GET /spec.json", as_text(json.dumps(petstore(api.url), indent=1)))
        assert len(await toolset.load()) == 4


# ---- secrets


async def test_secrets_appear_nowhere_but_in_the_request(caplog: pytest.LogCaptureFixture):
    seen_by_plugin: list[str] = []

    class Watch(Plugin):
        async def after_tool(self, ctx: Any, tool: Any, args: Any, result: Any) -> Any:
            seen_by_plugin.append(repr((tool.declaration(), args, result, dict(ctx.state))))

    def echo(seen: Seen) -> Reply:
        return as_json({"you sent": {"headers": dict(seen.headers), "target": seen.target}}, 403)

    stores = Stores(MemorySessions(), MemoryArtifacts())
    with caplog.at_level(logging.DEBUG):
        async with fake_api(echo) as api:
            for auth in (
                Bearer(SECRET),
                ApiKey(SECRET, "k", "query"),
                ApiKey(SECRET, "X-Odd"),
                ApiKey(SECRET, "k", "cookie"),
            ):
                toolset = OpenApiToolset(
                    petstore(api.url), auth=auth, headers={"X-Api-Token": f"{SECRET}-2", "X-Tenant": "acme-1"}
                )
                (found,) = await asked(toolset, call("list_pets"), stores=stores, plugins=[Watch()])
                assert found["body"]["you sent"]["headers"]["X-Tenant"] == "acme-1"
                assert SECRET in str(api.last)
    for session in (await stores.sessions.list("app")).sessions:
        assert SECRET not in repr(await stores.sessions.get(session.key))
    assert len(seen_by_plugin) == 4 and SECRET not in "".join(seen_by_plugin)
    assert SECRET not in caplog.text


async def test_headers_from_a_function_are_those_of_the_user_of_the_run():
    def headers(ctx: ReadContext) -> dict[str, str]:
        return {"X-User": ctx.user_id}

    async def also(ctx: ReadContext) -> dict[str, str]:
        return {"X-App": ctx.app_name}

    async with fake_api(as_json([])) as api:
        await asked(OpenApiToolset(petstore(api.url), headers=headers, auth=also), call("list_pets"))
        assert (api.last.header("x-user"), api.last.header("x-app")) == ("ann", "app")


@pytest.mark.parametrize("value", [None, {"X-A": "b\r\nX-Evil: 1"}, {"X-A": 5}, {"X\n": "a"}])
async def test_headers_from_a_function_are_checked(value: Any):
    async with fake_api() as api:
        toolset = OpenApiToolset(petstore(api.url), headers=lambda ctx: value)
        (found,) = await asked(toolset, call("list_pets"))
        assert found["error"].startswith("the function headers= gave") and "Evil" not in found["error"]
        assert api.seen == []


async def test_cookies_of_the_api_are_not_kept_for_the_next_call():
    async with fake_api(as_json([], 200, **{"set-cookie": "session=of-ann; Path=/"})) as api:
        named = api.url.replace("127.0.0.1", "localhost")  # cookies of addresses are not kept anyway
        await asked(OpenApiToolset(petstore(named)), call("list_pets"), call("list_pets"))
        assert [seen.header("cookie") for seen in api.seen] == [None, None]
