"""GeminiModel against a strict fake of the Gemini API."""

import base64

import anyio
import pytest
from gemini_fake import KEY, Reply, events, refusal, said, serve, whole
from gemini_ways import NAME, WEATHER, ask, full_request, model_of, streamed

from polyport import codec
from polyport.data.content import Content, FunctionResponse, Part, model_text, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse
from polyport.errors import ConfigError, ModelError
from polyport.models.gemini import GeminiModel
from polyport.models.http import Retry

# --- set-up -----------------------------------------------------------------------------------------------------------


def test_a_missing_key_is_told_with_what_to_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.setenv("GOOGLE_API_KEY", " ")
    with pytest.raises(ConfigError, match="GEMINI_API_KEY or GOOGLE_API_KEY"):
        GeminiModel(NAME)
    with pytest.raises(ConfigError, match="not the name"):
        GeminiModel("../secret", api_key=KEY)


@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
async def test_the_key_of_the_environment_travels_in_a_header(monkeypatch: pytest.MonkeyPatch, variable: str):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.setenv(variable, KEY)
    async with serve(whole(said({"text": "a"}, finish="STOP"))) as server:
        model = GeminiModel(NAME, base_url=server.url + "/v1beta", headers={"X-Goog-Api-Client": "mine/1"})
        request = ask(config=GenerateConfig(headers={"X-Trace": "t1"}))
        assert (await model.generate(request)).content == model_text("a")
        await model.aclose()
    (seen,) = server.seen
    assert seen.path == f"/v1beta/models/{NAME}:generateContent"
    assert (seen.headers["x-goog-api-key"], seen.headers["x-trace"]) == (KEY, "t1")
    assert seen.headers["x-goog-api-client"].startswith("mine/1 ")


@pytest.mark.parametrize(
    ("name", "able"),
    [
        ("gemini-2.5-flash", False),
        ("gemini-flash-latest", False),
        ("gemma-3-27b-it", False),
        ("gemini-3-pro-preview", True),
        ("models/gemini-3.1-flash", True),
        ("gemini-10", True),
    ],
)
def test_core_3_5_which_names_take_a_schema_beside_tools(name: str, able: bool):
    assert GeminiModel(name, api_key=KEY).schema_with_tools is able


async def test_the_model_of_the_request_wins():
    async with serve(whole(said({"text": "a"}))) as server, model_of(server) as model:
        await model.generate(ask(model="gemini-other"))
    assert server.seen[0].path.startswith("/v1beta/models/gemini-other:")


# --- what is sent is taken --------------------------------------------------------------------------------------------


async def test_FR_013_FR_033_a_request_with_everything_passes_the_strict_server():
    async with serve(whole(said({"text": "ok"}, finish="STOP"))) as server, model_of(server) as model:
        assert (await model.generate(full_request())).content == model_text("ok")
    body = server.seen[0].body
    assert body["contents"][0]["parts"][2] == {"inlineData": {"mimeType": "text/plain", "data": "aGk="}}
    assert "functionResponse" in body["contents"][-1]["parts"][0]
    assert body["contents"][-1]["parts"][1] == {"text": "stop, do something else"}


async def test_core_71_old_models_refuse_a_schema_beside_tools_and_new_ones_take_it():
    request = ask(tools=[WEATHER], response_schema={"type": "object"})
    ok = whole(said({"text": "{}"}, finish="STOP"))
    async with serve(ok, ok) as server, model_of(server) as model:
        with pytest.raises(ModelError, match="unsupported") as caught:
            await model.generate(request)
        assert (caught.value.http_status, caught.value.code) == (400, "INVALID_ARGUMENT")
        request.model = "gemini-3-flash"
        assert (await model.generate(request)).content == model_text("{}")


async def test_FR_068_an_id_made_for_a_streamed_call_is_the_same_to_the_end():
    reply = events(said({"functionCall": {"name": "f", "args": {}}}), said({"text": ""}, finish="STOP"))
    async with serve(reply) as server, model_of(server) as model:
        pieces, answer = await streamed(model, ask())
    assert pieces[0].content is not None
    assert answer.content is not None
    assert pieces[0].content.calls == answer.content.calls
    assert answer.content.calls[0].id.startswith("adk-")


async def test_FR_080_four_calls_in_a_row_carry_their_signatures_through_storage():
    def reply(n: int) -> Reply:
        signature = base64.b64encode(bytes([n, 255, 0, 62, 63]) * 9).decode()
        parts = [{"functionCall": {"name": "f", "args": {"n": n}}, "thoughtSignature": signature}]
        if n == 2:  # side by side
            parts.append(
                {"functionCall": {"name": "g", "args": {"n": n}}, "thoughtSignature": signature[::-1][4:] + "AA=="}
            )
        return events(said(*parts, finish="STOP")) if n % 2 else whole(said(*parts, finish="STOP"))

    history = [user_text("go")]
    async with serve(*(reply(n) for n in range(4)), whole(said({"text": "done"}, finish="STOP"))) as server:
        for n in range(5):
            async with model_of(server) as model:  # a fresh process, so to speak
                request = ModelRequest(contents=codec.decode(codec.encode(history), list[Content]))
                answer = (await streamed(model, request))[1] if n % 2 else await model.generate(request)
            assert answer.content is not None
            history.append(answer.content)
            results = [FunctionResponse(id=c.id, name=c.name, response={"ok": n}) for c in answer.content.calls]
            history.append(Content(role="user", parts=[Part(function_response=r) for r in results]))
    assert answer.content == model_text("done")
    assert len(server.signatures) == 5


