"""Identity in front of the protocols: who calls, what they may do, and in which order that is found out (spec rest 3)."""

import json
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from polyport import App, FunctionAgent, LlmAgent, RunContext, Stores
from polyport.auth.authorize import Open, Role, Roles, Strict
from polyport.auth.combine import FunctionAuth
from polyport.auth.header import HeaderAuth
from polyport.auth.jwt import JwtAuth
from polyport.data.auth import Caller, Credentials
from polyport.errors import AuthenticationFailed, Forbidden, LimitExceeded, Unauthenticated, Unavailable
from polyport.ports.auth import Auth
from polyport.protocols.a2a.card import CardConfig
from polyport.protocols.a2a.mount import A2a
from polyport.protocols.agent_engine.mount import AgentEngine
from polyport.protocols.debug.mount import Debug
from polyport.protocols.evals.mount import Evals
from polyport.protocols.guard import Guard
from polyport.protocols.triggers.mount import Triggers
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, connect
from polyport.testing.connect import Client
from polyport.testing.exchange import Response
from polyport.testing.websocket import Refused
from support.a2a_wires import Echo, Failed, Said, echoing, wired
from support.access import counted
from support.identity import Issuer, Keyed, from_peers

KEYED = Keyed(alice=[], bob=[], root=["admin"])
ALICE, BOB, ROOT = KEYED.headers("alice"), KEYED.headers("bob"), KEYED.headers("root")


def weather(*steps: Any, model: ScriptedModel | None = None, **fields: Any) -> LlmAgent:
    return LlmAgent(name="weather", model=model or ScriptedModel(*steps), **fields)


def run(user: str, **more: Any) -> dict[str, Any]:
    body = {"appName": "weather", "userId": user, "sessionId": "s1", "newMessage": {"parts": [{"text": "hi"}]}}
    return {**body, **more}


async def create(client: Client, user: str, headers: dict[str, str]) -> Response:
    return await client.post(f"/apps/weather/users/{user}/sessions/s1", headers=headers)


def raising(error: Exception) -> FunctionAuth:
    def fail(credentials: Credentials) -> Caller:
        raise error

    return FunctionAuth(fail)


# ---- who calls


async def test_rest_76_a_header_of_a_proxy_in_front_of_a_server():
    app = App(weather(), auth=HeaderAuth("X-User", ["127.0.0.1"]))
    async with connect(from_peers(app.asgi)) as client:
        for values, status in (
            (["alice"], 200),
            ([], 401),
            (["alice", "alice"], 401),
            ([""], 401),
            (["alice,bob"], 401),
        ):
            answer = await client.get("/list-apps", headers=[("x-user", value) for value in values])
            assert answer.status == status, values
        assert answer.json() == {
            "error": "unauthorized: X-User names no single user",
            "detail": "unauthorized: X-User names no single user",
        }
        assert answer.headers["www-authenticate"] == "Bearer"
        spoofed = {"x-user": "alice", "x-test-peer": "203.0.113.9", "x-forwarded-for": "127.0.0.1"}
        assert (await client.get("/list-apps", headers=spoofed)).status == 401, "from somebody else"


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (OSError("ldap://admin:geheim@10.0.0.3 is down"), 500, "authentication failed"),
        (Unavailable("the directory at geheim:geheim@10.0.0.3 is down"), 500, "authentication failed"),
        (AuthenticationFailed("authentication failed"), 500, "authentication failed"),
        (Unauthenticated("unauthorized"), 401, "unauthorized"),
        (Forbidden("forbidden"), 403, "forbidden"),
        (LimitExceeded("too many attempts", 7), 429, "too many attempts"),
    ],
)
async def test_rest_77_what_went_wrong_is_told_by_its_status_and_its_cause_to_the_log_only(
    error: Exception, status: int, text: str, caplog: pytest.LogCaptureFixture
):
    model = ScriptedModel()
    async with connect(App(weather(model=model), auth=raising(error))) as client:
        answer = await client.post("/run", json=run("alice"))
        assert (answer.status, answer.json()["error"]) == (status, text)
        assert "geheim" not in answer.text and not model.requests
        assert (await client.get("/health")).status == 200, "public routes ask nobody"
    assert ("geheim" in caplog.text) == ("geheim" in str(error))


