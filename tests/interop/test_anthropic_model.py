"""AnthropicModel against a strict server."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anthropic_fake import (
    KEY,
    MIXED,
    AnthropicFake,
    as_events,
    error,
    message,
    said,
    stream,
)

from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse, Part, model_text, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration
from polyport.errors import ConfigError, ModelError, describe
from polyport.models.anthropic import AnthropicModel
from polyport.models.http import Http, Retry

MODEL = "claude-test-1"
SHORT = GenerateConfig(max_output_tokens=1000)
"""Small enough that an answer is not streamed unless somebody watches."""


@pytest.fixture
async def fake() -> AsyncIterator[AnthropicFake]:
    async with AnthropicFake() as server:
        yield server


class Naps:
    """Stands for anyio.sleep: does not wait, remembers."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


@pytest.fixture
def naps() -> Naps:
    return Naps()


@pytest.fixture
async def model(fake: AnthropicFake, naps: Naps) -> AsyncIterator[AnthropicModel]:
    model = AnthropicModel(MODEL, api_key=KEY, http=Http(fake.url, retry=Retry(attempts=3), sleep=naps))
    yield model
    await model.aclose()


class Watcher:
    """Takes partials."""

    def __init__(self) -> None:
        self.seen: list[ModelResponse] = []

    async def __call__(self, partial: ModelResponse) -> None:
        self.seen.append(partial)

    @property
    def text(self) -> str:
        return "".join(p.content.text for p in self.seen if p.content)


def ask(*contents: Content, **more: Any) -> ModelRequest:
    return ModelRequest(contents=list(contents) or [user_text("hi")], config=more.pop("config", SHORT), **more)


async def test_a_request_carries_key_version_and_headers(fake: AnthropicFake, model: AnthropicModel) -> None:
    fake.script(message(said("hello")))
    config = GenerateConfig(max_output_tokens=5, headers={"Anthropic-Beta": "x-2025"})
    answer = await model.generate(ask(config=config))
    assert answer.content == model_text("hello")
    sent = fake.headers[0]
    assert (sent["x-api-key"], sent["anthropic-version"], sent["anthropic-beta"]) == (KEY, "2023-06-01", "x-2025")
    assert (fake.bodies[0]["model"], fake.bodies[0]["stream"]) == (MODEL, False)


async def test_the_version_of_the_api_may_be_chosen(fake: AnthropicFake, model: AnthropicModel) -> None:
    """Temperature is of the version of 2023 only; what we send without it is fine for that of 2026, too."""
    fake.script(message(said("hello")), message(said("hello")))
    warm = GenerateConfig(max_output_tokens=5, temperature=0.5)
    await model.generate(ask(config=warm))
    newer = GenerateConfig(max_output_tokens=5, headers={"Anthropic-Version": "2026-10-21"})
    await model.generate(ask(config=newer))
    assert [h["anthropic-version"] for h in fake.headers] == ["2023-06-01", "2026-10-21"]


async def test_the_request_may_name_another_model(fake: AnthropicFake, model: AnthropicModel) -> None:
    fake.script(message(said("hello")))
    await model.generate(ask(model="claude-test-2"))
    assert fake.bodies[0]["model"] == "claude-test-2"
    assert model.name == MODEL


async def test_a_long_answer_is_streamed_even_when_nobody_watches(fake: AnthropicFake, model: AnthropicModel) -> None:
    fake.script(message(said("hello")))
    answer = await model.generate(ask(config=GenerateConfig()))
    assert fake.bodies[0]["stream"] is True
    assert answer.content == model_text("hello")


async def test_a_partial_is_handed_on_before_the_next_chunk_is_sent(fake: AnthropicFake, model: AnthropicModel) -> None:
    events = as_events(message(said("abcd")))
    first = next(i for i, e in enumerate(events) if e["type"] == "content_block_delta")
    seen = anyio.Event()

    async def wait(at: int) -> None:
        if at == first + 1:
            await seen.wait()

    async def take(partial: ModelResponse) -> None:
        seen.set()

    reply = stream(*events)
    reply.before_chunk = wait
    fake.script(reply)
    with anyio.fail_after(30):
        answer = await model.generate(ask(), take)
    assert answer.content == model_text("abcd")


async def test_a_connection_is_used_again(fake: AnthropicFake, model: AnthropicModel) -> None:
    fake.script(message(said("a")), message(said("b")), message(said("c")))
    await model.generate(ask(), Watcher())
    await model.generate(ask(), Watcher())
    await model.generate(ask())
    assert len({*fake.peers}) == 1


async def test_an_answer_is_whole_at_message_stop_even_if_the_server_never_hangs_up(
    fake: AnthropicFake, model: AnthropicModel
) -> None:
    events = as_events(message(said("hello")))
    never = anyio.Event()

    async def wait(at: int) -> None:
        if at == len(events):
            await never.wait()

    reply = stream(*events, {"type": "ping"})
    reply.before_chunk = wait
    fake.script(reply)
    with anyio.fail_after(30):
        answer = await model.generate(ask(), Watcher())
    never.set()
    assert answer.content == model_text("hello")


