"""The vendor's own client (google-genai) as a peer: same bytes in, same bodies out, and its types accept what we send."""

import base64
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gemini_fake import KEY, Server, events, said, serve, whole
from gemini_ways import NAME, ask, full_request, model_of, streamed
from google import genai
from google.genai import types

from polyport.data.model import ModelResponse

pytestmark = pytest.mark.filterwarnings(  # the vendor's client does what aiohttp discourages
    "ignore:Inheritance class AiohttpClientSession from ClientSession is discouraged:DeprecationWarning"
)


async def test_what_is_sent_is_of_the_vendors_own_types():
    async with serve(whole(said({"text": "ok"}))) as server, model_of(server) as model:
        await model.generate(full_request())
    body = server.seen[0].body
    for content in [*body["contents"], body["systemInstruction"]]:
        types.Content.model_validate(content)
    for tool in body["tools"]:
        types.Tool.model_validate(tool)
    types.ToolConfig.model_validate(body["toolConfig"])
    types.GenerationConfig.model_validate(body["generationConfig"])


async def test_the_vendors_client_sends_the_same_body():
    async with serve(whole(said({"text": "ok"})), whole(said({"text": "ok"}))) as server, model_of(server) as model:
        await model.generate(full_request())
        ours = server.seen[0].body
        config = types.GenerateContentConfig(
            system_instruction="Be brief.",
            tools=[types.Tool.model_validate(t) for t in ours["tools"]],
            tool_config=types.ToolConfig.model_validate(ours["toolConfig"]),
            **types.GenerationConfig.model_validate(ours["generationConfig"]).model_dump(exclude_none=True),
        )
        contents = [types.Content.model_validate(c) for c in ours["contents"]]
        async with vendor(server) as client:
            await client.aio.models.generate_content(model=NAME, contents=contents, config=config)
    theirs = server.seen[1].body
    theirs["systemInstruction"].pop("role", None)
    assert server.seen[1].path == server.seen[0].path
    assert _standard(theirs) == _standard(ours)


def _standard(value: Any) -> Any:
    """The vendor's client writes bytes in the other base64 alphabet."""
    if isinstance(value, dict):
        return {k: v.replace("-", "+").replace("_", "/") if k in ("data", "thoughtSignature") else _standard(v)
                for k, v in value.items()}  # fmt: skip
    return [_standard(v) for v in value] if isinstance(value, list) else value


# --- the same bytes through the vendor's client and through ours ------------------------------------------------------

USAGE = {
    "promptTokenCount": 5,
    "candidatesTokenCount": 7,
    "totalTokenCount": 15,
    "thoughtsTokenCount": 3,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 5}],
}
SIGNED = {"thoughtSignature": base64.b64encode(bytes(range(200, 256))).decode()}
RECORDED: dict[str, list[dict[str, Any]]] = {
    "text": [said({"text": "Hi "}), said({"text": "Ada é😀"}), said({"text": ""}, finish="STOP", usageMetadata=USAGE)],
    "thoughts": [
        said({"text": "I th", "thought": True}),
        said({"text": "ink", "thought": True}),
        said({"text": "so", **SIGNED}, finish="STOP", usageMetadata=USAGE),
    ],
    "calls": [
        said({"functionCall": {"id": "c1", "name": "f", "args": {"n": 1, "x": 1.5, "l": [None, True]}}, **SIGNED}),
        said({"functionCall": {"id": "c2", "name": "g"}}, finish="STOP", usageMetadata=USAGE),
    ],
    "truncated": [said({"text": "so far"}), said({"text": " and"}, finish="MAX_TOKENS", usageMetadata=USAGE)],
    "refused": [said({"text": "I "}), {"candidates": [{"finishReason": "SAFETY"}], "usageMetadata": USAGE}],
    "blocked": [{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE}],
    "metadata first": [{"usageMetadata": {"promptTokenCount": 5}}, said({"text": "x"}, finish="STOP", usageMetadata=USAGE)],
    "code": [
        said({"executableCode": {"language": "PYTHON", "code": "1+1"}}),
        said({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}, {"text": "2"}, finish="STOP",
             usageMetadata=USAGE),
    ],
}  # fmt: skip


@asynccontextmanager
async def vendor(server: Server) -> AsyncIterator[genai.Client]:
    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=server.url, api_version="v1beta"))
    try:
        yield client
    finally:
        await client.aio.aclose()
        client.close()


@dataclasses.dataclass
class Outcome:
    """What matters of an answer, whoever read it."""

    text: str = ""
    thoughts: str = ""
    calls: list[Any] = dataclasses.field(default_factory=list)
    code: list[str] = dataclasses.field(default_factory=list)
    signatures: list[bytes] = dataclasses.field(default_factory=list)
    usage: tuple[int | None, ...] = ()
    finish: str = ""
    block: str = ""
    version: str = ""


def theirs(chunks: list[types.GenerateContentResponse]) -> Outcome:
    out = Outcome()
    for chunk in chunks:
        for candidate in (chunk.candidates or [])[:1]:
            out.finish = candidate.finish_reason.value if candidate.finish_reason else out.finish
            for part in (candidate.content.parts or []) if candidate.content else []:
                if part.thought:
                    out.thoughts += part.text or ""
                else:
                    out.text += part.text or ""
                if part.function_call:
                    out.calls.append((part.function_call.id, part.function_call.name, part.function_call.args or {}))
                if part.executable_code:
                    out.code.append(part.executable_code.code or "")
                if part.thought_signature:
                    out.signatures.append(part.thought_signature)
        if chunk.usage_metadata:
            u = chunk.usage_metadata
            out.usage = (u.prompt_token_count, u.candidates_token_count, u.total_token_count, u.thoughts_token_count)
        if chunk.prompt_feedback and chunk.prompt_feedback.block_reason:
            out.block = chunk.prompt_feedback.block_reason.value
        out.version = chunk.model_version or out.version
    return out


def ours(answer: ModelResponse) -> Outcome:
    parts = answer.content.parts if answer.content is not None else []
    u = answer.usage_metadata
    assert u is not None
    return Outcome(
        text=answer.content.text if answer.content is not None else "",
        thoughts="".join(p.text or "" for p in parts if p.thought),
        calls=[(c.id, c.name, c.args) for p in parts if (c := p.function_call)],
        code=[p.executable_code.code for p in parts if p.executable_code],
        signatures=[p.thought_signature for p in parts if p.thought_signature],
        usage=(u.prompt_token_count, u.candidates_token_count, u.total_token_count, u.thoughts_token_count),
        finish=answer.finish_reason,
        block=answer.error_code if not answer.finish_reason else "",
        version=answer.model_version,
    )


@pytest.mark.parametrize("recording", RECORDED)
async def test_the_vendors_client_reads_the_same_out_of_a_stream(recording: str):
    reply = events(*RECORDED[recording])
    async with serve(reply, reply) as server, model_of(server) as model, vendor(server) as client:
        chunks = [c async for c in await client.aio.models.generate_content_stream(model=NAME, contents="hi")]
        pieces, answer = await streamed(model, ask())
    assert ours(answer) == theirs(chunks)
    assert len(pieces) == len(chunks)
    assert server.seen[0].path == server.seen[1].path


@pytest.mark.parametrize("recording", RECORDED)
async def test_the_vendors_client_reads_the_same_out_of_a_whole_answer(recording: str):
    reply = whole(RECORDED[recording][-1])
    async with serve(reply, reply) as server, model_of(server) as model, vendor(server) as client:
        chunk = await client.aio.models.generate_content(model=NAME, contents="hi")
        answer = await model.generate(ask())
    assert ours(answer) == theirs([chunk])