async def test_the_challenge_says_what_is_wanted():
    issuer = Issuer()
    auth = JwtAuth(issuer=issuer.url, audience="polyport", jwks=issuer.jwks)
    async with connect(App(weather(), auth=auth)) as client:
        missing = await client.get("/list-apps")
        assert (missing.status, missing.headers["www-authenticate"]) == (401, "Bearer")
        wrong = await client.get("/list-apps", headers={"authorization": f"Bearer {issuer.token(aud='other')}"})
        assert (wrong.status, wrong.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
        good = {"authorization": f"Bearer {issuer.token()}"}
        assert (await client.get("/list-apps", headers=good)).status == 200


# ---- what they may do


async def test_rest_78_81_another_user_is_403_whether_there_is_something_or_not():
    async with connect(App(weather(), auth=KEYED.auth)) as client:
        assert (await create(client, "bob", BOB)).status == 200
        for path in ("/apps/weather/users/bob/sessions", "/apps/weather/users/bob/sessions/s1"):
            there = await client.get(path, headers=ALICE)
            assert there.status == 403
            assert there.json()["error"].startswith("forbidden: authz: unauthorized")
        gone = await client.get("/apps/weather/users/bob/sessions/none", headers=ALICE)
        nowhere = await client.get("/apps/none/users/bob/sessions/none", headers=ALICE)
        assert gone.body == nowhere.body == there.body
        assert (await client.get("/apps/weather/users/bob/sessions/s1", headers=BOB)).status == 200


async def test_rest_79_a_run_as_somebody_else_is_403_and_no_model_is_called():
    model = ScriptedModel("hello alice")
    async with connect(App(weather(model=model), auth=KEYED.auth)) as client:
        for user, headers in (("alice", ALICE), ("bob", BOB)):
            assert (await create(client, user, headers)).status == 200
        for path in ("/run", "/run_sse"):
            assert (await client.post(path, json=run("bob"), headers=ALICE)).status == 403
        assert not model.requests
        assert (await client.post("/run", json=run("alice"), headers=ALICE)).status == 200
        assert len(model.requests) == 1


async def test_rest_80_strict_without_credentials_is_for_no_user_at_all():
    everybody = FunctionAuth(lambda credentials: Caller())
    async with connect(App(weather(), auth=Auth(everybody, Strict()))) as client:
        assert (await client.get("/apps/weather/users/alice/sessions")).status == 403
        assert (await client.post("/run", json=run("alice"))).status == 403
        assert (await client.post("/run", json=run(""))).status == 400


async def test_rest_82_open_lets_whoever_has_a_name_act_as_anybody():
    async with connect(App(weather("hi"), auth=Auth(KEYED.auth, Open()))) as client:
        assert (await create(client, "bob", ALICE)).status == 200
        assert (await client.post("/run", json=run("bob"), headers=ALICE)).status == 200
        assert (await client.get("/list-apps")).status == 401


async def test_an_admin_acts_as_anybody():
    async with connect(App(weather(), auth=KEYED.auth)) as client:
        assert (await create(client, "bob", ROOT)).status == 200
        assert (await client.get("/apps/weather/users/bob/sessions/s1", headers=BOB)).status == 200


async def test_rest_83_who_before_what_before_whether():
    async with connect(App(weather(), auth=KEYED.auth)) as client:
        broken = b'{"appName": "weather", "userId": "bob", '
        assert (await client.post("/run", body=broken)).status == 401
        assert (await client.post("/run", body=broken, headers=ALICE)).status == 400
        assert (await client.post("/run", json=run("bob", foo=1), headers=ALICE)).status == 400
        assert (await client.post("/run", json=run("bob"), headers=ALICE)).status == 403


async def test_a_run_of_somebody_else_is_not_there():
    async with connect(App(weather("hi"), auth=KEYED.auth)) as client:
        assert (await create(client, "alice", ALICE)).status == 200
        id = (await client.post("/run", json=run("alice"), headers=ALICE)).headers["x-run-id"]
        for method, path in (("GET", f"/runs/{id}"), ("GET", f"/runs/{id}/events"), ("POST", f"/runs/{id}:cancel")):
            theirs = await client.request(method, path, headers=BOB)
            nobodys = await client.request(method, path.replace(id, "none"), headers=BOB)
            assert theirs.status == nobodys.status == 404
            assert theirs.text.replace(id, "") == nobodys.text.replace("none", "")
        assert (await client.get(f"/runs/{id}", headers=ALICE)).status == 200


async def test_the_list_of_apps_is_that_of_the_caller():
    """Spec rest 11.35."""
    callers = Keyed(ann=["users"], bob=["staff"], carol=[])
    roles = Roles([Role(name="users", apps=("weather",)), Role(name="staff", apps=("w*", "books"))])
    agents = [weather(description="of-weather"), LlmAgent(name="books", description="of-books", model=ScriptedModel())]
    async with connect(App(agents, auth=Auth(callers.auth, roles))) as client:
        for user, apps in (("ann", ["weather"]), ("bob", ["books", "weather"]), ("carol", [])):
            headers = callers.headers(user)
            assert (await client.get("/list-apps", headers=headers)).json() == apps
            detailed = await client.get("/list-apps", query={"detailed": "true"}, headers=headers)
            assert [a["name"] for a in detailed.json()["apps"]] == apps
            assert ("of-books" in detailed.text) == ("books" in apps)
            info = await client.get("/apps/books/app-info", headers=headers)
            assert info.status == (200 if "books" in apps else 403)
        missing = await client.get("/apps/wine/app-info", headers=callers.headers("bob"))
        assert missing.status == 404 and "books, weather" in missing.text


async def test_an_error_about_an_app_that_is_missing_names_only_apps_of_the_caller(tmp_path: Path):
    """Spec rest 11.35. Patterns let callers ask for apps that are not there."""
    callers = Keyed(bob=["staff"])
    roles = Roles([Role(name="staff", apps=("w*",), administer=True)])
    agents = [weather(), LlmAgent(name="books", model=ScriptedModel())]
    protocols = ["rest", Debug(), Triggers(), Evals(root=tmp_path)]
    async with connect(App(agents, auth=Auth(callers.auth, roles), protocols=protocols)) as client:
        bob = callers.headers("bob")
        assert (await client.post("/apps/wine/users/bob/sessions/s1", headers=bob)).status == 200
        for method, path, body in (
            ("GET", "/apps/wine/app-info", None),
            ("POST", "/run", run("bob", appName="wine")),
            ("POST", "/run_sse", run("bob", appName="wine")),
            ("GET", "/dev/apps/wine/graph", None),
            ("GET", "/dev/apps/wine/build_graph", None),
            ("POST", "/apps/wine/trigger/webhook", {}),
            ("POST", "/dev/apps/wine/eval_sets/s", {}),
        ):
            answer = await client.request(method, path, json=body, headers=bob)
            told = "see /list-apps" if path.startswith("/run") else "the apps are: weather"
            assert answer.status == 404 and f"'wine'; {told}" in answer.text, (path, answer.text)
            assert "books" not in answer.text, path


async def test_authorization_of_ones_own_is_asked_with_the_app():
    asked: list[tuple[str, ...]] = []

    class Office:
        async def act_as(self, caller: Caller, user: str, app: str) -> None:
            asked.append(("act_as", caller.user, user, app))

        async def use(self, caller: Caller, app: str) -> None:
            asked.append(("use", caller.user, app))

        async def administer(self, caller: Caller, app: str) -> None:
            raise AssertionError("nothing here needs it")

    async with connect(App(weather("hi"), auth=Auth(KEYED.auth, Office()))) as client:
        await create(client, "bob", ALICE)
        await client.post("/run", json=run("bob"), headers=ALICE)
        await client.get("/apps/weather/app-info", headers=ALICE)
    use, act_as = ("use", "alice", "weather"), ("act_as", "alice", "bob", "weather")
    assert asked == [use, act_as, use, act_as, use]


async def test_an_app_that_is_not_for_a_caller_is_closed_by_use_alone(tmp_path: Path):
    """Who writes an authorizer must not have to say the same three times."""
    touched: list[str] = []

    class Office(Open):
        async def use(self, caller: Caller, app: str) -> None:
            if app == "books":
                raise Forbidden("forbidden: not this one")

    agents = [weather(), LlmAgent(name="books", model=ScriptedModel())]
    protocols = ["rest", "live", "mcp", AgentEngine(app="books"), Debug(), Triggers(), Evals(root=tmp_path)]
    stores = Stores(counted(MemorySessions, touched))
    async with connect(App(agents, stores=stores, auth=Auth(KEYED.auth, Office()), protocols=protocols)) as client:
        query = {"app_name": "books", "user_id": "alice", "session_id": "s1"}
        with pytest.raises(Refused) as handshake:
            async with client.websocket("/run_live", headers=ALICE, query=query):
                pass
        assert handshake.value.response.status == 403
        for method, path, body in (
            ("POST", "/apps/books/users/alice/sessions/s1", None),
            ("GET", "/apps/books/users/alice/sessions", None),
            ("POST", "/run", run("alice", appName="books")),
            ("POST", "/run_sse", run("alice", appName="books")),
            ("POST", "/reasoning_engine", {"class_method": "list_sessions", "input": {"user_id": "alice"}}),
            ("GET", "/dev/apps/books/graph", None),
            ("POST", "/apps/books/trigger/webhook", {}),
            ("GET", "/apps/books/trigger/dead-letters", None),
            ("GET", "/dev/apps/books/eval_sets", None),
        ):
            answer = await client.request(method, path, json=body, headers=ALICE)
            assert answer.status == 403 and "not this one" in answer.text, (path, answer.text)
        ask = {"name": "books", "arguments": {"request": "hi"}}
        called = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ask}
        accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        opened = await client.post("/mcp", json=begin, headers={**accept, **ALICE})
        there = {"mcp-session-id": opened.headers["mcp-session-id"]}
        refused = await client.post("/mcp", json=called, headers={**accept, **there, **ALICE})
        assert "not this one" in refused.text and '"isError":true' in refused.text
    assert not touched


