"""OpenAIModel against a strict server, beside the vendor's own client on the same bytes."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai_fake import USAGE, FakeOpenAI, Reply, chunk, completion, events, fake_openai, refusal, whole
from pydantic import TypeAdapter

from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse, Part, model_text, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration
from polyport.errors import ConfigError, ModelError, describe
from polyport.models.http import Http, Retry
from polyport.models.openai import OpenAIModel
from polyport.wire.openai import Dialect

KEY = "sk-secret-0123456789"
WEATHER = ToolDeclaration(
    name="get_weather",
    description="Get the weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
FRUIT = {
    "title": "F",
    "type": "object",
    "properties": {
        "color": {"title": "Color", "type": "string"},
        "taste": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Taste"},
    },
    "required": ["color"],
}


class Waits:
    """A sleep that only notes how long it was asked to wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def model_of(
    *replies: Reply, refuses: set[str] = frozenset(), dialect: Dialect | None = None, retry: Retry | None = None
) -> AsyncIterator[tuple[OpenAIModel, FakeOpenAI, Waits]]:
    waits = Waits()
    async with fake_openai(*replies, refuses=refuses) as fake:
        http = Http(fake.url, retry=retry or Retry(attempts=3, base_s=0.5), sleep=waits)
        model = OpenAIModel("fake-1", api_key=KEY, http=http, dialect=dialect)
        with anyio.fail_after(20):
            try:
                yield model, fake, waits
            finally:
                await model.aclose()


async def stream(model: OpenAIModel, request: ModelRequest) -> tuple[list[ModelResponse], ModelResponse]:
    pieces: list[ModelResponse] = []

    async def keep(piece: ModelResponse) -> None:
        pieces.append(piece)

    return pieces, await model.generate(request, keep)


def ask(text: str = "Hi", **more: Any) -> ModelRequest:
    return ModelRequest(contents=[user_text(text)], **more)


STREAMED = (
    chunk({"role": "assistant", "content": "", "refusal": None}),
    chunk({"content": "Let me look: Zürich 🌦 "}),
    chunk({"content": "and Bern."}),
    chunk(
        {
            "tool_calls": [
                {"index": 0, "id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
            ]
        }
    ),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}),
    chunk(
        {
            "tool_calls": [
                {"index": 1, "id": "c2", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
            ]
        }
    ),
    chunk({"tool_calls": [{"index": 1, "function": {"arguments": '{"city":"Bern"}'}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"Zürich"}'}}]}),
    chunk({}, "tool_calls"),
    chunk(usage=USAGE),
)
WHOLE = completion(
    {
        "content": "Let me look.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Bern"}'}}
        ],
    },
    "tool_calls",
    usage=USAGE,
)


def outline(response: ModelResponse) -> dict[str, Any]:
    content = response.content or Content()
    usage = response.usage_metadata
    assert usage is not None
    return {
        "text": content.text,
        "calls": [(c.id, c.name, c.args) for c in content.calls],
        "finish": response.finish_reason,
        "usage": (
            usage.prompt_token_count,
            (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
            usage.total_token_count,
            usage.cached_content_token_count,
            usage.thoughts_token_count,
        ),
    }


def outline_of_sdk(answer: ChatCompletion) -> dict[str, Any]:
    said, usage = answer.choices[0].message, answer.usage
    assert usage is not None and usage.prompt_tokens_details and usage.completion_tokens_details
    return {
        "text": said.content or "",
        "calls": [(c.id, c.function.name, json.loads(c.function.arguments)) for c in said.tool_calls or []],
        "finish": {"tool_calls": "STOP", "stop": "STOP", "length": "MAX_TOKENS"}[answer.choices[0].finish_reason],
        "usage": (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.total_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.completion_tokens_details.reasoning_tokens,
        ),
    }


USER = {"role": "user", "content": "x"}
CALLS = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": []},
        {"messages": [USER, CALLS, USER]},
        {"messages": [USER, {"role": "tool", "tool_call_id": "c1", "content": "x"}]},
        {"messages": [USER], "extra_body": {"top_k": 1}},
        {"messages": [USER], "extra_body": {"response_format": {"type": "json_schema", "response_schema": FRUIT}}},
        {
            "messages": [USER],
            "tools": [{"type": "function", "function": {"name": "a b", "parameters": {"type": "object"}}}],
        },
        {
            "messages": [USER],
            "response_format": {"type": "json_schema", "json_schema": {"name": "F", "strict": True, "schema": FRUIT}},
        },
        {"messages": [USER], "response_format": {"type": "json_object"}},
        {"messages": [USER], "stream_options": {"include_usage": True}},
    ],
)
async def test_the_fake_refuses_what_the_real_server_refuses(wrong: dict[str, Any]):
    async with fake_openai() as fake, openai.AsyncOpenAI(base_url=fake.url, api_key=KEY, max_retries=0) as client:
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="m", **wrong)


