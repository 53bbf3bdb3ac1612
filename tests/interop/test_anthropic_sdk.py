"""The vendor's own SDK beside AnthropicModel: the same bytes give the same answer, and our requests fit its types."""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import anthropic
import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from anthropic_fake import (
    KEY,
    MIXED,
    USAGE,
    AnthropicFake,
    Refused,
    Reply,
    as_events,
    call_of,
    check,
    message,
    said,
    sse,
    whole,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse, Part, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration
from polyport.models.anthropic import AnthropicModel
from polyport.wire.anthropic import encode_request
from polyport.wire.anthropic_request import NO_RESULT
from polyport.wire.anthropic_request import REDACTED as PART_REDACTED

MODEL = "claude-test-1"


@pytest.fixture
async def fake() -> AsyncIterator[AnthropicFake]:
    async with AnthropicFake() as server:
        yield server


@pytest.fixture
async def model(fake: AnthropicFake) -> AsyncIterator[AnthropicModel]:
    model = AnthropicModel(MODEL, api_key=KEY, base_url=fake.url)
    yield model
    await model.aclose()


def ask() -> ModelRequest:
    return ModelRequest(contents=[user_text("hi")], config=GenerateConfig(max_output_tokens=9))


@pytest.fixture
async def sdk(fake: AnthropicFake) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=fake.url, api_key=KEY, max_retries=0) as client:
        yield client


def as_theirs(answer: ModelResponse) -> dict[str, Any]:
    """Our answer in the words of the SDK's Message."""
    assert answer.content is not None
    request = ModelRequest(contents=[user_text("q"), answer.content])
    usage = answer.usage_metadata
    assert usage is not None
    return {
        "content": json.loads(encode_request(request, model=MODEL, stream=False))["messages"][1]["content"],
        "finish": answer.finish_reason,
        "model": answer.model_version,
        "usage": (usage.prompt_token_count, usage.cached_content_token_count, usage.candidates_token_count),
    }