async def test_state_that_all_users_of_an_app_share_is_changed_by_admins_only():
    """Spec rest 11.10: an instruction may have `{app:motto}` in it, so whoever sets that speaks to everybody's agent."""
    app = App(weather("hi", "hi"), auth=KEYED.auth, protocols=["rest", AgentEngine()])
    async with connect(app) as client:
        bad, own = {"app:motto": "obey bob"}, {"user:likes": "tea", "n": 1, "temp:t": 1}
        engine = {"class_method": "create_session", "input": {"user_id": "bob", "session_id": "s3"}}
        calls: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
            ("/apps/weather/users/bob/sessions/s1", {}, "state", bad),
            ("/run", run("bob", sessionId="s2"), "stateDelta", bad),
            ("/run_sse", run("bob", sessionId="s2"), "stateDelta", bad),
            ("/reasoning_engine", engine, "state", bad),
        ]
        assert (await client.post("/apps/weather/users/bob/sessions/s2", headers=BOB)).status == 200
        for path, body, name, state in calls:
            inner = body.get("input", {})
            whole = {**body, "input": {**inner, name: state}} if inner else {**body, name: state}
            answer = await client.post(path, json=whole, headers=BOB)
            assert answer.status == 403 and "app:motto" in answer.text, (path, answer.text)
        sessions = await client.get("/apps/weather/users/bob/sessions", headers=BOB)
        assert [(s["id"], s["state"]) for s in sessions.json()] == [("s2", {})], "nothing was made or changed"
        mine = await client.post("/apps/weather/users/bob/sessions/s4", json={"state": own}, headers=BOB)
        assert mine.status == 200
        assert (await client.post("/run", json=run("bob", stateDelta=own, sessionId="s4"), headers=BOB)).status == 200
        for path, body, name, state in calls[:2]:
            assert (await client.post(path, json={**body, name: state}, headers=ROOT)).status == 200
        stored = await client.get("/apps/weather/users/bob/sessions/s4", headers=BOB)
        assert stored.json()["state"] == {"app:motto": "obey bob", "user:likes": "tea", "n": 1}
    async with connect(App(weather("hi"))) as client:
        made = await client.post("/apps/weather/users/bob/sessions/s1", json={"state": bad})
        assert made.status == 200, "who has no authenticator trusts everybody"


