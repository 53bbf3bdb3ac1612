"""Triggers: what comes in, what the agent is told, who may send, what comes twice (spec rest 7.5)."""

import base64
import hashlib
import hmac
import json
from typing import Any

import anyio
import pytest

from polyport import App, LlmAgent
from polyport.data.auth import Caller, Credentials
from polyport.errors import ConfigError
from polyport.protocols.triggers import Schedule, Triggers, Webhook
from polyport.testing import connect
from polyport.testing.samples import Clock
from polyport.wire.webhook_sign import check_standard, signing_key
from support.triggers import SUBSCRIPTION, push, success, triggers

PUBLISHED = "google.cloud.pubsub.topic.v1.messagePublished"
BINARY = {"ce_id": "1", "ce_source": "//storage/b", "ce_type": "t.made", "ce_specversion": "1.0"}
STRUCTURED = "application/cloudevents+json"


class TestPubsub:
    async def test_rest_118_the_agent_is_told_the_decoded_data(self) -> None:
        async with triggers("ok") as to:
            assert success(await to.pubsub({"message": {"data": "aGk="}, "subscription": "s"}))
            assert to.told == ['{"data":"hi"}']
            (session,) = await to.sessions("s")
            assert session["state"]["trigger_delivery"]["source"] == "pubsub"

    async def test_rest_118_attributes_and_a_subscription_with_slashes(self) -> None:
        async with triggers("ok") as to:
            assert success(await to.pubsub(push(None, subscription=SUBSCRIPTION, attributes={"a": "b"})))
            assert to.told == ['{"attributes":{"a":"b"}}']
            assert len(await to.sessions("projects--p--subscriptions--s")) == 1

    async def test_data_that_is_no_text_is_told_as_base64(self) -> None:
        async with triggers("ok") as to:
            assert success(await to.pubsub(push(b"\xff\xfe", attributes={"k": "v"})))
            assert to.told == ['{"attributes":{"k":"v"},"data_base64":"//4="}']

    async def test_without_a_subscription(self) -> None:
        async with triggers("ok") as to:
            assert success(await to.pubsub(push(subscription="")))
            assert len(await to.sessions("pubsub-caller")) == 1

    @pytest.mark.parametrize("message", [{}, {"data": ""}, {"attributes": {}}, None])
    async def test_rest_119_neither_data_nor_attributes(self, message: Any) -> None:
        async with triggers() as to:
            response = await to.pubsub({"message": message, "subscription": "s"})
            assert response.status == 400
            body = response.json()
            assert body["status"] == body["error"] == body["detail"]
            assert body["status"].startswith("failed to retrieve message content: ")
            assert await to.sessions("s") == []

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"message":{"data":"%"}}', b'{"message":{"attributes":1}}'])
    async def test_a_body_that_is_no_push(self, body: bytes) -> None:
        async with triggers() as to:
            headers = {"content-type": "application/json"}
            response = await to.client.post("/apps/a/trigger/pubsub", body=body, headers=headers)
            assert response.status == 400 and response.json()["status"]

    async def test_an_app_that_there_is_not_leaves_nothing_behind(self) -> None:
        async with triggers() as to:
            response = await to.pubsub(app="b")
            assert response.status == 404 and "the apps are: a" in response.json()["status"]
            assert (await to.client.get("/apps/b/users/s/sessions")).json() == []

    async def test_under_api_too(self) -> None:
        async with triggers("ok") as to:
            assert success(await to.client.post("/api/apps/a/trigger/pubsub", json=push()))