async def test_a_streamed_answer_means_the_same_to_the_vendors_client():
    async with model_of(events(*STREAMED), events(*STREAMED)) as (model, fake, _):
        pieces, ours = await stream(model, ask(tools=[WEATHER]))
        async with openai.AsyncOpenAI(base_url=fake.url, api_key=KEY, max_retries=0) as client:
            asked = {k: v for k, v in fake.bodies[0].items() if k != "stream"}
            async with client.chat.completions.stream(**asked) as theirs:
                expected = outline_of_sdk(await theirs.get_final_completion())
    assert outline(ours) == expected
    assert ours.turn_complete
    assert "".join(p.content.text for p in pieces if p.content) == expected["text"]
    assert all(p.partial for p in pieces)


async def test_a_whole_answer_means_the_same_to_the_vendors_client():
    async with model_of(whole(WHOLE), whole(WHOLE)) as (model, fake, _):
        ours = await model.generate(ask(tools=[WEATHER]))
        async with openai.AsyncOpenAI(base_url=fake.url, api_key=KEY, max_retries=0) as client:
            theirs = await client.chat.completions.create(**fake.bodies[0])
    assert outline(ours) == outline_of_sdk(theirs)
    assert not ours.partial
    assert fake.bodies[0] == fake.bodies[1]


def exhausted(value: Any) -> Any:
    """Pydantic checks the items of an Iterable only when they are taken."""
    if isinstance(value, dict):
        return {k: exhausted(v) for k, v in value.items()}
    if isinstance(value, Iterator | list):
        return [exhausted(v) for v in value]
    return value