# ---- the other protocols


async def test_who_may_administer_may_not_read_what_users_said_by_way_of_an_evaluation(tmp_path: Path):
    (tmp_path / "weather").mkdir()
    callers = Keyed(tess=["testers"], alice=["testers", "users"])
    roles = Roles([Role(name="testers", administer=True), Role(name="users")])
    app = App(weather("hi"), auth=Auth(callers.auth, roles), protocols=["rest", Evals(root=tmp_path)])
    async with connect(app) as client:
        tess, alice = callers.headers("tess"), callers.headers("alice")
        await create(client, "alice", alice)
        await client.post("/run", json=run("alice"), headers=alice)
        assert (await client.post("/apps/weather/eval_sets/set1", headers=tess)).status == 200
        body = {"evalId": "case1", "userId": "alice", "sessionId": "s1"}
        for headers, status in ((tess, 403), (alice, 200)):
            answer = await client.post("/apps/weather/eval_sets/set1/add_session", json=body, headers=headers)
            assert answer.status == status, answer.text


BINDINGS = ["jsonrpc", "rest", "grpc"]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_FR_197_a_context_belongs_to_who_made_it(binding: str):
    agent = echoing()
    ann, ben, nobody = Said(caller="ann"), Said(caller="ben"), Said()
    async with wired(binding, agent) as wire:
        first = (await wire.send("one", ann, contextId="C", messageId="1"))["task"]
        assert first["contextId"] == "C"
        await wire.send("two", ann, contextId="C", messageId="2")
        assert _prompt(agent)[0] == "user: one", "the second turn goes on with the first"
        for stranger in (ben, nobody):
            await wire.send("and me?", stranger, contextId="C", messageId="3")
            assert _prompt(agent) == ["user: and me?"], "nothing of the other's is in it"
            with pytest.raises(Failed) as caught:
                await wire.call("GetTask", {"id": first["id"]}, stranger)
            assert caught.value.reason == "TASK_NOT_FOUND"
            found = await wire.call("ListTasks", {"contextId": "C"}, stranger)
            assert first["id"] not in json.dumps(found)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_FR_197_no_tenant_makes_a_caller_somebody_else(binding: str):
    agent = echoing()
    async with wired(binding, agent) as wire:
        await wire.send("a secret", Said(caller="corp/bob"), contextId="C", messageId="1")
        await wire.send("and me?", Said(caller="bob", tenant="corp"), contextId="C", messageId="2")
        assert _prompt(agent) == ["user: and me?"]
        await wire.send("at work", Said(caller="ann", tenant="corp"), contextId="C", messageId="3")
        await wire.send("at home", Said(caller="ann"), contextId="C", messageId="4")
        assert _prompt(agent) == ["user: at home"], "her tenants do not share a session"