class TestEventarc:
    async def test_rest_120_binary(self) -> None:
        async with triggers("ok") as to:
            assert success(await to.eventarc({"name": "o"}, **BINARY))
            assert to.told == [
                '{"data":{"name":"o"},"id":"1","source":"//storage/b","specversion":"1.0","type":"t.made"}'
            ]
            assert len(await to.sessions("----storage--b")) == 1

    @pytest.mark.parametrize("content_type", [STRUCTURED, STRUCTURED + "; charset=utf-8", STRUCTURED.upper()])
    async def test_structured_by_its_media_type(self, content_type: str) -> None:
        event = {"id": "1", "source": "s", "type": "t", "specversion": "1.0", "time": "2026-01-01T00:00:00Z", "data": 7}
        async with triggers("ok") as to:
            assert success(await to.eventarc({**event, "extension": "x"}, content_type))
            assert json.loads(to.told[0]) == event

    async def test_rest_121_a_pubsub_event_is_unwrapped_in_both_forms(self) -> None:
        inside = push("hi", attributes={"a": "b"})
        event = {"id": "1", "source": "s", "type": PUBLISHED, "specversion": "1.0", "data": inside}
        encoded = {**event, "id": "3", "data_base64": base64.b64encode(json.dumps(inside).encode()).decode()}
        async with triggers("ok", "ok", "ok", "ok") as to:
            assert success(await to.eventarc(event, STRUCTURED))
            assert success(await to.eventarc(inside, **{**BINARY, "ce_id": "2", "ce_type": PUBLISHED}))
            del encoded["data"]
            assert success(await to.eventarc(encoded, STRUCTURED))
            assert success(await to.eventarc({**event, "id": "4", "data": json.dumps(inside)}, STRUCTURED))
            assert to.told == ['{"attributes":{"a":"b"},"data":"hi"}'] * 4

    @pytest.mark.parametrize("data", [{}, None, {"message": {}}, {"message": 1}, "x", 7])
    async def test_rest_121_a_pubsub_event_without_a_message(self, data: Any) -> None:
        event = {"id": "1", "source": "s", "type": PUBLISHED, "specversion": "1.0", "data": data}
        async with triggers() as to:
            assert (await to.eventarc(event, STRUCTURED)).status == 400

    async def test_binary_data_that_is_no_json(self) -> None:
        async with triggers("ok", "ok") as to:
            assert success(await to.eventarc(b"plain", "text/plain", **BINARY))
            assert success(await to.eventarc(b"\x00\xff", "image/png", **{**BINARY, "ce_id": "2"}))
            assert [json.loads(text).get("data") for text in to.told] == ["plain", None]
            assert json.loads(to.told[1])["data_base64"] == "AP8="

    @pytest.mark.parametrize("missing", list(BINARY))
    async def test_what_an_event_must_have(self, missing: str) -> None:
        async with triggers() as to:
            headers = {name: value for name, value in BINARY.items() if name != missing}
            response = await to.eventarc({"x": 1}, **headers)
            assert response.status == 400 and missing.removeprefix("ce_") in response.json()["status"]

    async def test_json_that_is_none_and_batches(self) -> None:
        async with triggers() as to:
            assert (await to.eventarc(b"{", **BINARY)).status == 400
            assert (await to.eventarc(b"[]", "application/cloudevents-batch+json")).status == 400
            assert (await to.eventarc(b"[" * 100 + b"]" * 100, **BINARY)).status == 400


class TestWebhook:
    async def test_the_body_is_what_the_agent_is_told(self) -> None:
        async with triggers("ok", "ok") as to:
            assert success(await to.webhook(b'{"a": 1}'))
            assert success(await to.webhook("größer".encode(), "shop", content_type="text/plain"))
            assert to.told == ['{"a": 1}', "größer"]
            assert len(await to.sessions("webhook")) == len(await to.sessions("shop")) == 1

    @pytest.mark.parametrize("body", [b"", b" \n", b"\xff\xfe"])
    async def test_nothing_to_tell(self, body: bytes) -> None:
        async with triggers() as to:
            assert (await to.webhook(body)).status == 400

    async def test_the_kind_of_a_message_is_in_the_state(self) -> None:
        async with triggers("ok") as to:
            assert success(await to.webhook(b"{}", "hub", x_github_event="push", x_github_delivery="d1"))
            (session,) = await to.sessions("hub")
            told = {"source": "webhook", "origin": "hub", "id": "d1", "type": "push"}
            assert session["state"]["trigger_delivery"] == told


KEY = b"k" * 24
SECRET = "whsec_" + base64.b64encode(KEY).decode()
CLOCK = Clock(1_772_000_000.5)


def standard(body: bytes, id: str = "m1", at: int = 1_772_000_000, key: bytes = KEY) -> dict[str, str]:
    mac = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = "v1a,xx v1," + base64.b64encode(mac).decode()
    return {"webhook_id": id, "webhook_timestamp": str(at), "webhook_signature": signature}


