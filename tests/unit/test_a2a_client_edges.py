"""The A2A client against agents, proxies and cards that do not behave (spec a2a 1, 4; FR-163, 177, 178, 181, 184; T105)."""

import gc
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from polyport.agents.a2a_card_cache import CardRules, candidates
from polyport.agents.a2a_client import A2AClient, A2AOptions
from polyport.agents.a2a_door import A2ALimits, Caller
from polyport.agents.a2a_http import is_public
from polyport.agents.a2a_task import RemoteTask, joined
from polyport.agents.remote_told import Told
from polyport.errors import (
    ConfigError,
    Forbidden,
    LimitExceeded,
    NotFound,
    PolyportError,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from polyport.seams import Seams
from polyport.wire import a2a, a2a_sign
from polyport.wire.a2a_card import AgentCard
from polyport.wire.a2a_errors import InvalidAgentResponse, TaskNotFound
from support.a2a_fake import (
    WELL_KNOWN,
    Answer,
    cached,
    card,
    chunk,
    fake_agent,
    frames,
    message,
    status,
    task,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Sleeps:
    """Sleeps nobody waits for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def client(where: Any, *, clock: Clock | None = None, **options: Any) -> AsyncIterator[A2AClient]:
    limits = A2ALimits(**options.pop("limits", {}))
    seams = Seams(clock=clock) if clock is not None else Seams()
    found = A2AClient(where, options=A2AOptions(limits=limits, **options), seams=seams, sleep=Sleeps())
    try:
        yield found
    finally:
        await found.aclose()


async def gather(payloads: Any) -> list[a2a.Payload]:
    async with aclosing(payloads):
        return [payload async for payload in payloads]


def short(payloads: list[a2a.Payload]) -> list[str]:
    """Payloads as words: `task SUBMITTED`, `COMPLETED`, `a: text`, `a+ text`, `message text`."""
    out: list[str] = []
    for p in payloads:
        if isinstance(p, a2a.Message):
            out.append(f"message {p.text}")
        elif isinstance(p, a2a.TaskArtifactUpdateEvent):
            sign = "+" if p.append else ":"
            out.append(f"{p.artifact.artifact_id}{sign} " + "|".join(part.text or "?" for part in p.artifact.parts))
        else:
            out.append(("task " if isinstance(p, a2a.Task) else "") + p.status.state.removeprefix("TASK_STATE_"))
    return out


# ---- FR-184: where the card is


async def test_FR_184_the_card_is_looked_for_at_the_origin_then_at_the_url_then_by_its_old_name():
    async with fake_agent() as fake, client(fake.url + "/a2a") as found:
        plain = fake.cards.pop(WELL_KNOWN)
        with pytest.raises(NotFound, match="no agent card at http"):
            await found.card()
        old = "/.well-known/agent.json"
        assert [path for path, _ in fake.gets] == [WELL_KNOWN, "/a2a" + WELL_KNOWN, old, "/a2a" + old]
        fake.cards["/a2a" + old] = plain
        assert (await found.card()).name == "fake"
    assert candidates("https://h/") == ["https://h" + WELL_KNOWN, "https://h/.well-known/agent.json"]


async def test_FR_184_a_page_that_answers_everything_is_no_card():
    async with fake_agent() as fake, client(fake.url + "/agents/x/") as found:
        fake.cards["/agents/x" + WELL_KNOWN] = fake.cards[WELL_KNOWN]
        fake.cards[WELL_KNOWN] = lambda request: web.Response(text="<html>", content_type="text/html")
        assert (await found.card()).name == "fake"


async def test_FR_184_of_several_agents_on_a_host_the_one_at_the_url_is_taken():
    async with fake_agent() as fake:
        fake.cards[WELL_KNOWN] = card(fake.url + "/a2a/one") | {"name": "one"}
        fake.cards["/a2a/two" + WELL_KNOWN] = card(fake.url + "/a2a/two") | {"name": "two"}
        async with client(fake.url + "/a2a/two") as two, client(fake.url + "/a2a/one") as one:
            assert (await two.card()).name == "two"
            fake.gets.clear()
            assert (await one.card()).name == "one"
            assert len(fake.gets) == 1  # the first place had the right one
        async with client(fake.url + "/elsewhere") as other:
            assert (await other.card()).name == "one"  # there is no better one


async def test_FR_184_calls_go_to_the_interface_of_the_card():
    async with fake_agent() as fake:
        fake.on("SendMessage", message("hi"))
        async with client(fake.url + WELL_KNOWN) as found:
            await found.send("hello")
        assert fake.calls[0].path == "/rpc"
        assert [path for path, _ in fake.gets] == [WELL_KNOWN]


async def test_FR_184_credentials_do_not_follow_a_card_to_another_host():
    bearer = Caller(headers={"Authorization": "Bearer secret"})
    async with fake_agent() as home, fake_agent() as other:
        home.cards[WELL_KNOWN] = card(other.url + "/rpc")
        other.on("SendMessage", message("hi"))
        other.on("SendMessage", Answer(status=401, body=b""))
        other.on("SendMessage", message("hi"))
        async with client(home.url) as found:
            await found.send("a", caller=bearer)
            with pytest.raises(Unauthenticated, match="trusted_hosts") as error:
                await found.send("b", caller=bearer)
            assert "secret" not in str(error.value)
        async with client(home.url, trusted_hosts=(other.url.removeprefix("http://"),)) as found:
            await found.send("c", caller=bearer)
        assert [headers.get("authorization") for _, headers in home.gets] == ["Bearer secret"] * 2
        assert [call.headers.get("authorization") for call in other.calls] == [None, None, "Bearer secret"]


async def test_FR_184_a_card_that_was_given_is_consent_for_its_hosts():
    async with fake_agent() as fake:
        fake.on("SendMessage", message("hi"))
        async with client(card(fake.url)) as found:
            await found.send("a", caller=Caller(headers={"X-Key": "k"}))
        assert fake.calls[0].headers["x-key"] == "k" and not fake.gets


# ---- T105: the card is kept


async def test_T105_a_card_is_fetched_once_per_ttl_and_then_asked_for_with_if_none_match():
    clock = Clock()
    async with fake_agent() as fake, client(fake.url, clock=clock) as found:
        fake.cards[WELL_KNOWN] = cached(card(fake.url), '"v1"')
        for _ in range(3):
            await found.card()
        assert len(fake.gets) == 1 and "if-none-match" not in fake.gets[0][1]
        clock.now += 61
        await found.card()
        await found.card()
        assert len(fake.gets) == 2 and fake.gets[1][1]["if-none-match"] == '"v1"'
        fake.cards[WELL_KNOWN] = cached(card(fake.url) | {"name": "new"}, '"v2"')
        clock.now += 61
        assert (await found.card()).name == "new"


async def test_T105_callers_at_one_time_fetch_it_once():
    async with fake_agent() as fake, client(fake.url) as found:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(found.card)
        assert len(fake.gets) == 1


async def test_T105_a_server_that_is_down_does_not_take_a_known_card_away():
    clock = Clock()
    async with fake_agent() as fake, client(fake.url, clock=clock, card=CardRules(stale_s=1000)) as found:
        await found.card()
        fake.cards[WELL_KNOWN] = lambda request: web.Response(status=503)
        clock.now += 301
        assert (await found.card()).name == "fake"
        clock.now += 2000
        with pytest.raises(Unavailable):
            await found.card()


async def test_T105_cards_of_callers_with_credentials_are_not_mixed_unless_public():
    def mine(request: web.Request) -> web.Response:
        return web.json_response(card("http://h") | {"name": request.headers["authorization"]})

    async with fake_agent() as fake, client(fake.url) as found:
        fake.cards[WELL_KNOWN] = mine
        ann, bob = (Caller(headers={"authorization": who}, identity=who) for who in ("ann", "bob"))
        assert [(await found.card(who)).name for who in (ann, bob, ann)] == ["ann", "bob", "ann"]
        assert len(fake.gets) == 2
    async with fake_agent() as fake, client(fake.url) as found:
        fake.cards[WELL_KNOWN] = cached(card(fake.url), '"v"', "public, max-age=60")
        await found.card(ann)
        await found.card(bob)
        assert len(fake.gets) == 1


# ---- choosing an interface


async def test_FR_178_a_card_without_a_common_transport_says_so():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.cards[WELL_KNOWN] = card("http://h/x", ("SMTP", "1.0"), ("GRPC", "1.0"), ("JSONRPC", "1.5"))
        with pytest.raises(
            Unavailable,
            match=r"offers SMTP 1\.0, GRPC 1\.0, JSONRPC 1\.5; this client speaks JSONRPC, HTTP\+JSON, GRPC",
        ):
            await found.send("hi")


async def test_the_first_interface_that_we_speak_is_taken_and_its_tenant_is_echoed():
    async with fake_agent() as fake:
        plain = card(fake.url + "/b", ("GRPC", "1.0"), ("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"))
        plain["supportedInterfaces"][1]["tenant"] = "acme"
        fake.on("GetTask", task("COMPLETED"))
        async with client(plain) as found:
            await found.get("t1")
        assert fake.calls[0].params == {"id": "t1", "tenant": "acme"}
        assert fake.calls[0].headers["a2a-version"] == "1.0"


@pytest.mark.parametrize("plain", [{"name": "x"}, {"supportedInterfaces": "no"}, {}])
def test_a_card_that_is_none_is_refused_when_it_is_given(plain: Any):
    with pytest.raises(ConfigError, match="agent card"):
        A2AClient(plain)


@pytest.mark.parametrize("url", ["", "h/a2a", "ftp://h", "http://[", "http://h:99999"])
def test_a_url_that_is_none_is_refused(url: str):
    with pytest.raises(ConfigError):
        A2AClient(url)


async def test_a_card_must_be_signed_when_keys_are_given():
    key, other = a2a_sign.new_key("k1"), a2a_sign.new_key("k2")
    async with fake_agent() as fake:
        plain = card(fake.url)
        signed = a2a_sign.sign(a2a.read(json.dumps(plain), AgentCard), [key])
        trusted = a2a_sign.public_keys([key])["keys"]
        for served, keys, good in ((plain, trusted, False), (signed, trusted, True)):
            fake.cards[WELL_KNOWN] = msgspec.to_builtins(served) if isinstance(served, AgentCard) else served
            async with client(fake.url, card=CardRules(keys=keys)) as found:
                if good:
                    assert (await found.card()).name == "fake"
                else:
                    with pytest.raises(InvalidAgentResponse, match="not signed"):
                        await found.card()
        async with client(fake.url, card=CardRules(keys=a2a_sign.public_keys([other])["keys"])) as found:
            with pytest.raises(InvalidAgentResponse, match="trusted key"):
                await found.card()
    with pytest.raises(ConfigError, match="not signed"):
        A2AClient(plain, options=A2AOptions(card=CardRules(keys=trusted)))


# ---- FR-181: the answer belongs to the call


@pytest.mark.parametrize("id", ["other", 1, False])
async def test_FR_181_an_answer_with_another_id_is_refused(id: Any):
    async with fake_agent() as fake, client(fake.url) as found:
        fake.on("GetTask", Answer(task("COMPLETED"), id=id))
        with pytest.raises(InvalidAgentResponse, match="another call"):
            await found.get("t1")


async def test_FR_181_an_answer_without_an_id_is_refused_but_an_error_is_heard():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.on("GetTask", Answer(body=json.dumps({"jsonrpc": "2.0", "result": task("COMPLETED")}).encode()))
        fake.on("GetTask", Answer(body=b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"gone"}}'))
        with pytest.raises(InvalidAgentResponse):
            await found.get("t1")
        with pytest.raises(TaskNotFound, match="gone"):
            await found.get("t1")


async def test_FR_181_in_a_stream_every_frame_is_checked():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.on("SendStreamingMessage", frames({"task": task()}, status("COMPLETED"), ids=["x", "x"]))
        with pytest.raises(InvalidAgentResponse, match="another call"):
            await gather(found.stream("hi"))


# ---- FR-163: messages


@pytest.mark.parametrize(
    "sent",
    [
        [message("a"), message("b"), message("c")],
        [message("a"), status("COMPLETED")],
        [{"task": task()}, message("a"), status("COMPLETED")],
        [{"task": task()}, status("COMPLETED", id="t2")],
    ],
)
async def test_FR_163_a_mix_that_cannot_be_is_a_protocol_error(sent: list[Any]):
    async with fake_agent() as fake, client(fake.url) as found:
        fake.streams(*sent)
        with pytest.raises(InvalidAgentResponse):
            await gather(found.stream("hi"))


async def test_FR_163_a_message_is_the_whole_answer_also_when_the_server_does_not_close():
    async with fake_agent() as fake, client(fake.url, limits={"linger_s": 0.05}) as found:
        fake.streams(message("only this"))
        fake.streams(message("and this"), end="hang")
        fake.streams(message("this, too"), end="cut")
        assert short(await gather(found.stream("hi"))) == ["message only this"]
        assert short(await gather(found.stream("hi"))) == ["message and this"]
        assert short(await gather(found.stream("hi"))) == ["message this, too"]


# ---- FR-178: streams


async def test_FR_178_a_stream_ends_with_the_task_and_not_with_its_artifacts_though_the_server_stays():
    async with fake_agent() as fake, client(fake.url) as found:
        pieces = [chunk(n, artifact=n, last=True) for n in ("a", "b", "c")]
        fake.streams({"task": task()}, *pieces, status("COMPLETED"), end="hang")
        assert short(await gather(found.stream("hi"))) == ["task SUBMITTED", "a: a", "b: b", "c: c", "COMPLETED"]
        with anyio.fail_after(5):
            await fake.gone.wait()


async def test_FR_178_a_stream_ends_where_input_is_needed_but_not_where_credentials_are():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.streams({"task": task()}, status("INPUT_REQUIRED", "Which?"), end="hang")
        fake.streams({"task": task()}, status("AUTH_REQUIRED", "Sign in"), chunk("done"), status("COMPLETED"))
        fake.streams({"task": task()}, status("AUTH_REQUIRED", "Sign in"))
        assert short(await gather(found.stream("hi")))[-1] == "INPUT_REQUIRED"
        assert short(await gather(found.stream("hi")))[-1] == "COMPLETED"
        assert short(await gather(found.stream("hi")))[-1] == "AUTH_REQUIRED"


async def test_FR_178_a_card_without_streaming_is_polled():
    for streaming in (False, None):
        async with fake_agent(streaming=streaming) as fake, client(fake.url) as found:
            fake.on("SendMessage", {"task": task("WORKING", artifacts={"a": ["Hel"]})})
            fake.on("GetTask", Answer(error={"code": -32603, "message": "busy"}, status=503, body=b"<html>"))
            fake.on("GetTask", task("WORKING", artifacts={"a": ["Hel", "lo"]}))
            fake.on("GetTask", task("COMPLETED", artifacts={"a": ["Hello"], "b": ["!"]}))
            assert short(await gather(found.stream("hi"))) == ["task WORKING", "a+ lo", "b: !", "COMPLETED"]
            assert fake.calls[0].params["configuration"] == {"returnImmediately": True}


async def test_FR_178_a_blocking_or_polling_send_gives_the_task():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.on("SendMessage", {"task": task("COMPLETED")})
        fake.on("SendMessage", {"task": task("WORKING")})
        fake.on("SendMessage", {"task": task("WORKING")})
        fake.on("GetTask", task("WORKING"))
        fake.on("GetTask", task("INPUT_REQUIRED", "Which?"))
        fake.on("GetTask", task("INPUT_REQUIRED", "Which?", history=[]))
        for wait, state in (("blocking", "COMPLETED"), ("no", "WORKING"), ("polling", "INPUT_REQUIRED")):
            answer = await found.send("hi", wait=wait)
            assert isinstance(answer, a2a.Task) and answer.status.state.endswith(state)


async def test_FR_178_T103_a_stream_that_is_cut_is_taken_up_without_loss_or_doubles():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.streams({"task": task()}, chunk("Hello, "), end="cut")
        fake.on(
            "SubscribeToTask",
            frames(
                {"task": task("WORKING", artifacts={"a": ["Hello, ", "big "]})}, chunk("wor", append=True), end="close"
            ),
        )
        fake.on(
            "SubscribeToTask",
            frames({"task": task("WORKING", artifacts={"a": ["Hello, big wor"]})}, chunk("ld", append=True), end="cut"),
        )
        fake.on("SubscribeToTask", frames({"task": task("COMPLETED", artifacts={"a": ["Hello, big world!"]})}))
        assert short(await gather(found.stream("hi"))) == [
            "task SUBMITTED", "a: Hello, ", "a+ big ", "WORKING", "a+ wor", "a+ ld", "a+ !", "COMPLETED"
        ]  # fmt: skip
        assert [call.params["id"] for call in fake.calls[1:]] == ["t1"] * 3


async def test_FR_178_a_task_that_ended_during_the_cut_is_looked_at():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.streams({"task": task()}, chunk("Hello"), end="cut")
        fake.on("SubscribeToTask", Answer(error={"code": -32004, "message": "it has ended"}))
        fake.on("GetTask", task("COMPLETED", artifacts={"a": ["Hello", " you"]}))
        assert short(await gather(found.stream("hi"))) == ["task SUBMITTED", "a: Hello", "a+  you", "COMPLETED"]


async def test_FR_178_a_proxy_that_cuts_every_stream_is_answered_with_polling():
    async with fake_agent() as fake, client(fake.url, limits={"resubscribes": 2}) as found:
        fake.streams({"task": task("WORKING")}, end="cut")
        fake.on("SubscribeToTask", frames(end="cut"))
        fake.on("GetTask", task("WORKING", artifacts={"a": ["x"]}))
        fake.on("SubscribeToTask", Answer(status=524, body=b"<html>", media="text/html"))
        fake.on("GetTask", task("WORKING", artifacts={"a": ["x", "y"]}))
        fake.on("GetTask", task("COMPLETED", artifacts={"a": ["xy"]}))
        assert short(await gather(found.stream("hi"))) == ["task WORKING", "a: x", "a+ y", "COMPLETED"]


async def test_FR_178_a_stream_without_an_answer_is_an_error():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.streams()
        fake.streams(end="cut")
        with pytest.raises(InvalidAgentResponse, match="without an answer"):
            await gather(found.stream("hi"))
        with pytest.raises(Unavailable, match="broke off"):
            await gather(found.stream("hi"))


async def test_FR_178_a_server_that_cannot_stream_after_all_is_polled():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.on("SendStreamingMessage", Answer(error={"code": -32004, "message": "no streams here"}))
        fake.on("SendMessage", message("then so"))
        assert short(await gather(found.stream("hi"))) == ["message then so"]


async def test_a_snapshot_at_the_end_of_a_stream_says_nothing_twice():
    async with fake_agent() as fake, client(fake.url) as found:
        done = task("COMPLETED", artifacts={"a": ["one", " two"]})
        fake.streams({"task": task()}, chunk("one"), chunk(" two", append=True, last=True), {"task": done})
        assert short(await gather(found.stream("hi"))) == ["task SUBMITTED", "a: one", "a+  two", "COMPLETED"]


async def test_a_0_3_stream_taken_up_without_a_snapshot_is_set_right_at_its_end():
    def v03(kind: str, **more: Any) -> dict[str, Any]:
        return {"kind": kind, "taskId": "t1", "contextId": "c1", **more}

    def piece(text: str, append: bool) -> dict[str, Any]:
        artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}
        return v03("artifact-update", artifact=artifact, append=append)

    whole = {"artifactId": "a", "parts": [{"kind": "text", "text": "one two three"}]}
    done = {"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "completed"}, "artifacts": [whole]}
    async with fake_agent() as fake:
        fake.cards[WELL_KNOWN] = card(fake.url, ("JSONRPC", "0.3"))
        fake.on(
            "message/stream",
            frames(
                {"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "working"}},
                piece("one", False),
                end="cut",
            ),
        )
        ended = v03("status-update", status={"state": "completed"}, final=True)
        fake.on("tasks/resubscribe", frames(piece(" three", True), ended))
        fake.on("tasks/get", done)
        async with client(fake.url) as found:
            got = short(await gather(found.stream("hi")))
        assert got == ["task WORKING", "a: one", "a+  three", "a: one two three", "COMPLETED"]
        assert "a2a-version" not in fake.calls[0].headers


async def test_a_reader_that_leaves_hangs_up():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.streams({"task": task()}, end="hang")
        async with aclosing(found.stream("hi")) as payloads:
            async for _ in payloads:
                break
        with anyio.fail_after(5):
            await fake.gone.wait()


async def test_a_client_that_is_garbage_leaves_no_connection_open():
    async with fake_agent() as fake:
        for _ in range(5):
            found: Any = A2AClient(fake.url)
            found.itself = found  # only the garbage collector can take it
            await found.card()
            del found
            gc.collect()  # a connection that is garbage, too, warns, and warnings fail
            await anyio.lowlevel.checkpoint()


async def test_a_reader_that_is_cancelled_hangs_up():
    async with fake_agent() as fake, client(fake.url) as found:
        waiting = anyio.Event()

        async def shown() -> None:
            waiting.set()

        fake.streams({"task": task()}, shown, end="hang")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: gather(found.stream("hi")))
            await waiting.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await fake.gone.wait()


async def test_a_subscription_gives_a_snapshot_and_stays_where_input_is_needed():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.on("SubscribeToTask", frames({"task": task("INPUT_REQUIRED")}, status("WORKING"), status("COMPLETED")))
        fake.on("SubscribeToTask", frames({"task": task("INPUT_REQUIRED")}))
        fake.on("SubscribeToTask", frames({"task": task("INPUT_REQUIRED")}, end="hang"))
        got = short(await gather(found.subscribe("t1")))
        assert got == ["task INPUT_REQUIRED", "WORKING", "COMPLETED"]
        assert short(await gather(found.subscribe("t1"))) == ["task INPUT_REQUIRED"]
        assert short(await gather(found.subscribe("t1", until_input=True))) == ["task INPUT_REQUIRED"]


# ---- FR-177: credentials


async def test_FR_177_refused_credentials_are_refreshed_once_on_card_send_stream_and_subscribe():
    token = {"value": "old"}
    seen: list[str] = []

    async def refresh(challenge: str) -> None:
        seen.append(challenge)
        token["value"] = "new"

    caller = Caller(provider=lambda: {"Authorization": f"Bearer {token['value']}"}, refresh=refresh)
    no = {"www-authenticate": 'Bearer error="invalid_token"'}
    async with fake_agent() as fake, client(fake.url) as found:
        plain = card(fake.url)
        fake.cards[WELL_KNOWN] = lambda request: (
            web.json_response(plain)
            if request.headers["authorization"] == "Bearer new"
            else web.Response(status=401, headers=no)
        )
        await found.card(caller)
        fake.on("SendMessage", Answer(status=401, headers=no, body=b""))
        fake.on("SendMessage", message("hi"))
        fake.on("SendStreamingMessage", Answer(status=401, headers=no, body=b""))
        fake.streams(message("hi"))
        fake.on("SubscribeToTask", Answer(status=401, headers=no, body=b""))
        fake.on("SubscribeToTask", frames({"task": task("COMPLETED")}))
        for call in (
            lambda: found.send("a", caller=caller),
            lambda: gather(found.stream("a", caller=caller)),
            lambda: gather(found.subscribe("t1", caller=caller)),
        ):
            token["value"] = "old"
            await call()
        assert seen == ['Bearer error="invalid_token"'] * 4
        assert [call.headers["authorization"] for call in fake.calls] == ["Bearer old", "Bearer new"] * 3


async def test_FR_177_a_second_401_is_the_answer_and_without_news_there_is_no_second():
    async with fake_agent() as fake, client(fake.url) as found:
        tokens = iter("abcdef")
        caller = Caller(provider=lambda: {"Authorization": next(tokens)})
        for _ in range(2):
            fake.on("GetTask", Answer(status=401, body=b""))
        with pytest.raises(Unauthenticated, match="401"):
            await found.get("t1", caller=caller)
        fake.on("GetTask", Answer(status=401, body=b""))
        with pytest.raises(Unauthenticated, match="does not accept") as error:
            await found.get("t1", caller=Caller(headers={"Authorization": "same secret"}))
        assert "secret" not in str(error.value)


# ---- limits, redirects, addresses


async def test_limits_of_size():
    async with fake_agent() as fake:
        limits = {"card_bytes": 2000, "answer_bytes": 3000, "stream_bytes": 3000}
        async with client(fake.url, limits=limits) as found:
            fake.on("GetTask", task("COMPLETED", "x" * 4000))
            with pytest.raises(TooLarge, match="more than 3000 bytes"):
                await found.get("t1")
            fake.streams({"task": task()}, *[chunk("x" * 500, append=True)] * 10)
            with pytest.raises(TooLarge, match="larger than 3000 bytes"):
                await gather(found.stream("hi"))
        fake.cards[WELL_KNOWN] = card(fake.url) | {"description": "x" * 3000}
        async with client(fake.url, limits=limits) as found:
            with pytest.raises(TooLarge, match="more than 2000 bytes"):
                await found.card()


async def test_JSON_that_nests_too_deeply_is_refused():
    async with fake_agent() as fake, client(fake.url) as found:
        bomb: Any = "x"
        for _ in range(200):
            bomb = [bomb]
        fake.on("GetTask", task("COMPLETED", {"data": bomb}))
        with pytest.raises(InvalidAgentResponse, match="deeper"):
            await found.get("t1")


async def test_limits_of_time():
    async with fake_agent() as fake:
        limits = {"call_timeout_s": 0.05, "idle_timeout_s": 0.05, "resubscribes": 0, "poll_failures": 0}
        async with client(fake.url, limits=limits) as found:
            await found.card()
            fake.on("GetTask", frames(end="hang"))
            with pytest.raises(TimedOut, match=r"within 0\.05 s"):
                await found.get("t1")
            fake.streams({"task": task()}, end="hang")
            fake.on("GetTask", task("COMPLETED"))
            assert short(await gather(found.stream("hi"))) == ["task SUBMITTED", "COMPLETED"]


async def test_a_polling_send_ends_with_its_time():
    async with fake_agent() as fake, client(fake.url, limits={"timeout_s": 0.2}) as found:
        fake.on("SendMessage", {"task": task("WORKING")})
        fake.on("GetTask", frames(end="hang"))
        with pytest.raises(TimedOut, match="not over within"):
            await found.send("hi", wait="polling")


async def test_a_redirect_is_followed_on_the_same_host_only():
    async with fake_agent() as fake, fake_agent() as other:
        there = {"location": "/card"}
        fake.cards["/card"] = fake.cards[WELL_KNOWN]
        fake.cards[WELL_KNOWN] = lambda request: web.Response(status=302, headers=there)
        fake.on("SendMessage", Answer(status=307, headers={"location": other.url}, body=b""))
        async with client(fake.url) as found:
            assert (await found.card()).name == "fake"
            with pytest.raises(Unavailable, match="redirects to another host"):
                await found.send("hi", caller=Caller(headers={"Authorization": "secret"}))
            there["location"] = other.url + "/x?token=secret"
        async with client(fake.url) as found:
            with pytest.raises(Unavailable, match="redirects to another host") as error:
                await found.card()
            assert "secret" not in str(error.value)
        async with client(fake.url) as found:
            there["location"] = WELL_KNOWN
            with pytest.raises(Unavailable, match="circle"):
                await found.card()
        assert not other.calls and not other.gets


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
async def test_only_the_internet_is_called_when_told_so(host: str):
    async with fake_agent() as fake, client(fake.url.replace("127.0.0.1", host), allow_private=False) as found:
        with pytest.raises(Forbidden, match="allow_private"):
            await found.card()
        assert not fake.gets


async def test_a_card_may_lead_to_another_port_of_this_network_when_it_came_from_there():
    async with fake_agent() as home, fake_agent() as other:
        home.cards[WELL_KNOWN] = card(other.url)
        other.on("SendMessage", message("hi"))
        async with client(home.url) as found:
            await found.send("hi")
        async with client(card(other.url), allow_private=False) as found:
            with pytest.raises(Forbidden):
                await found.send("hi")


def test_addresses_that_are_not_of_the_internet():
    inside = [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.1.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
    ]
    inside += ["::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1"]
    assert [a for a in inside if is_public(a)] == []
    assert all(map(is_public, ["8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808"]))


# ---- errors by name


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(error={"code": -32001, "message": "no"}), TaskNotFound),
        (Answer(error={"code": -32602, "message": "no"}), PolyportError),
        (Answer(status=403, body=b""), Forbidden),
        (Answer(status=404, body=b"<html>", media="text/html"), NotFound),
        (Answer(status=502, body=b"<html>", media="text/html"), Unavailable),
        (Answer(status=429, body=b"", headers={"retry-after": "7"}), LimitExceeded),
        (Answer(body=b"<html>", media="text/html"), InvalidAgentResponse),
        (Answer(body=b"[]"), InvalidAgentResponse),
        (Answer(body=b""), InvalidAgentResponse),
        (Answer({"id": 3}), InvalidAgentResponse),
        (Answer(task("NO_SUCH_STATE")), InvalidAgentResponse),
        (Answer(error={"code": -32001, "message": "no"}, status=404), TaskNotFound),
    ],
)
async def test_what_a_server_answers_instead_of_a_task(answer: Answer, kind: type[Exception]):
    async with fake_agent() as fake, client(fake.url) as found:
        fake.on("GetTask", answer)
        with pytest.raises(kind) as error:
            await found.get("t1")
        if isinstance(error.value, LimitExceeded):
            assert error.value.retry_after_s == 7.0


async def test_an_answer_to_a_message_that_is_neither_task_nor_message():
    async with fake_agent() as fake, client(fake.url) as found:
        fake.on("SendMessage", {"later": {}})
        fake.streams({"later": {}}, {"task": task("COMPLETED")})
        with pytest.raises(InvalidAgentResponse, match="neither"):
            await found.send("hi")
        assert short(await gather(found.stream("hi"))) == ["task COMPLETED"]  # a frame of a newer kind is passed over


async def test_nobody_is_there():
    async with fake_agent() as fake:
        url = fake.url
    async with client(url) as found:
        with pytest.raises(Unavailable, match="could not be reached"):
            await found.card()


async def test_extensions_are_asked_for():
    async with fake_agent() as fake, client(fake.url, extensions=("urn:x", "urn:y")) as found:
        fake.on("SendMessage", message("hi"))
        await found.send("hi")
        assert fake.calls[0].headers["a2a-extensions"] == "urn:x, urn:y"


# ---- what is known of a task


def known(*payloads: Any) -> RemoteTask:
    found = RemoteTask()
    for plain in payloads:
        found.take(a2a.read_plain(plain, a2a.StreamResponse).payload)  # type: ignore[arg-type]
    return found


def seen(found: RemoteTask, snapshot: dict[str, Any]) -> list[str]:
    return short(found.catch_up(a2a.read_plain(snapshot, a2a.Task)))


def test_catching_up_tells_what_is_missing_and_nothing_twice():
    begin = ({"task": task("WORKING")}, chunk("ab"), chunk("cd", append=True))
    same = {"a": ["abcd"]}
    assert seen(known(*begin), task("WORKING", artifacts=same)) == []
    assert seen(known(*begin), task("WORKING", artifacts={"a": ["ab", "cde"]})) == ["a+ e"]
    assert seen(known(*begin), task("WORKING", artifacts={"a": ["x"]})) == ["a: x"]
    assert seen(known(*begin), task("WORKING", artifacts={"a": ["abcd", {"data": 1}]})) == ["a+ ?"]
    assert seen(known(*begin), task("FAILED")) == ["FAILED"]  # a snapshot without artifacts takes nothing away
    twice = known(*begin)
    assert seen(twice, task("WORKING", artifacts={"a": ["abcde"]})) == ["a+ e"]
    assert seen(twice, task("WORKING", artifacts={"a": ["abcde"]})) == []
    assert seen(known(*begin, status("COMPLETED")), task("WORKING", artifacts={"a": ["old"]})) == []


def test_an_unknown_artifact_that_is_appended_to_is_begun():
    found = known({"task": task("WORKING")}, chunk("x", append=True))
    assert seen(found, task("WORKING", artifacts={"a": ["xy"]})) == ["a+ y"]


PARTS = st.lists(
    st.one_of(
        st.text("ab", min_size=1, max_size=3).map(lambda text: a2a.Part(text=text)),
        st.text("c", max_size=2).map(lambda text: a2a.Part(text=text, metadata={"adk_thought": True})),
        st.integers(0, 2).map(lambda n: a2a.Part(data=n)),
    ),
    max_size=6,
)


@given(st.lists(PARTS, max_size=4), PARTS, st.booleans())
def test_T102_what_was_told_and_what_is_left_make_the_whole(chunks: list[Any], more: list[Any], joins: bool):
    """However the chunks came, and whether the server joins them or not."""
    told = Told()
    for n, parts in enumerate(chunks):
        told.note("a", parts, append=n > 0)
    before = [part for parts in chunks for part in parts]
    after = before + more
    kept = Told({id: (count, length) for id, (count, length) in told.plain(["a"]).items()})
    rest = kept.rest(a2a.Artifact(artifact_id="a", parts=joined(after) if joins else after))
    assert joined([*before, *rest]) == joined(after)
    assert len(rest) <= len(joined(more)) + 1
