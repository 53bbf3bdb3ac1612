"""The vendors' own SDKs as peers on the three clouds: they ask the same fakes, and what both send is compared."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic_fake import MIXED, as_events, message
from anthropic_fake import said as says
from cloud_fakes import ACCESS, AZURE_KEY, LOCATION, PROJECT, REGION, SECRET, Asked, Aws, AzureCloud, Google, running
from gemini_fake import events, said, whole
from gemini_ways import full_request
from google import genai
from google.genai import types
from google.oauth2 import service_account
from openai_fake import USAGE, completion
from openai_fake import whole as chat

from polyport.data.content import Content, FunctionCall, FunctionResponse, Part, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration
from polyport.models.anthropic import AnthropicModel
from polyport.models.azure import Azure
from polyport.models.bedrock import Bedrock
from polyport.models.gemini import GeminiModel
from polyport.models.openai import OpenAIModel
from polyport.models.vertex import Vertex

pytestmark = pytest.mark.filterwarnings(  # the vendor's client does what aiohttp discourages
    "ignore:Inheritance class AiohttpClientSession from ClientSession is discouraged:DeprecationWarning",
)
GEMINI = "gemini-2.5-flash"
VERTEX_CLAUDE = "claude-sonnet-4-5@20250929"
BEDROCK_CLAUDES = [
    "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/a1b2",
]
OURS = frozenset({"vertex-2023-10-16", "bedrock-2023-05-31"})


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own sign-in is found."""
    for name in ("PROFILE", "SESSION_TOKEN", "BEARER_TOKEN_BEDROCK", "ENDPOINT_URL_BEDROCK_RUNTIME"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_API_KEY", "OPENAI_API_VERSION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def google() -> AsyncIterator[Google]:
    async with running(Google()) as fake:
        yield fake


@pytest.fixture
async def aws() -> AsyncIterator[Aws]:
    async with running(Aws()) as fake:
        yield fake


@pytest.fixture
async def azure() -> AsyncIterator[AzureCloud]:
    async with running(AzureCloud()) as fake:
        yield fake


def account(google: Google) -> Any:
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    return service_account.Credentials.from_service_account_info(google.service_account(), scopes=scopes)


def talk() -> ModelRequest:
    """A request with a bit of everything. No temperature: the newest API of Anthropic has none, and neither has its SDK."""
    call = FunctionCall(id="call_1", name="add", args={"a": 1})
    result = FunctionResponse(id="call_1", name="add", response={"result": 3})
    return ModelRequest(
        contents=[
            user_text("1 + 2?"),
            Content(role="model", parts=[Part(text="Let me see."), Part(function_call=call)]),
            Content(role="user", parts=[Part(function_response=result)]),
        ],
        system="Be brief.",
        tools=[ToolDeclaration(name="add", description="Adds.")],
        config=GenerateConfig(max_output_tokens=99),
    )


async def keep(piece: ModelResponse) -> None: ...


def bodies(asked: list[Asked]) -> list[dict[str, Any]]:
    """What was sent, but for the version that either SDK writes for itself, and for what says its default."""
    out: list[dict[str, Any]] = []
    for one in asked:
        body = {k: v for k, v in one.body.items() if (k, v) != ("stream", False)}
        if "anthropic_version" in body:
            body["anthropic_version"] = "any"
        out.append(body)
    return out


# ---------------------------------------------------------------- Gemini on Vertex


@pytest.mark.parametrize("stream", [False, True])
async def test_google_genai_asks_the_same_of_vertex(google: Google, stream: bool):
    reply = events(said({"text": "ok"}, finish="STOP")) if stream else whole(said({"text": "ok"}, finish="STOP"))
    google.replies += [reply, reply]
    model = GeminiModel(GEMINI, base_url=Vertex(PROJECT, LOCATION, credentials=account(google), base_url=google.url))
    await model.generate(full_request(), keep if stream else None)
    await model.aclose()
    ours = google.asked[0]
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[types.Tool.model_validate(t) for t in ours.body["tools"]],
        tool_config=types.ToolConfig.model_validate(ours.body["toolConfig"]),
        **types.GenerationConfig.model_validate(ours.body["generationConfig"]).model_dump(exclude_none=True),
    )
    contents: Any = [types.Content.model_validate(c) for c in ours.body["contents"]]
    client = genai.Client(
        vertexai=True,
        project=PROJECT,
        location=LOCATION,
        credentials=account(google),
        http_options=types.HttpOptions(base_url=google.url),
    ).aio
    async with client:
        if stream:
            told = await client.models.generate_content_stream(model=GEMINI, contents=contents, config=config)
            assert [c.text async for c in told] == ["ok"]
        else:
            assert (await client.models.generate_content(model=GEMINI, contents=contents, config=config)).text == "ok"
    theirs = google.asked[1]
    theirs.body["systemInstruction"].pop("role", None)
    assert theirs.target == ours.target
    assert _standard(theirs.body) == _standard(ours.body)
    assert {ours.headers["authorization"], theirs.headers["authorization"]} == {f"Bearer {t}" for t in google.issued}