def hub(body: bytes, secret: str) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class TestSignatures:
    def app(self) -> Triggers:
        hooks = {
            "pay": Webhook(secret=["whsec_" + base64.b64encode(b"new" * 8).decode(), SECRET]),
            "hub": Webhook(secret="a text of twenty chars", scheme="github"),
        }
        return Triggers(webhooks=hooks, base_delay_s=0)

    async def test_standard_webhooks(self) -> None:
        async with triggers("ok", settings=self.app(), seams=CLOCK.seams()) as to:
            assert success(await to.webhook(b'{"a":1}', "pay", **standard(b'{"a":1}')))
            assert success(await to.webhook(b'{"a":1}', "pay", **standard(b'{"a":1}')))  # a replay does nothing
            assert to.told == ['{"a":1}']

    def test_the_example_of_the_specification(self) -> None:
        """The example that the specification's own libraries are tested with."""
        headers = {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        }
        key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        check_standard([key], lambda name: headers.get(name, ""), b'{"test": 2432232314}', 1614265330.0)

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {**standard(b"{}"), "webhook_id": ""},
            {**standard(b"{}"), "webhook_id": "m2"},
            {**standard(b"{}"), "webhook_timestamp": "1772000001"},
            {**standard(b"{}"), "webhook_timestamp": "now"},
            {**standard(b"{}"), "webhook_signature": "v1,"},
            {**standard(b"{}"), "webhook_signature": standard(b"{}")["webhook_signature"].replace("v1,", "v2,")},
            standard(b"{ }"),
            standard(b"{}", key=b"x" * 24),
            standard(b"{}", at=1_771_999_699),
            standard(b"{}", at=1_772_000_301),
            {"x_hub_signature_256": hub(b"{}", SECRET)},
        ],
    )
    async def test_what_is_not_signed_is_refused(self, headers: dict[str, str]) -> None:
        async with triggers(settings=self.app(), seams=CLOCK.seams()) as to:
            response = await to.webhook(b"{}", "pay", **headers)
            assert response.status == 401 and SECRET not in response.text
            assert (await to.webhook(b"{}", "p%61y", **headers)).status == 401

    async def test_hub_signatures(self) -> None:
        async with triggers("ok", settings=self.app()) as to:
            good = hub(b"{}", "a text of twenty chars")
            assert success(await to.webhook(b"{}", "hub", x_hub_signature_256=good))
            for bad in (
                "",
                "sha256=",
                good[:-1],
                good.replace("sha256=", "sha1="),
                hub(b"{ }", "a text of twenty chars"),
            ):
                assert (await to.webhook(b"{}", "hub", x_hub_signature_256=bad)).status == 401
            assert (await to.webhook(b"{}", "hub", x_hub_signature_256="ü")).status == 401

    def test_secrets_are_checked_and_never_shown(self) -> None:
        assert SECRET not in repr(Webhook(secret=SECRET))
        for bad in ("", "short", "whsec_!!!", "whsec_aGk=", []):
            with pytest.raises(ConfigError):
                Webhook(secret=bad)
        with pytest.raises(ConfigError, match="scheme"):
            Webhook(secret=SECRET, scheme="md5")  # pyright: ignore[reportArgumentType]


class TestTwice:
    async def test_a_message_that_comes_again_is_carried_out_once(self) -> None:
        event = {"id": "1", "source": "s", "type": "t", "specversion": "1.0"}
        async with triggers("ok", "ok", "ok", "ok") as to:
            for _ in range(2):
                assert success(await to.pubsub(push(id="m1")))
                assert success(await to.eventarc(event, STRUCTURED))
                assert success(await to.webhook(b"{}", webhook_id="m1"))
            assert success(await to.pubsub(push(id="m1", subscription="another")))

    async def test_messages_without_an_id_are_all_carried_out(self) -> None:
        async with triggers("ok", "ok") as to:
            assert success(await to.pubsub()) and success(await to.pubsub())
            assert len(await to.sessions("s")) == 2

    async def test_one_that_comes_while_it_is_carried_out_gets_the_same_answer(self) -> None:
        begun, go = anyio.Event(), anyio.Event()
        answers: list[Any] = []

        async def slow(request: Any, on_partial: Any) -> str:
            begun.set()
            await go.wait()
            return "ok"

        async with triggers(slow) as to:

            async def send() -> None:
                answers.append(await to.pubsub(push(id="m1")))

            async with anyio.create_task_group() as group:
                group.start_soon(send)
                await begun.wait()
                group.start_soon(send)
                await anyio.wait_all_tasks_blocked()
                go.set()
            assert [success(one) for one in answers] == [True, True]

    async def test_a_sender_that_hangs_up_stops_nothing(self) -> None:
        begun, go = anyio.Event(), anyio.Event()

        async def slow(request: Any, on_partial: Any) -> str:
            begun.set()
            await go.wait()
            return "ok"

        async with triggers(slow) as to:
            async with anyio.create_task_group() as group:
                group.start_soon(to.pubsub, push(id="m1"))
                await begun.wait()
                group.cancel_scope.cancel()
            go.set()
            assert success(await to.pubsub(push(id="m1")))