async def test_FR_068_FR_086_a_tool_turn_in_two_requests(fake: AnthropicFake, model: AnthropicModel) -> None:
    fake.script(MIXED, message(said("17 degrees")))
    tools = [ToolDeclaration(name="get"), ToolDeclaration(name="now")]
    config = GenerateConfig(thinking_budget=2000, max_output_tokens=4000)
    watcher = Watcher()
    first = await model.generate(ask(tools=tools, config=config), watcher)
    assert first.content is not None
    assert [c.id for p in watcher.seen if p.content for c in p.content.calls] == ["toolu_1", "toolu_2"]
    assert [c.id for c in first.content.calls] == ["toolu_1", "toolu_2"]
    results = [
        Part(function_response=FunctionResponse(id=c.id, name=c.name, response={"v": 1})) for c in first.content.calls
    ]
    history = [user_text("hi"), first.content, Content(role="user", parts=results)]
    second = await model.generate(ask(*history, tools=tools, config=config), watcher)
    assert second.content == model_text("17 degrees")
    back = fake.bodies[1]["messages"][1]["content"]
    assert back == MIXED["content"]


async def test_FR_033_a_broken_history_is_accepted(fake: AnthropicFake, model: AnthropicModel) -> None:
    fake.script(message(said("ok")))
    unanswered = Content(role="model", parts=[Part(function_call=FunctionCall(id="adk|c1", name="pay"))])
    answer = await model.generate(ask(model_text("hello"), unanswered, user_text("stop, do something else")))
    assert answer.content == model_text("ok")


async def test_FR_077_structured_results_and_images_reach_the_server(
    fake: AnthropicFake, model: AnthropicModel
) -> None:
    fake.script(message(said("ok")))
    values: list[dict[str, Any] | None] = [{"rows": [{"a": 1}], "n": 2}, {"result": [1, 2]}, None, {"result": ""}]
    calls = [Part(function_call=FunctionCall(id=f"c{i}", name="t")) for i in range(len(values))]
    results = [Part(function_response=FunctionResponse(id=f"c{i}", name="t", response=v)) for i, v in enumerate(values)]
    png = Part(inline_data=Blob(mime_type="image/png", data=b"\x89PNG"))
    watcher = Watcher()
    await model.generate(
        ask(
            Content(role="user", parts=[Part(text="look"), png]),
            Content(role="model", parts=calls),
            Content(role="user", parts=results),
        ),
        watcher,
    )
    assert watcher.text == "ok"
    sent = fake.bodies[0]["messages"]
    assert sent[0]["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert [json.loads(b["content"]) for b in sent[2]["content"]] == values


async def test_a_schema_is_asked_for_beside_tools(fake: AnthropicFake, model: AnthropicModel) -> None:
    assert model.schema_with_tools
    fake.script(message(said('{"n":1}')))
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0},
            "of": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": ["string", "null"]}}}},
        },
    }
    answer = await model.generate(ask(tools=[ToolDeclaration(name="f")], response_schema=schema))
    assert answer.content == model_text('{"n":1}')
    assert fake.bodies[0]["output_config"]["format"]["type"] == "json_schema"


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize(
    ("stop", "finish"), [("max_tokens", "MAX_TOKENS"), ("refusal", "SAFETY"), ("end_turn", "STOP")]
)
async def test_FR_076_finish_reasons(
    fake: AnthropicFake, model: AnthropicModel, stop: str, finish: str, watched: bool
) -> None:
    fake.script(message(said("Half an ans"), stop=stop))
    answer = await model.generate(ask(), Watcher() if watched else None)
    assert (answer.finish_reason, answer.content) == (finish, model_text("Half an ans"))
    assert len(fake.bodies) == 1


# ---------------------------------------------------------------- errors and retries


def test_a_missing_key_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        AnthropicModel(MODEL)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "  ")
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        AnthropicModel(MODEL)
    AnthropicModel(MODEL, headers={"Authorization": "Bearer of a gateway"})


async def test_the_key_comes_from_the_environment(fake: AnthropicFake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY + "\n")
    fake.script(message(said("hello")))
    model = AnthropicModel(MODEL, base_url=fake.url + "/v1/")
    assert (await model.generate(ask())).content == model_text("hello")
    await model.aclose()
    await model.aclose()


@pytest.mark.parametrize("watched", [True, False])
async def test_FR_023_a_wrong_key_is_an_error_that_does_not_echo_it(
    fake: AnthropicFake, naps: Naps, watched: bool
) -> None:
    secret = "sk-ant-wrong-0123456789"
    model = AnthropicModel(MODEL, api_key=secret, http=Http(fake.url, sleep=naps))
    with pytest.raises(ModelError) as caught:
        await model.generate(ask(), Watcher() if watched else None)
    await model.aclose()
    assert (caught.value.http_status, caught.value.code) == (401, "authentication_error")
    assert "invalid x-api-key ***" in str(caught.value)
    assert secret not in str(caught.value) + repr(caught.value) + repr(model)
    assert naps.taken == []