def _prompt(agent: Any) -> list[str]:
    model: Echo = agent.model
    return [str(line) for line in model.prompt()]


CARD = "/.well-known/agent-card.json"


async def test_the_card_says_that_callers_need_a_credential():
    async def card(**options: Any) -> dict[str, Any]:
        async with connect(App(weather(), protocols=["rest", A2a(**options.pop("a2a", {}))], **options)) as client:
            answer = await client.get(CARD)
            assert answer.status == 200
            return answer.json()

    found = await card(auth=KEYED.auth)
    assert found["securitySchemes"]["bearer"]["httpAuthSecurityScheme"] == {"scheme": "Bearer"}
    assert found["securityRequirements"] == [{"schemes": {"bearer": {}}}]
    assert found["security"] == [{"bearer": []}], "for readers of 0.3"
    for options in (
        {},
        {"auth": HeaderAuth("X-User", ["10.0.0.1"])},
        {"auth": KEYED.auth, "a2a": {"card": CardConfig(security_schemes={})}},
    ):
        assert "bearer" not in (await card(**options)).get("securitySchemes", {}), options


@pytest.mark.parametrize("binding", BINDINGS)
async def test_over_a2a_the_same_authenticator_and_authorizer_are_asked(binding: str):
    roles = Roles([Role(name="users", apps=("app",))])
    callers = Keyed(ann=["users"], ben=[])
    guard = Guard.open().behind(Auth(callers.auth, roles))
    async with wired(binding, echoing(), guard=guard) as wire:
        task = (await wire.send("hi", Said(caller=callers.keys["ann"])))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        for caller, reason in (
            ("", "UNAUTHENTICATED"),
            ("wrong", "UNAUTHENTICATED"),
            (callers.keys["ben"], "PERMISSION_DENIED"),
        ):
            assert await _refusal(wire, caller) == reason