class _Names:
    """Callers say who they are: `name role`; the claims are those of a token."""

    challenge = ""

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        for value in credentials.values("x-caller"):
            name, _, role = value.partition(" ")
            claims = {"aud": ["other", "me"], "email": name, "email_verified": role != "unverified"}
            return Caller(user=name, claims=claims, roles=frozenset({role} if role else ()))
        return None


class TestWhoMaySend:
    async def test_a_caller_needs_a_role(self) -> None:
        async with triggers("ok", "ok", auth=_Names()) as to:
            assert (await to.pubsub()).status == 401
            refused = await to.pubsub(headers={"x-caller": "ann"})
            assert refused.status == 403 and "the role trigger" in refused.json()["detail"]
            assert success(await to.pubsub(headers={"x-caller": "ann trigger"}))
            assert success(await to.pubsub(headers={"x-caller": "root admin"}))
            letters = "/apps/a/trigger/dead-letters"
            assert (await to.client.get(letters, headers={"x-caller": "ann trigger"})).status == 403
            assert (await to.client.get(letters, headers={"x-caller": "root admin"})).status == 200

    async def test_tokens_of_service_accounts(self) -> None:
        settings = Triggers(base_delay_s=0, oidc_audience="me", oidc_service_accounts=["push@p"])
        async with triggers("ok", auth=_Names(), settings=settings) as to:
            assert success(await to.pubsub(headers={"x-caller": "push@p"}))
            for other in ("ann@p", "push@p unverified"):
                assert (await to.pubsub(headers={"x-caller": other})).status == 403
        settings = Triggers(oidc_audience="you", oidc_service_accounts=["push@p"])
        async with triggers(auth=_Names(), settings=settings) as to:
            assert (await to.pubsub(headers={"x-caller": "push@p"})).status == 403

    async def test_tokens_need_an_authenticator(self) -> None:
        settings = Triggers(oidc_audience="me", oidc_service_accounts=["push@p"])
        async with triggers(settings=settings) as to:
            assert (await to.pubsub()).status == 401

    async def test_a_signed_webhook_needs_no_other_authentication(self) -> None:
        settings = Triggers(webhooks={"pay": Webhook(secret=SECRET)})
        async with triggers("ok", auth=_Names(), settings=settings, seams=CLOCK.seams()) as to:
            assert success(await to.webhook(b"{}", "pay", **standard(b"{}")))
            assert (await to.webhook(b"{}", "other", **standard(b"{}"))).status == 401
            assert (await to.webhook(b"{}", **standard(b"{}"))).status == 401


class TestSetUp:
    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"max_retries": 0}, "max_retries is 0; it must be above zero"),
            ({"max_delay_s": 0}, "max_delay_s"),
            ({"max_concurrent_runs": 0}, "max_concurrent_runs"),
            ({"base_delay_s": -1}, "base_delay_s"),
            ({"sources": ["kafka"]}, "no source 'kafka'"),
            ({"oidc_audience": "me"}, "set together"),
            ({"oidc_service_accounts": ["a"]}, "set together"),
            ({"webhooks": {"a/b": Webhook(secret=SECRET)}}, "a/b"),
            ({"webhooks": {"a": Webhook(secret=SECRET)}, "sources": ["pubsub"]}, "not among the sources"),
            ({"keep_s": 0}, "keep_s"),
            ({"schedules": [Schedule(name="s", cron="* * * * *", message="m", app="b")]}, "the apps are: a"),
            ({"schedules": [Schedule(name="s", cron="* * * * *", message="m")] * 2}, "two schedules are named 's'"),
        ],
    )
    def test_what_makes_no_sense(self, settings: dict[str, Any], text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            App(LlmAgent(name="a", model="demo"), protocols=[Triggers(**settings)])

    async def test_only_the_sources_that_are_wanted(self) -> None:
        async with connect(App(LlmAgent(name="a", model="demo"), protocols=[Triggers(sources=["eventarc"])])) as client:
            assert (await client.post("/apps/a/trigger/pubsub", json=push())).status == 404
            assert (await client.post("/apps/a/trigger/eventarc", json={})).status == 400