async def test_FR_023_a_secret_header_of_one_request_is_not_echoed(fake: AnthropicFake, model: AnthropicModel) -> None:
    fake.script(stream({"type": "error", "error": {"type": "permission_error", "message": "bad token tok-12345678"}}))
    config = GenerateConfig(headers={"Authorization": "Bearer tok-12345678"})
    with pytest.raises(ModelError) as caught:
        await model.generate(ask(config=config), Watcher())
    assert str(caught.value).endswith("permission_error: bad token ***")


async def test_a_refused_request_says_why(fake: AnthropicFake, model: AnthropicModel, naps: Naps) -> None:
    config = GenerateConfig(max_output_tokens=100, extra={"bogus": 1})
    with pytest.raises(ModelError, match="bogus") as caught:
        await model.generate(ask(config=config))
    assert (caught.value.http_status, caught.value.code) == (400, "invalid_request_error")
    assert describe(caught.value)["code"] == "invalid_request_error"
    assert naps.taken == []


@pytest.mark.parametrize("watched", [True, False])
async def test_FR_083_busy_is_retried_before_the_first_byte(
    fake: AnthropicFake, model: AnthropicModel, naps: Naps, watched: bool
) -> None:
    fake.script(
        error(429, "rate_limit_error", "slow down", retry_after="1"),
        error(529, "overloaded_error", "Overloaded", retry_after="2"),
        message(said("at last")),
    )
    watcher = Watcher()
    answer = await model.generate(ask(), watcher if watched else None)
    assert answer.content == model_text("at last")
    assert naps.taken == [1.0, 2.0]
    assert not watched or watcher.text == "at last"


async def test_FR_083_retries_end(fake: AnthropicFake, model: AnthropicModel, naps: Naps) -> None:
    fake.script(*[error(529, "overloaded_error", "Overloaded")] * 3)
    with pytest.raises(ModelError, match="529") as caught:
        await model.generate(ask(), Watcher())
    assert (caught.value.code, len(fake.bodies), len(naps.taken)) == ("overloaded_error", 3, 2)


async def test_FR_083_a_long_retry_after_surfaces_at_once(
    fake: AnthropicFake, model: AnthropicModel, naps: Naps
) -> None:
    fake.script(error(429, "rate_limit_error", "slow down", retry_after="600"))
    with pytest.raises(ModelError, match="429") as caught:
        await model.generate(ask())
    assert (caught.value.retry_after_s, caught.value.code, naps.taken) == (600, "rate_limit_error", [])


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


async def test_FR_083_FR_086_an_error_after_chunks_is_not_retried(
    fake: AnthropicFake, model: AnthropicModel, naps: Naps
) -> None:
    fake.script(stream(*as_events(message(said("abcd")))[:5], OVERLOADED))
    watcher = Watcher()
    with pytest.raises(ModelError, match="Overloaded") as caught:
        await model.generate(ask(), watcher)
    assert (caught.value.code, watcher.text) == ("overloaded_error", "abcd")
    assert (len(fake.bodies), naps.taken) == (1, [])


async def test_FR_083_an_error_event_before_any_chunk_is_retried(
    fake: AnthropicFake, model: AnthropicModel, naps: Naps
) -> None:
    fake.script(stream(OVERLOADED), stream(*as_events(message(said("x")))[:2], OVERLOADED), message(said("abcd")))
    watcher = Watcher()
    answer = await model.generate(ask(), watcher)
    assert (answer.content, watcher.text) == (model_text("abcd"), "abcd")
    assert naps.taken == [0.5, 1.0]
    fake.script(*[stream(OVERLOADED)] * 3)
    with pytest.raises(ModelError, match="Overloaded"):
        await model.generate(ask(), watcher)


@pytest.mark.parametrize("cut", [True, False])
async def test_FR_025_a_stream_that_ends_early_is_an_error(
    fake: AnthropicFake, model: AnthropicModel, naps: Naps, cut: bool
) -> None:
    fake.script(stream(*as_events(message(said("abcd")))[:5], cut=cut))
    watcher = Watcher()
    with pytest.raises(ModelError) as caught:
        await model.generate(ask(), watcher)
    assert (caught.value.code, watcher.text, naps.taken) == ("UNAVAILABLE", "abcd", [])


async def test_cancelling_hangs_up(fake: AnthropicFake, model: AnthropicModel) -> None:
    gone = anyio.Event()
    events = as_events(message(said("abcd")))
    reply = stream(*events)

    async def wait(at: int) -> None:
        if at == 5:
            try:
                await anyio.sleep_forever()
            finally:
                gone.set()

    reply.before_chunk = wait
    fake.script(reply)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:

            async def take(partial: ModelResponse) -> None:
                if partial.content and partial.content.text == "cd":
                    group.cancel_scope.cancel()

            await model.generate(ask(), take)
        await gone.wait()