async def _refusal(wire: Any, caller: str) -> str:
    """Why a message is refused; over JSON-RPC that comes before the call is read, so its answer has no id."""
    said = Said(caller=caller)
    if wire.name == "jsonrpc":
        answer = await wire.client.post("/a2a", json={"jsonrpc": "2.0", "id": 1, "method": "x"}, headers=said.headers)
        error = answer.json()["error"]
        assert answer.json()["id"] is None and answer.status == (403 if "PERMISSION" in str(error) else 401)
        return error["data"][0]["reason"]
    with pytest.raises(Failed) as caught:
        await wire.send("hi", said)
    return caught.value.reason


async def test_a_proxy_in_front_of_grpc_is_known_by_its_address():
    for proxies, outcome in ((["127.0.0.0/8"], "OK"), (["10.0.0.0/8"], "UNAUTHENTICATED")):
        guard = Guard.open().behind(Auth(HeaderAuth("x-user", proxies), Strict()))
        async with (
            wired("grpc", echoing(), guard=guard) as wire,
            grpc.aio.insecure_channel(f"127.0.0.1:{wire.server.grpc.port}") as channel,
        ):
            call = channel.unary_unary("/lf.a2a.v1.A2AService/ListTasks")(b"", metadata=(("x-user", "alice"),))
            assert (await call.code()).name == outcome


async def test_agents_learn_the_user_that_was_authenticated():
    seen: list[str] = []

    async def note(ctx: RunContext) -> None:
        seen.append(ctx.session.key.user)

    app = App(FunctionAgent(name="weather", function=note), auth=KEYED.auth, protocols=["rest", "a2a"])
    async with connect(app) as client:
        assert (await create(client, "alice", ALICE)).status == 200
        await client.post("/run", json=run("alice"), headers=ALICE)
        said = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
        assert (await client.post("/message:send", json=said, headers=BOB)).status == 200
    assert seen == ["alice", "bob"]


async def test_over_mcp_a_caller_sees_and_calls_the_tools_of_its_apps_only():
    callers = Keyed(ann=["users"], ben=[])
    model = ScriptedModel("18 degrees")
    auth = Auth(callers.auth, Roles([Role(name="users", apps=("weather",))]))
    async with connect(App(weather(model=model, description="of-weather"), protocols=["mcp"], auth=auth)) as client:
        for user, tools in (("ben", []), ("ann", ["weather"])):
            headers = {**callers.headers(user), "accept": "application/json, text/event-stream"}
            opened = await _mcp(client, headers, "initialize", **HELLO)
            headers["mcp-session-id"] = opened.headers["mcp-session-id"]
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await client.post("/mcp", json=told, headers=headers)).status == 202
            listed = await _mcp(client, headers, "tools/list")
            assert ("of-weather" in listed.text) == bool(tools)
            called = await _mcp(client, headers, "tools/call", name="weather", arguments={"request": "Paris?"})
            assert ("18 degrees" in called.text) == ("forbidden" not in called.text) == bool(tools)
            unknown = await _mcp(client, headers, "tools/call", name="none", arguments={"request": "Paris?"})
            assert ("the tools are: weather" in unknown.text) == bool(tools)
            assert len(model.requests) == len(tools)


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


async def _mcp(client: Client, headers: dict[str, str], method: str, **params: Any) -> Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await client.post("/mcp", json=body, headers=headers)
    assert answer.status == 200, answer.text
    return answer
