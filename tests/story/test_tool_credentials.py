"""Credentials of tools: static ones, OAuth client credentials and authorization code, against a strict token endpoint."""

import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from interop.api_fake import FakeApi, FakeOAuth, Reply, Seen, as_json, fake_api, fake_oauth
from polyport import App, Content, LlmAgent, Part, ReadContext, SessionKey, codec
from polyport.data.content import FunctionResponse
from polyport.errors import BadRequest, ConfigError, Forbidden, Unauthenticated, Unavailable
from polyport.seams import Seams
from polyport.testing import ScriptedModel, call
from polyport.tools.credentials import ApiKey, Basic, Bearer, Credential
from polyport.tools.oauth import REQUEST_CREDENTIAL, AuthorizationCode, ClientCredentials, read_consent
from polyport.tools.oauth_tokens import MemoryTokens, Token
from polyport.tools.openapi import OpenApiToolset

SECRET = "s3cr3t+client/secret"
REDIRECT = "https://app.example/dev-ui/"


def spec(url: str) -> dict[str, Any]:
    """Two operations, `one` and `two`."""
    return {
        "openapi": "3.0.0",
        "servers": [{"url": url}],
        "paths": {f"/{name}": {"get": {"operationId": name}} for name in ("one", "two")},
    }


class Clock:
    """Epoch seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.seams = Seams(clock=lambda: self.now)


async def ask(toolset: OpenApiToolset, *steps: Any, user: str = "ann") -> list[Any]:
    """The responses that the model saw; or, when the user has to sign in, the requests for that."""
    model = ScriptedModel(*steps, "done")
    reply = await App(LlmAgent(name="app", model=model, tools=[toolset])).ask("go", user=user)
    if reply.outcome.status == "paused":
        return [c.args["authConfig"] for event in reply.events for c in event.calls if c.name == REQUEST_CREDENTIAL]
    model.check()
    return [response.response for event in reply.events for response in event.responses]


@asynccontextmanager
async def world(**fields: Any) -> AsyncIterator[tuple[FakeApi, FakeOAuth]]:
    """An API that wants a token that the OAuth server gave last, and that server."""
    async with fake_oauth(**fields) as oauth, fake_api() as api:

        def guarded(seen: Seen) -> Reply:
            token = (seen.header("authorization") or "").removeprefix("Bearer ")
            return as_json({"token": token in oauth.valid, "path": seen.path}, 200 if token in oauth.valid else 401)

        api.default = guarded
        yield api, oauth


ONE, TWO = {"token": True, "path": "/one"}, {"token": True, "path": "/two"}


# ---- static


async def of_user(ctx: ReadContext) -> str:
    return f"key-of-{ctx.user_id}"


@pytest.mark.parametrize(
    ("auth", "name", "value"),
    [
        (ApiKey("k 1"), "x-api-key", "k 1"),
        (ApiKey(of_user, "X-Key"), "x-key", "key-of-ann"),
        (ApiKey(lambda ctx: f"{ctx.app_name}!", "X-Key"), "x-key", "app!"),
        (ApiKey("a;b c", "sid", "cookie"), "cookie", "sid=a%3Bb%20c"),
        (Bearer("t0ken"), "authorization", "Bearer t0ken"),
        (Bearer(of_user), "authorization", "Bearer key-of-ann"),
        (Basic("me", "p:ä"), "authorization", "Basic " + base64.b64encode("me:p:ä".encode()).decode()),
    ],
)
async def test_static_credentials_in_headers_and_cookies(auth: Credential, name: str, value: str):
    async with fake_api(as_json({})) as api:
        toolset = OpenApiToolset(spec(api.url), auth=auth)
        assert await ask(toolset, call("one")) == [{}]
        assert api.last.header(name) == value
        await toolset.aclose()


async def test_an_api_key_in_the_query():
    async with fake_api(as_json({})) as api:
        toolset = OpenApiToolset(spec(api.url), auth=ApiKey("a b&c", "the key", "query"))
        await ask(toolset, call("one"))
        assert api.last.query == "the%20key=a%20b%26c"
        await toolset.aclose()


@pytest.mark.parametrize("value", ["", None, 5, "a\r\nX-Evil: 1"])
async def test_a_secret_that_cannot_be_sent_is_told_but_not_shown(value: Any):
    async with fake_api() as api:
        (found,) = await ask(OpenApiToolset(spec(api.url), auth=Bearer(lambda ctx: value)), call("one"))
        assert found["error"].startswith("the token for this API") and "Evil" not in found["error"]
        assert api.seen == []


def test_where_an_api_key_can_be():
    with pytest.raises(ConfigError, match="header, query or cookie"):
        ApiKey("k", "X", "body")  # type: ignore[arg-type]


# ---- client credentials


def machine(oauth: FakeOAuth, clock: Clock | None = None, **more: Any) -> ClientCredentials:
    settings = {"token_url": oauth.token_url, "client_id": oauth.client_id, "client_secret": SECRET, **more}
    return ClientCredentials(seams=(clock or Clock()).seams, **settings)


@pytest.mark.parametrize("way", ["basic", "post"])
async def test_client_credentials_are_exchanged_once_and_kept_until_they_end(way: str):
    clock = Clock()
    async with world(way=way) as (api, oauth):
        auth = machine(oauth, clock, scopes=("read", "write"), extra={"audience": "x"}, way=way)
        toolset = OpenApiToolset(spec(api.url), auth=auth)
        assert await ask(toolset, call("one"), call("two")) == [ONE, TWO]
        assert await ask(toolset, call("one"), user="bob") == [ONE]
        (form,) = oauth.forms
        assert form.items() >= {"grant_type": "client_credentials", "scope": "read write", "audience": "x"}.items()
        clock.now += 3600 - 60
        assert await ask(toolset, call("one")) == [ONE]
        assert len(oauth.forms) == 2
        await toolset.aclose()


async def test_concurrent_calls_wait_for_one_exchange():
    async with world() as (api, oauth):
        oauth.gate = anyio.Event()
        toolset = OpenApiToolset(spec(api.url), auth=machine(oauth))
        async with anyio.create_task_group() as group:
            for user in ("ann", "bob", "cy"):
                group.start_soon(lambda user: ask(toolset, [call("one"), call("two")], user=user), user)
            await oauth.arrived.wait()
            await anyio.wait_all_tasks_blocked()
            oauth.gate.set()
        assert len(oauth.forms) == 1 and len(api.seen) == 6
        await toolset.aclose()


async def test_a_short_lived_token_is_used_for_nine_tenths_of_its_life():
    clock = Clock()
    async with world(lifetime=10) as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=machine(oauth, clock))
        await ask(toolset, call("one"), call("one"))
        clock.now += 8.9
        await ask(toolset, call("one"))
        assert oauth.issued == 1
        clock.now += 0.2
        await ask(toolset, call("one"))
        assert oauth.issued == 2
        await toolset.aclose()


async def test_a_token_that_the_api_refuses_is_replaced_once_and_never_in_a_loop():
    clock = Clock()
    async with world() as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=machine(oauth, clock))
        assert await ask(toolset, call("one")) == [ONE]
        oauth.valid.clear()  # revoked
        clock.now += 100
        assert await ask(toolset, call("one")) == [ONE]
        assert oauth.issued == 2 and len(api.seen) == 3
        oauth.valid.clear()
        (found,) = await ask(toolset, call("one"))
        assert found["status"] == 401 and oauth.issued == 2, "a token that is this young is not the reason"
        await toolset.aclose()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"client_secret": "another-secret"}, "refused: invalid_client: wrong client"),
        ({"broken": True}, "answered 502 without a token"),
    ],
)
async def test_a_token_endpoint_that_fails_is_told_without_secrets(
    fields: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.DEBUG):
        async with world(way="post", **fields) as (api, oauth):
            toolset = OpenApiToolset(spec(api.url), auth=machine(oauth, way="post"))
            (found,) = await ask(toolset, call("one"))
            assert message in found["error"] and SECRET not in found["error"]
            assert oauth.forms[0]["client_secret"] == SECRET
            assert api.seen == []
            await toolset.aclose()
    assert SECRET not in caplog.text


async def test_a_token_endpoint_that_redirects_elsewhere_is_not_followed():
    async with fake_api() as api, fake_api() as other:
        api.on("POST /token", Reply(status=307, headers={"location": f"{other.url}/token"}))
        auth = ClientCredentials(token_url=f"{api.url}/token", client_id="c", client_secret=SECRET)
        (found,) = await ask(OpenApiToolset(spec(api.url), auth=auth), call("one"))
        assert "answered 307 without a token" in found["error"] and other.seen == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"token_url": "http://auth.example.com/token"}, "https"),
        ({"token_url": "auth"}, "no absolute"),
        ({"token_url": "https://a:b@h/token"}, "no absolute"),
        ({"client_id": ""}, "client_id"),
        ({"way": "digest"}, "basic, post or none"),
    ],
)
def test_settings_of_an_oauth_client_are_checked(settings: dict[str, Any], message: str):
    fine = {"token_url": "https://auth.example.com/token", "client_id": "c", "client_secret": SECRET}
    with pytest.raises(ConfigError, match=message):
        ClientCredentials(**{**fine, **settings})
    made = ClientCredentials(**fine)
    assert SECRET not in repr(made) and SECRET not in repr(made.tokens.endpoint)
    assert SECRET not in repr(Token(access=SECRET, refresh=SECRET))


# ---- authorization code


def consented(oauth: FakeOAuth, clock: Clock | None = None, **more: Any) -> AuthorizationCode:
    settings: dict[str, Any] = {
        "authorization_url": f"{oauth.url}/authorize?tenant=1",
        "token_url": oauth.token_url,
        "client_id": oauth.client_id,
        "client_secret": SECRET,
        "redirect_uri": REDIRECT,
        "scopes": "read write",
        **more,
    }
    return AuthorizationCode(seams=(clock or Clock()).seams, **settings)


def page(found: Any) -> str:
    """The address of the sign-in page in a request to sign in."""
    return found["exchangedAuthCredential"]["oauth2"]["authUri"]


async def test_FR_199_two_tools_on_one_scheme_one_consent_one_exchange():
    async with world() as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=consented(oauth))
        both = [call("one"), call("two")]
        first, second = await ask(toolset, both)
        assert api.seen == [] and oauth.forms == []
        uri = page(first)
        assert page(second) != uri, "each request has its own state"
        answer = oauth.sign_in(uri)
        async with anyio.create_task_group() as group:
            for _ in range(3):  # the client answers for both calls, and once more
                group.start_soon(lambda: toolset.answer(app="app", user="ann", response=answer))
        assert await ask(toolset, both) == [ONE, TWO]
        (form,) = oauth.forms
        assert form["grant_type"] == "authorization_code" and form["redirect_uri"] == REDIRECT
        assert oauth.refused == []
        await toolset.aclose()


async def test_FR_199_the_run_waits_until_the_user_has_signed_in():
    async with world() as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=consented(oauth))
        model = ScriptedModel([call("one", id="c1"), call("two", id="c2")], "both are there")
        app = App(LlmAgent(name="app", model=model, tools=[toolset]))
        async with app:
            asked = await app.ask("go", user="ann", session="s")
            waiting = [c for event in asked.events for c in event.calls if c.name == REQUEST_CREDENTIAL]
            assert [c.args["functionCallId"] for c in waiting] == ["c1", "c2"]
            assert (asked.outcome.status, api.seen, oauth.forms) == ("paused", [], [])
            answer = {"response": {"authResponseUri": oauth.sign_in(page(waiting[0].args["authConfig"]))}}
            parts = [
                Part(function_response=FunctionResponse(id=c.id, name=c.name, response=answer["response"]))
                for c in waiting
            ]
            done = await app.ask(Content(role="user", parts=parts), user="ann", session="s")
        results = [r.response for event in done.events for r in event.responses]
        assert (done.text, results, len(oauth.forms)) == ("both are there", [ONE, TWO], 1)
        stored = codec.encode((await app.stores.sessions.get(SessionKey("app", "ann", "s"))).events).decode()
        assert "code=" not in stored, "what the user answered is stored nowhere"


async def test_FR_199_a_failed_exchange_gives_one_clear_error_and_no_loop():
    async with world() as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=consented(oauth))
        answer = oauth.sign_in(page((await ask(toolset, call("one")))[0]))
        code = next(iter(oauth.codes))
        oauth.codes.clear()  # it ended before it was used
        for _ in range(2):
            with pytest.raises(Unauthenticated, match=r"signing in did not work: .*refused: invalid_grant") as caught:
                await toolset.answer(app="app", user="ann", response=answer)
            assert code not in str(caught.value) and SECRET not in str(caught.value)
        assert len(oauth.forms) == 1
        page((await ask(toolset, call("one")))[0])  # the user may try again
        await toolset.aclose()


@pytest.mark.parametrize("rotates", [True, False])
async def test_FR_200_an_expired_token_is_refreshed_without_scope(rotates: bool):
    clock = Clock()
    async with world(rotates=rotates) as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=consented(oauth, clock))
        answer = oauth.sign_in(page((await ask(toolset, call("one")))[0]))
        await toolset.answer(app="app", user="ann", response=answer)
        assert await ask(toolset, call("one")) == [ONE]
        for _ in range(2):  # with the new refresh token, or the old one when there is no new one
            clock.now += 3600
            assert await ask(toolset, [call("one"), call("two")]) == [ONE, TWO]
        assert [form["grant_type"] for form in oauth.forms] == ["authorization_code", "refresh_token", "refresh_token"]
        assert all("scope" not in form for form in oauth.forms) and oauth.refused == []
        await toolset.aclose()


async def test_a_refresh_token_that_is_refused_means_signing_in_again_but_a_broken_endpoint_does_not():
    clock = Clock()
    async with world() as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=consented(oauth, clock))
        answer = oauth.sign_in(page((await ask(toolset, call("one")))[0]))
        await toolset.answer(app="app", user="ann", response=answer)
        clock.now += 3600
        oauth.broken = True
        (found,) = await ask(toolset, call("one"))
        assert "answered 502" in found["error"]
        oauth.broken = False
        assert await ask(toolset, call("one")) == [ONE]
        clock.now += 3600
        oauth.refresh_tokens.clear()
        page((await ask(toolset, call("one")))[0])
        await toolset.aclose()


async def test_a_token_without_an_end_is_replaced_when_the_api_refuses_it():
    clock = Clock()
    async with world(lifetime=None, refreshes=False) as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=consented(oauth, clock))
        answer = oauth.sign_in(page((await ask(toolset, call("one")))[0]))
        await toolset.answer(app="app", user="ann", response=answer)
        clock.now += 1e9
        assert await ask(toolset, call("one")) == [ONE]
        oauth.valid.clear()
        page((await ask(toolset, call("one")))[0])
        await toolset.aclose()


async def test_tokens_belong_to_one_user_of_one_app_and_so_do_requests():
    async with world() as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=consented(oauth))
        answer = oauth.sign_in(page((await ask(toolset, call("one")))[0]))
        for app, user in (("app", "bob"), ("other", "ann")):
            with pytest.raises(Forbidden, match="does not belong"):
                await toolset.answer(app=app, user=user, response=answer)
        for forged in (f"{REDIRECT}?code=x&state=abc.def", f"{REDIRECT}?code=x", "", f"{REDIRECT}?code=x&state=%C3%BC"):
            with pytest.raises(Forbidden):
                await toolset.answer(app="app", user="ann", response=forged)
        assert oauth.forms == []
        await toolset.answer(app="app", user="ann", response=answer)
        assert await ask(toolset, call("one")) == [ONE]
        page((await ask(toolset, call("one"), user="bob"))[0])
        await toolset.aclose()


async def test_an_answer_that_says_no_or_comes_too_late_or_has_no_code():
    clock = Clock()
    async with world() as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=consented(oauth, clock, consent_timeout_s=60))
        uri = page((await ask(toolset, call("one")))[0])
        denied = oauth.sign_in(uri, error="access_denied")
        with pytest.raises(Unauthenticated, match=r"did not sign in \(access_denied\)"):
            await toolset.answer(app="app", user="ann", response=denied)
        uri = page((await ask(toolset, call("one")))[0])
        answer = oauth.sign_in(uri)
        with pytest.raises(Unauthenticated, match="no code"):
            await toolset.answer(app="app", user="ann", response=answer.replace("code=", "cod="))
        clock.now += 61
        with pytest.raises(Unauthenticated, match="too late"):
            await toolset.answer(app="app", user="ann", response=answer)
        assert oauth.forms == []
        await toolset.aclose()


async def test_another_worker_with_the_same_secret_takes_the_answer_and_a_store_keeps_the_tokens():
    store = MemoryTokens()
    async with world() as (api, oauth):
        asking, taking = (OpenApiToolset(spec(api.url), auth=consented(oauth, store=store)) for _ in range(2))
        answer = oauth.sign_in(page((await ask(asking, call("one")))[0]))
        await taking.answer(app="app", user="ann", response=answer)
        assert await ask(asking, call("one")) == [ONE]
        stranger = OpenApiToolset(spec(api.url), auth=consented(oauth, signing_key="another"))
        with pytest.raises(Forbidden):
            await stranger.answer(app="app", user="ann", response=answer)
        for toolset in (asking, taking, stranger):
            await toolset.aclose()


async def test_a_public_client_has_only_the_code_verifier():
    async with world(way="none") as (api, oauth):
        toolset = OpenApiToolset(spec(api.url), auth=consented(oauth, way="none", client_secret="", redirect_uri=""))
        uri = page((await ask(toolset, call("one")))[0])
        assert "redirect_uri" not in uri
        answer = oauth.sign_in(uri, redirect_uri="http://127.0.0.1:8000/dev-ui/")
        response = {
            "exchangedAuthCredential": {
                "oauth2": {"authResponseUri": answer, "redirectUri": "http://127.0.0.1:8000/dev-ui/"}
            }
        }
        await toolset.answer(app="app", user="ann", response=response)
        assert await ask(toolset, call("one")) == [ONE]
        await toolset.aclose()


async def test_two_toolsets_with_one_credential_need_one_consent():
    async with world() as (api, oauth):
        auth = consented(oauth)
        first, second = OpenApiToolset(spec(api.url), auth=auth), OpenApiToolset(spec(api.url), auth=auth)
        answer = oauth.sign_in(page((await ask(first, call("one")))[0]))
        await first.answer(app="app", user="ann", response=answer)
        assert await ask(second, call("two")) == [TWO]
        await first.aclose()
        await second.aclose()


def test_the_request_has_the_form_that_adk_clients_read_and_holds_no_secret():
    auth = AuthorizationCode(
        authorization_url="https://auth.example/authorize",
        token_url="https://auth.example/token",
        client_id="client-1",
        client_secret=SECRET,
        scopes=("read",),
        redirect_uri=REDIRECT,
        parameters={"access_type": "offline"},
    )
    needed = auth.request(auth.owner("app", "ann"))
    args = needed.call_args("call-1")
    assert args.keys() == {"functionCallId", "authConfig"} and args["functionCallId"] == "call-1"
    config = args["authConfig"]
    oauth2 = config["exchangedAuthCredential"]["oauth2"]
    assert config["exchangedAuthCredential"]["authType"] == "oauth2"
    assert oauth2["authUri"] == needed.auth_uri and oauth2["redirectUri"] == REDIRECT and oauth2["state"]
    assert needed.auth_uri.startswith(
        "https://auth.example/authorize?response_type=code&client_id=client-1&scope=read&"
    )
    assert needed.auth_uri.endswith("&access_type=offline")
    flow = config["authScheme"]["flows"]["authorizationCode"]
    assert flow["scopes"] == {"read": ""} and flow["tokenUrl"] == "https://auth.example/token"
    assert config["credentialKey"] == auth.key == needed.key
    assert SECRET not in repr(config) and SECRET not in str(needed) and SECRET not in repr(auth)


URI = f"{REDIRECT}?code=c0de&state=st"


@pytest.mark.parametrize(
    "response",
    [
        URI,
        {"authConfig": {"exchangedAuthCredential": {"oauth2": {"authResponseUri": URI}}}},
        {"exchangedAuthCredential": {"authType": "oauth2", "oauth2": {"authResponseUri": URI, "state": "other"}}},
        {"auth_scheme": {}, "exchanged_auth_credential": {"auth_type": "oauth2", "oauth2": {"auth_response_uri": URI}}},
        {"authType": "oauth2", "oauth2": {"authResponseUri": URI}},
        {"oauth2": {"authCode": "c0de", "state": "st"}},
        {"response": json.dumps({"exchangedAuthCredential": {"oauth2": {"authResponseUri": URI}}})},
        {"response": URI},
        f"{REDIRECT}#code=c0de&state=st",
    ],
)
def test_the_answers_of_adk_clients_are_read(response: Any):
    consent = read_consent(response)
    assert (consent.code, consent.state) == ("c0de", "st")
    assert "c0de" not in repr(consent)


@pytest.mark.parametrize(
    "response", [{}, None, [], 5, {"oauth2": {}}, {"oauth2": {"authCode": "x"}}, {"response": "{"}]
)
def test_what_is_no_answer_is_refused(response: Any):
    with pytest.raises(BadRequest, match="answer to the request to sign in"):
        read_consent(response)


# ---- tokens


async def test_tokens_in_memory_are_bounded():
    store = MemoryTokens(max_owners=2)
    await store.save("a", Token(access="a"))
    await store.save("b", Token(access="b"))
    assert await store.load("a") == Token(access="a")
    await store.save("c", Token(access="c"))
    assert await store.load("b") is None, "a was used after it"
    assert await store.load("a") == Token(access="a") and await store.load("c") == Token(access="c")
    await store.save("a", None)
    assert await store.load("a") is None


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (200, {"access_token": "t", "token_type": "mac"}, Unavailable, "type 'mac'"),
        (200, {"access_token": 5}, Unavailable, "answered 200 without a token"),
        (200, {"access_token": "a\r\nX: 1"}, Unavailable, "answered 200 without a token"),
        (200, {"error": "bad_verification_code"}, Unauthenticated, "refused: bad_verification_code"),
        (200, None, Unavailable, "answered 200 without a token"),
        (401, None, Unauthenticated, "refused with status 401"),
        (429, {"error": "slow_down"}, Unavailable, "answered 429"),
        (503, {"error": "temporarily_unavailable"}, Unavailable, "answered 503"),
    ],
)
async def test_answers_of_token_endpoints_that_give_no_token(status: int, body: Any, kind: Any, message: str):
    async def post(url: str, form: Any, headers: Any) -> tuple[int, Any]:
        return status, body

    auth = ClientCredentials(token_url="https://a.example/t", client_id="c", client_secret=SECRET)
    with pytest.raises(kind, match=message):
        await auth.tokens.exchange({}, post)


@pytest.mark.parametrize(("seconds", "left"), [(3600, 3540), ("3600", 3540), (100, 90), (0, 0), (-5, -4.5)])
async def test_when_a_token_ends(seconds: Any, left: float):
    async def post(url: str, form: Any, headers: Any) -> tuple[int, Any]:
        return 200, {"access_token": "t", "expires_in": seconds}

    clock = Clock()
    auth = ClientCredentials(token_url="https://a.example/t", client_id="c", seams=clock.seams)
    token = await auth.tokens.exchange({}, post)
    assert token.expires_at - clock.now == pytest.approx(left)


def test_clients_with_the_same_settings_have_the_same_key():
    settings: dict[str, Any] = {"token_url": "https://a.example/t", "client_id": "c", "scopes": ("x",)}
    assert ClientCredentials(**settings).key == ClientCredentials(**settings).key
    assert ClientCredentials(**settings).key != ClientCredentials(**{**settings, "scopes": ("y",)}).key