async def test_FR_080_the_strict_server_does_notice_a_lost_signature():
    first = whole(said({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "yMnK"}))
    async with serve(first) as server, model_of(server) as model:
        answer = await model.generate(ask())
        assert answer.content is not None
        (call,) = answer.content.calls
        result = Content(
            role="user", parts=[Part(function_response=FunctionResponse(id=call.id, name="f", response={}))]
        )
        bare = Content(role="model", parts=[Part(function_call=call)])
        with pytest.raises(ModelError, match="thought_signature"):
            await model.generate(ModelRequest(contents=[user_text("hi"), bare, result]))


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_FR_023_a_refused_key_is_one_error_each_time_and_never_shown():
    async with serve(whole(said({"text": "ok"}))) as server:
        bad = GeminiModel(NAME, api_key="wrong-key-987654321", base_url=server.url + "/v1beta")
        for n in range(20):
            with pytest.raises(ModelError, match="not valid") as caught:
                await (streamed(bad, ask()) if n % 2 else bad.generate(ask()))
            assert (caught.value.http_status, caught.value.code) == (400, "INVALID_ARGUMENT")
            assert "wrong-key-987654321" not in f"{caught.value!r} {caught.value.__cause__!r}"
        await bad.aclose()
        async with model_of(server) as model:
            assert (await model.generate(ask())).content == model_text("ok")
    assert len(server.seen) == 21  # never asked twice
    assert all("key" not in s.path for s in server.seen)


@pytest.mark.parametrize("stream", [False, True])
async def test_FR_083_a_short_wait_is_waited_for_before_the_first_byte(stream: bool):
    busy = refusal(429, "RESOURCE_EXHAUSTED", "slow down", retry_after="1")
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}
    slept: list[float] = []
    body = said({"text": "ok"}, finish="STOP")
    last = events(body) if stream else whole(body)
    replies = (busy, refusal(429, "RESOURCE_EXHAUSTED", "slow down", info), last)
    async with serve(*replies) as server, model_of(server, slept) as model:
        answer = (await streamed(model, ask()))[1] if stream else await model.generate(ask())
    assert answer.content == model_text("ok")
    assert slept == [1.0, 2.5]


@pytest.mark.parametrize("header", [True, False])
async def test_FR_083_a_long_wait_surfaces_at_once(header: bool):
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "600s"}
    plain = refusal(429, "RESOURCE_EXHAUSTED", "quota", retry_after="600")
    slept: list[float] = []
    reply = plain if header else refusal(429, "RESOURCE_EXHAUSTED", "quota", info)
    async with serve(reply) as server, model_of(server, slept) as model:
        with pytest.raises(ModelError, match="429 RESOURCE_EXHAUSTED: quota") as caught:
            await model.generate(ask())
    assert (caught.value.http_status, caught.value.code, caught.value.retry_after_s) == (429, "RESOURCE_EXHAUSTED", 600)
    assert slept == []


async def test_FR_083_retries_are_bounded():
    replies = [refusal(503, "UNAVAILABLE", "overloaded") for _ in range(5)]
    async with serve(*replies) as server, model_of(server, retry=Retry(attempts=2)) as model:
        with pytest.raises(ModelError, match="503 UNAVAILABLE"):
            await model.generate(ask())
    assert len(server.seen) == 2


@pytest.mark.parametrize("how", ["told", "cut"])
async def test_FR_083_a_failure_after_three_chunks_is_not_started_over(how: str):
    chunks = [said({"text": t}) for t in "abc"]
    fault = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "overloaded"}}
    reply = events(*chunks, fault) if how == "told" else events(*chunks, cut=True)
    got: list[str] = []

    async def on_partial(piece: ModelResponse) -> None:
        assert piece.content is not None
        got.append(piece.content.text)

    async with serve(reply, reply) as server, model_of(server) as model:
        with pytest.raises(ModelError) as caught:
            await model.generate(ask(), on_partial)
    assert got == ["a", "b", "c"][: len(got)]
    assert how == "cut" or len(got) == 3  # an aborted connection may take bytes with it
    assert caught.value.code == "UNAVAILABLE"
    assert len(server.seen) == 1


async def test_cancelling_hangs_up():
    async with serve(events(said({"text": "a"}), hang=True)) as server, model_of(server) as model:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streamed, model, ask())
            with anyio.fail_after(10):
                await server.reached.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            await server.hung_up.wait()