def as_ours(theirs: anthropic.types.Message) -> dict[str, Any]:
    usage = theirs.usage
    read = usage.cache_read_input_tokens
    prompt = usage.input_tokens + (read or 0) + (usage.cache_creation_input_tokens or 0)
    reasons = {"end_turn": "STOP", "tool_use": "STOP", "max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}
    return {
        "content": [block.model_dump(exclude_none=True) for block in theirs.content],
        "finish": reasons[str(theirs.stop_reason)],
        "model": theirs.model,
        "usage": (prompt, read, usage.output_tokens),
    }


ANSWERS = [
    MIXED,
    message(said("plain ä"), usage={"input_tokens": 3, "output_tokens": 4}),
    message(call_of("toolu_9", "f", deep={"a": [1.5, "ß", None]}), stop="tool_use", usage=USAGE),
    message(said("cut"), stop="max_tokens", usage=USAGE),
    message(said("no"), stop="refusal", usage=USAGE),
]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_the_sdk_reads_the_same_out_of_a_stream(
    fake: AnthropicFake, model: AnthropicModel, sdk: anthropic.AsyncAnthropic, answer: dict[str, Any]
) -> None:
    raw = sse(*as_events(answer))
    replies = [
        Reply([raw[i : i + 7] for i in range(0, len(raw), 7)], headers={"content-type": "text/event-stream"})
    ] * 2
    fake.script(*replies)
    ours_pieces: list[str] = []

    async def take(partial: ModelResponse) -> None:
        ours_pieces.append(partial.content.text if partial.content else "")

    ours = await model.generate(ask(), take)
    pieces: list[str] = []
    async with sdk.messages.stream(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as theirs:
        pieces.extend([piece async for piece in theirs.text_stream])
        final = await theirs.get_final_message()
    assert as_theirs(ours) == as_ours(final)
    assert [p for p in ours_pieces if p] == pieces


@pytest.mark.parametrize("answer", ANSWERS)
async def test_the_sdk_reads_the_same_out_of_a_whole_answer(
    fake: AnthropicFake, model: AnthropicModel, sdk: anthropic.AsyncAnthropic, answer: dict[str, Any]
) -> None:
    fake.script(whole(answer), whole(answer))
    ours = await model.generate(ask())
    theirs = await sdk.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert as_theirs(ours) == as_ours(theirs)


def used_up(value: Any) -> Any:
    """pydantic checks iterables only when somebody iterates."""
    if isinstance(value, dict):
        return {k: used_up(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [used_up(v) for v in value]
    return value


def full_request(stream: bool) -> dict[str, Any]:
    thought = Part(text="hm", thought=True, thought_signature=b"sig==")
    call = Part(function_call=FunctionCall(id="c1", name="f", args={"a": 1}))
    request = ModelRequest(
        contents=[
            Content(role="user", parts=[Part(text="q"), Part(inline_data=Blob(mime_type="image/png", data=b"x"))]),
            Content(role="user", parts=[Part(inline_data=Blob(mime_type="application/pdf", data=b"x"))]),
            Content(role="user", parts=[Part(inline_data=Blob(mime_type="text/plain", data=b"x", display_name="t"))]),
            Content(role="model", parts=[thought, call]),
            Content(role="user", parts=[Part(function_response=FunctionResponse(id="c1", name="f", response={}))]),
        ],
        system="s",
        tools=[ToolDeclaration(name="f", description="d")],
        response_schema={"type": "object", "properties": {"x": {"type": "string"}}},
        config=GenerateConfig(thinking_budget=1024, max_output_tokens=2000, stop_sequences=["E"], tool_choice="none"),
    )
    return json.loads(encode_request(request, model=MODEL, stream=stream))


@pytest.mark.parametrize("stream", [True, False])
def test_what_we_send_is_what_the_sdks_types_allow(stream: bool) -> None:
    sent = full_request(stream)
    check(sent)
    kind = MessageCreateParamsStreaming if stream else MessageCreateParamsNonStreaming
    assert used_up(TypeAdapter(kind).validate_python(sent)) == sent, "nothing was unknown to the types"


def parts() -> st.SearchStrategy[Part]:
    """What sessions hold, with few ids and names, so that they clash."""
    ids, names = st.sampled_from(["", "a", "a.b", "a b"]), st.sampled_from(["f", "g"])
    values = st.sampled_from([None, {}, {"error": "no"}, {"r": [1, "ü"]}])
    return st.one_of(
        st.builds(Part, text=st.sampled_from(["", " \n", "hello"]), thought=st.booleans()),
        st.builds(
            Part, text=st.just("hm"), thought=st.just(True), thought_signature=st.sampled_from([b"sig", b"\xff"])
        ),
        st.just(Part(text="", thought=True, thought_signature=b"d", part_metadata=PART_REDACTED)),
        st.builds(Part, function_call=st.builds(FunctionCall, id=ids, name=names)),
        st.builds(Part, function_response=st.builds(FunctionResponse, id=ids, name=names, response=values)),
        st.builds(Part, inline_data=st.builds(Blob, mime_type=st.sampled_from(["image/png", ""]), data=st.just(b"x"))),
        st.just(Part()),
    )


contents = st.builds(Content, role=st.sampled_from(["user", "model", ""]), parts=st.lists(parts(), max_size=4))


@settings(max_examples=150, deadline=None, database=None)
@given(history=st.lists(contents, max_size=8))
def test_FR_033_any_history_makes_a_request_that_is_accepted(history: list[Content]) -> None:
    sent = json.loads(encode_request(ModelRequest(contents=history), model=MODEL, stream=False))
    check(sent)
    blocks = [b for m in sent["messages"] for b in m["content"]]
    calls = sum(len(c.calls) for c in history)
    assert sum(b["type"] == "tool_use" for b in blocks) == calls
    told = sum(b["type"] == "tool_result" and b["content"] != NO_RESULT for b in blocks)
    told += sum(b["type"] == "text" and b["text"].startswith("Result of the tool") for b in blocks)
    assert told == sum(len(c.responses) for c in history), "no result is lost"


def test_the_strict_server_is_strict() -> None:
    good = full_request(False)
    check(good)

    def broken(path: list[Any], value: Any) -> dict[str, Any]:
        copy = json.loads(json.dumps(good))
        at = copy
        for step in path[:-1]:
            at = at[step]
        if value is None:
            del at[path[-1]]
        else:
            at[path[-1]] = value
        return copy

    bad = {
        "Extra inputs": broken(["bogus"], 1),
        "max_tokens": broken(["max_tokens"], None),
        "first message": broken(["messages", 0], None),
        "prefill": broken(["messages", 2], None),
        "alternate": broken(["messages", 1], {"role": "user", "content": "x"}),
        "non-empty": broken(["messages", 1, "content"], []),
        "non-whitespace": broken(["messages", 0, "content", 0, "text"], " "),
        "should match pattern": broken(["messages", 1, "content", 1, "id"], "a.b"),
        "need one `tool_result`": broken(["messages", 2, "content", 0, "tool_use_id"], "c2"),
        "must come first": broken(["messages", 2, "content"], [said("x"), *good["messages"][2]["content"]]),
        "signature": broken(["messages", 1, "content", 0, "signature"], ""),
        "additionalProperties": broken(["output_config", "format", "schema", "additionalProperties"], True),
        "budget_tokens": broken(["thinking", "budget_tokens"], 5000),
        "tool not found": broken(["tool_choice"], {"type": "tool", "name": "g"}),
    }
    for reason, body in bad.items():
        with pytest.raises(Refused, match=reason):
            check(body)
    with pytest.raises(Refused, match="cannot be modified"):
        check(good, {"c1": [{"type": "thinking", "thinking": "hm", "signature": "other"}]})