def _standard(value: Any) -> Any:
    """The vendor's client writes bytes in the other base64 alphabet."""
    if isinstance(value, dict):
        return {k: v.replace("-", "+").replace("_", "/") if k in ("data", "thoughtSignature") else _standard(v)
                for k, v in value.items()}  # fmt: skip
    return [_standard(v) for v in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- Claude on Vertex and on Bedrock


async def ask_sdk(client: Any, model: str, ours: Asked, *, stream: bool) -> str:
    """The text that the SDK gets when it is asked for what we sent."""
    wish = {k: v for k, v in ours.body.items() if k not in ("anthropic_version", "stream")}
    if not stream:
        return (await client.messages.create(model=model, **wish)).content[0].text
    async with client.messages.stream(model=model, **wish) as told:
        return (await told.get_final_message()).content[0].text


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_of_anthropic_asks_the_same_of_vertex(google: Google, stream: bool):
    google.replies += [message(says("ok")), message(says("ok"))]
    model = AnthropicModel(
        VERTEX_CLAUDE, base_url=Vertex(PROJECT, LOCATION, credentials=account(google), base_url=google.url)
    )
    assert (await model.generate(talk(), keep if stream else None)).content is not None
    await model.aclose()
    async with anthropic.AsyncAnthropicVertex(
        region=LOCATION, project_id=PROJECT, credentials=account(google), base_url=f"{google.url}/v1", max_retries=0
    ) as client:
        assert await ask_sdk(client, VERTEX_CLAUDE, google.asked[0], stream=stream) == "ok"
    ours, theirs = google.asked
    assert theirs.target == ours.target
    first, second = bodies(google.asked)
    assert first == second
    assert ours.body["anthropic_version"] in OURS
    assert not google.refused


@pytest.mark.parametrize("name", BEDROCK_CLAUDES)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_of_anthropic_asks_the_same_of_bedrock(aws: Aws, name: str, stream: bool):
    aws.replies += [message(says("ok")), message(says("ok"))]
    model = AnthropicModel(name, base_url=Bedrock(REGION, base_url=aws.url))
    assert (await model.generate(talk(), keep if stream else None)).content is not None
    await model.aclose()
    async with anthropic.AsyncAnthropicBedrock(aws_region=REGION, base_url=aws.url, max_retries=0) as client:
        assert await ask_sdk(client, name, aws.asked[0], stream=stream) == "ok"
    ours, theirs = aws.asked
    assert theirs.target == ours.target
    first, second = bodies(aws.asked)
    assert first == second
    assert ours.body["anthropic_version"] in OURS
    assert not aws.refused, "both signatures are right"


async def test_the_sdk_of_anthropic_reads_the_same_out_of_frames(aws: Aws):
    aws.replies += [MIXED, MIXED]
    name = BEDROCK_CLAUDES[0]
    model = AnthropicModel(name, base_url=Bedrock(REGION, base_url=aws.url))
    answer = await model.generate(talk(), keep)
    await model.aclose()
    async with anthropic.AsyncAnthropicBedrock(aws_region=REGION, base_url=aws.url, max_retries=0) as client:
        wish = {k: v for k, v in aws.asked[0].body.items() if k not in ("anthropic_version", "stream")}
        kinds: list[str] = []
        async for event in await client.messages.create(model=name, stream=True, **wish):
            kinds.append(event.type)
    assert answer.content is not None
    assert kinds == [kind for e in as_events(MIXED) if (kind := e["type"]) != "ping"]
    assert json.dumps([c.args for c in answer.content.calls]) == json.dumps(
        [b["input"] for b in MIXED["content"] if b["type"] == "tool_use"]
    )


# ---------------------------------------------------------------- Azure


async def test_the_sdk_of_openai_asks_the_same_of_azure(azure: AzureCloud):
    reply = chat(completion({"content": "ok"}, usage=USAGE))
    azure.replies += [reply, reply]
    model = OpenAIModel("prod", base_url=Azure(azure.url, api_key=AZURE_KEY, api_version="2024-10-21"))
    await model.generate(talk())
    await model.aclose()
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=azure.url, api_key=AZURE_KEY, api_version="2024-10-21", max_retries=0
    ) as client:
        told: Any = await client.chat.completions.create(**azure.asked[0].body)
    assert told.choices[0].message.content == "ok"
    ours, theirs = azure.asked
    assert (theirs.target, theirs.body) == (ours.target, ours.body)
    assert theirs.headers["api-key"] == ours.headers["api-key"] == AZURE_KEY


async def test_the_sdk_of_openai_asks_the_same_of_the_v1_api(azure: AzureCloud):
    """There the vendor's plain client is what Azure tells to use; it says the key as a token."""
    azure.valid.add("entra-token-0123456789")
    reply = chat(completion({"content": "ok"}, usage=USAGE))
    azure.replies += [reply, reply]
    model = OpenAIModel("prod", base_url=Azure(azure.url, api_key=AZURE_KEY))
    await model.generate(talk())
    await model.aclose()
    base = f"{azure.url}/openai/v1/"
    async with openai.AsyncOpenAI(base_url=base, api_key="entra-token-0123456789", max_retries=0) as client:
        await client.chat.completions.create(**azure.asked[0].body)
    ours, theirs = azure.asked
    assert (theirs.target, theirs.body) == (ours.target, ours.body)