def rich_request() -> ModelRequest:
    response = FunctionResponse(id="c1", name="get_weather", response={"t": 1})
    return ModelRequest(
        system="Be kind.",
        contents=[
            Content(role="user", parts=[Part(text="Look"), Part(inline_data=Blob(mime_type="image/png", data=b"png"))]),
            Content(
                role="model",
                parts=[
                    Part(text="thinking", thought=True),
                    Part(text="Hm."),
                    Part(function_call=FunctionCall(id="c1", name="get_weather", args={"city": "Bern"})),
                    Part(function_call=FunctionCall(name="get_weather", args={"city": "Basel"})),
                ],
            ),
            Content(role="user", parts=[Part(function_response=response)]),
            user_text("Go on"),
        ],
        tools=[WEATHER],
        response_schema=FRUIT,
        config=GenerateConfig(
            temperature=0.5, top_p=0.9, max_output_tokens=99, stop_sequences=["x"], seed=1, tool_choice="get_weather",
            presence_penalty=0.1, frequency_penalty=0.1, thinking_budget=512,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("streaming", [True, False])
async def test_FR_033_a_rich_request_passes_a_strict_server_and_the_vendors_types(streaming: bool):
    reply = events(chunk({"content": "ok"}, "stop")) if streaming else whole(completion({"content": "ok"}))
    async with model_of(reply) as (model, fake, _):
        if streaming:
            await stream(model, rich_request())
        else:
            await model.generate(rich_request())
    assert fake.refused == []
    kind: Any = CompletionCreateParamsStreaming if streaming else CompletionCreateParamsNonStreaming
    sent = fake.bodies[0]
    assert set(sent) <= kind.__annotations__.keys()
    assert exhausted(TypeAdapter(kind).validate_python(sent)) == sent


async def test_FR_070_the_whole_streamed_answer_goes_back_once():
    hello = events(
        chunk({"content": "Hi Ada "}), chunk({"content": "how are you "}), chunk({"content": "doing?"}, "stop")
    )
    async with model_of(hello, events(chunk({"content": "ok"}, "stop"))) as (model, fake, _):
        _, first = await stream(model, ask())
        assert first.content is not None
        await stream(model, ModelRequest(contents=[user_text("Hi"), first.content, user_text("Fine")]))
    assert fake.bodies[1]["messages"][1] == {"role": "assistant", "content": "Hi Ada how are you doing?"}


async def test_FR_075_usage_arrives_from_a_last_chunk_without_choices():
    async with model_of(events(*STREAMED)) as (model, fake, _):
        _, answer = await stream(model, ask())
    assert fake.bodies[0]["stream_options"] == {"include_usage": True}
    assert answer.usage_metadata is not None
    assert answer.usage_metadata.total_token_count == 18


async def test_FR_075_a_server_that_refuses_the_option_is_asked_without_it_and_remembered():
    ok = events(chunk({"content": "ok"}, "stop"))
    async with model_of(ok, ok, refuses={"stream_options"}) as (model, fake, waits):
        for _ in range(2):
            _, answer = await stream(model, ask())
            assert answer.content == model_text("ok")
    assert ["stream_options" in body for body in fake.bodies] == [True, False, False]
    assert waits.seconds == []


@pytest.mark.parametrize("status", [400, 422])
async def test_FR_075_a_refusal_without_a_reason_is_tried_without_the_option(status: int):
    bare = Reply(status, [b"Bad Request"])
    async with model_of(bare, events(chunk({"content": "ok"}, "stop"))) as (model, fake, _):
        await stream(model, ask())
    assert ["stream_options" in body for body in fake.bodies] == [True, False]


async def test_another_refusal_is_not_tried_again_and_teaches_nothing():
    async with model_of(refusal(400, "context length exceeded", "messages")) as (model, fake, _):
        with pytest.raises(ModelError, match="context length exceeded") as caught:
            await stream(model, ask())
        assert model.dialect == Dialect()
    assert caught.value.http_status == 400
    assert len(fake.bodies) == 1


@pytest.mark.parametrize("given", ["stop", "length", "content_filter", "tool_calls"])
async def test_FR_076_the_finish_reason_is_kept_streamed_and_not(given: str):
    word = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}.get(given, "STOP")
    replies = events(chunk({"content": "cut"}), chunk({}, given)), whole(completion({"content": "cut"}, given))
    async with model_of(*replies) as (model, _, _):
        _, streamed = await stream(model, ask())
        answer = await model.generate(ask())
    assert (streamed.finish_reason, answer.finish_reason) == (word, word)
    assert streamed.content == answer.content == model_text("cut")


async def test_FR_079_a_schema_passes_a_strict_server():
    async with model_of(whole(completion({"content": '{"color":"red","taste":null}'}))) as (model, fake, _):
        answer = await model.generate(ask(response_schema=FRUIT))
    assert fake.refused == []
    assert fake.bodies[0]["response_format"]["json_schema"]["strict"] is True
    assert answer.content is not None and json.loads(answer.content.text) == {"color": "red", "taste": None}


async def test_FR_079_a_server_without_schemas_is_asked_for_plain_json_and_remembered_for_this_schema():
    ok = whole(completion({"content": "{}"}))
    async with model_of(ok, ok, refuses={"json_schema"}) as (model, fake, _):
        await model.generate(ask(response_schema=FRUIT))
        await model.generate(ask(response_schema=FRUIT))
        kinds = [body["response_format"]["type"] for body in fake.bodies]
        assert kinds == ["json_schema", "json_schema", "json_object", "json_object"]
        assert model.dialect.structured == "json_schema"


async def test_FR_079_a_server_without_json_at_all_is_told_in_words():
    ok = whole(completion({"content": "{}"}))
    async with model_of(ok, refuses={"response_format"}) as (model, fake, _):
        await model.generate(ask(response_schema=FRUIT))
    assert "response_format" not in fake.bodies[-1]
    assert '"color"' in fake.bodies[-1]["messages"][0]["content"]


async def test_a_server_that_wants_the_other_name_of_the_token_limit_gets_it():
    no = refusal(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens")
    ok = whole(completion({"content": "ok"}))
    async with model_of(no, ok, ok) as (model, fake, _):
        for _ in range(2):
            await model.generate(ask(config=GenerateConfig(max_output_tokens=5)))
    names = ["max_tokens", "max_completion_tokens", "max_completion_tokens"]
    assert [next(k for k in body if k.startswith("max_")) for body in fake.bodies] == names


@pytest.mark.parametrize("message", [{"content": None}, None])
async def test_FR_082_an_empty_answer_is_an_answer(message: dict[str, Any] | None):
    body = completion({"content": None}) if message else {**completion({}), "choices": []}
    async with model_of(whole(body), events(chunk(usage=USAGE))) as (model, _, _):
        assert (await model.generate(ask())).content is None
        pieces, answer = await stream(model, ask())
    assert (pieces, answer.content, answer.error_code) == ([], None, "")


async def test_FR_083_a_429_is_tried_again_after_the_time_it_asks_for():
    slow = refusal(429, "slow down", **{"retry-after": "1"})
    async with model_of(slow, slow, events(chunk({"content": "ok"}, "stop"))) as (model, fake, waits):
        pieces, answer = await stream(model, ask())
    assert waits.seconds == [1.0, 1.0]
    assert answer.content == model_text("ok") and len(pieces) == 1
    assert len(fake.bodies) == 3


async def test_FR_083_a_long_wait_surfaces_at_once_and_names_the_status():
    async with model_of(refusal(429, "slow down", **{"retry-after": "600"})) as (model, fake, waits):
        with pytest.raises(ModelError, match="slow down") as caught:
            await stream(model, ask())
    assert (caught.value.http_status, caught.value.retry_after_s) == (429, 600.0)
    assert describe(caught.value)["code"] == "HTTP_429"
    assert (waits.seconds, len(fake.bodies)) == ([], 1)


async def test_FR_083_tries_are_bounded():
    busy = refusal(503, "busy")
    async with model_of(busy, busy, retry=Retry(attempts=2)) as (model, _, waits):
        with pytest.raises(ModelError, match="503"):
            await model.generate(ask())
    assert len(waits.seconds) == 1


@pytest.mark.parametrize("broken", ["cut", "error", "end"])
async def test_FR_083_nothing_is_said_twice_when_the_stream_breaks(broken: str):
    said = [chunk({"content": text}) for text in "abc"]
    fault = {"error": {"message": "overloaded", "code": 503}}
    reply = events(*said, *[fault] * (broken == "error"), done=False, cut=broken == "cut")
    pieces: list[str] = []

    async def keep(piece: ModelResponse) -> None:
        pieces.append(piece.content.text if piece.content else "")

    async with model_of(reply) as (model, fake, waits):
        with pytest.raises(ModelError) as caught:
            await model.generate(ask(), keep)
    assert "".join(pieces) == "abc"[: len(pieces)]
    assert (len(fake.bodies), waits.seconds) == (1, [])
    assert caught.value.http_status == (503 if broken == "error" else 0)


async def test_a_400_in_mid_stream_does_not_start_over():
    reply = events(chunk({"content": "a"}), {"error": {"message": "stream_options", "code": 400}})
    async with model_of(reply) as (model, fake, _):
        with pytest.raises(ModelError):
            await stream(model, ask())
    assert len(fake.bodies) == 1


@pytest.mark.parametrize("status", [401, 500])
async def test_FR_023_the_key_is_sent_and_never_told(status: int):
    reply = refusal(status, f"Incorrect API key provided: {KEY}; x-key was tenant-secret-1")
    request = ask(config=GenerateConfig(headers={"x-api-key": "tenant-secret-1"}))
    async with model_of(reply, retry=Retry(attempts=1)) as (model, fake, _):
        with pytest.raises(ModelError, match="Incorrect API key") as caught:
            await stream(model, request)
    assert fake.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert fake.headers[0]["x-api-key"] == "tenant-secret-1"
    assert caught.value.http_status == status
    for secret in (KEY, "tenant-secret-1"):
        assert secret not in f"{caught.value!r} {describe(caught.value)} {model!r}"


async def test_FR_023_a_key_in_a_mid_stream_error_is_not_told():
    async with model_of(events(chunk({"content": "a"}), {"error": {"message": f"key {KEY} expired"}})) as (model, _, _):
        with pytest.raises(ModelError, match="expired") as caught:
            await stream(model, ask())
    assert KEY not in str(caught.value)


async def test_a_server_that_is_not_there_is_told_and_its_login_is_not():
    model = OpenAIModel("llama", base_url="http://me:secret-1@127.0.0.1:1/v1", retry=Retry(attempts=1))
    with pytest.raises(ModelError) as caught:
        await model.generate(ask())
    await model.aclose()
    assert "server at http://127.0.0.1:1/v1 cannot be reached (Connection refused)" in str(caught.value)
    assert caught.value.code == "UNAVAILABLE"


async def test_cancelling_closes_the_connection():
    reply = Reply(
        200, [b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'], {"content-type": "text/event-stream"}, hang=True
    )
    got = anyio.Event()

    async def note(piece: ModelResponse) -> None:
        got.set()

    async with model_of(reply) as (model, fake, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.generate, ask(), note)
            await got.wait()
            assert not fake.hung_up.is_set()
            tasks.cancel_scope.cancel()
        await fake.hung_up.wait()


async def test_a_server_that_keeps_the_connection_after_its_end_does_not_hold_the_answer(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("polyport.models.openai._LINGER_S", 0.05)
    reply = events(chunk({"content": "a"}, "stop"))
    reply.hang = True
    async with model_of(reply) as (model, _, _):
        _, answer = await stream(model, ask())
    assert answer.content == model_text("a")


async def test_a_stream_is_read_to_its_end_so_that_the_connection_is_used_again():
    ok = events(chunk({"content": "a"}, "stop"))
    async with model_of(ok, ok) as (model, fake, _):
        await stream(model, ask())
        await stream(model, ask())
    assert len(set(fake.peers)) == 1


async def test_the_name_of_the_request_wins_and_extra_goes_along():
    async with model_of(whole(completion({"content": "ok"}))) as (model, fake, _):
        assert model.name == "fake-1"
        await model.generate(ask(model="other", config=GenerateConfig(extra={"user": "u1"})))
    assert (fake.bodies[0]["model"], fake.bodies[0]["user"], fake.bodies[0]["stream"]) == ("other", "u1", False)


def test_a_missing_key_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenAIModel("gpt-x")
    OpenAIModel("llama", base_url="http://127.0.0.1:1/v1")
    OpenAIModel("gpt-x", headers={"Authorization": "Bearer other"})


async def test_FR_023_the_environments_key_goes_to_the_official_server_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    OpenAIModel("gpt-x")
    async with fake_openai(whole(completion({"content": "ok"}))) as fake:
        model = OpenAIModel("llama", base_url=fake.url)
        await model.generate(ask())
        await model.aclose()
    assert "Authorization" not in fake.headers[0]


def test_FR_087_a_schema_beside_tools_is_promised_by_the_official_server_only():
    assert OpenAIModel("gpt-x", api_key=KEY).schema_with_tools
    assert not OpenAIModel("llama", base_url="http://127.0.0.1:1/v1").schema_with_tools
    for can in (True, False):
        dialect = Dialect(schema_with_tools=can)
        assert OpenAIModel("gpt-x", api_key=KEY, dialect=dialect).schema_with_tools is can
