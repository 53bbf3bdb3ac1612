"""Claude on Bedrock: signed by botocore, read from frames, against a fake that makes every signature again."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anthropic_fake import MIXED, as_events, call_of, message
from anthropic_fake import said as says
from botocore.credentials import Credentials
from cloud_fakes import (
    ACCESS,
    BEDROCK_KEY,
    REGION,
    SECRET,
    Aws,
    fault,
    frame,
    frames,
    piece,
    refusal,
    running,
)
from gemini_ways import ask

from polyport import App, LlmAgent
from polyport.data.content import model_text
from polyport.data.model import GenerateConfig, ModelResponse
from polyport.errors import ConfigError, ModelError
from polyport.models.anthropic import AnthropicModel
from polyport.models.bedrock import Bedrock
from polyport.models.http import Http, Retry
from polyport.models.registry import resolve
from polyport.wire.anthropic import AnthropicDecoder

CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
SHORT = GenerateConfig(max_output_tokens=9)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own sign-in is found."""
    names = "ACCESS_KEY_ID SECRET_ACCESS_KEY SESSION_TOKEN PROFILE DEFAULT_REGION BEARER_TOKEN_BEDROCK"
    for name in (*names.split(), "CONTAINER_CREDENTIALS_FULL_URI", "ENDPOINT_URL_BEDROCK_RUNTIME"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
async def aws() -> AsyncIterator[Aws]:
    async with running(Aws()) as fake:
        yield fake


class Watcher:
    def __init__(self) -> None:
        self.seen: list[ModelResponse] = []

    async def __call__(self, partial: ModelResponse) -> None:
        self.seen.append(partial)


naps: list[float] = []


async def nap(seconds: float) -> None:
    naps.append(seconds)


def model_of(aws: Aws, name: str = CLAUDE, **more: Any) -> AnthropicModel:
    where = Bedrock(base_url=aws.url, **more)
    return AnthropicModel(name, http=Http(where, retry=Retry(attempts=3), sleep=nap))


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    "name",
    [
        CLAUDE,
        "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/a1b2",
        "anthropic.claude ü+~@=;%2F",
    ],
)
async def test_each_name_and_way_of_asking_has_a_right_signature(aws: Aws, name: str):
    aws.replies += [message(says("hi")), MIXED]
    model, watcher = model_of(aws, name), Watcher()
    assert (await model.generate(ask(config=SHORT))).content == model_text("hi")
    answer = await model.generate(ask(), watcher)
    await model.aclose()
    assert not aws.refused
    assert [a.target.rpartition("/")[2] for a in aws.asked] == ["invoke", "invoke-with-response-stream"]
    assert aws.asked[0].body["anthropic_version"] == "bedrock-2023-05-31"
    direct = AnthropicDecoder(lambda: "id")
    for event in as_events(MIXED):
        direct.feed(event["type"], json.dumps(event))
    assert answer == direct.finish() and watcher.seen


@pytest.mark.usefixtures("keys")
async def test_an_agent_with_a_tool_works_through_the_registry(aws: Aws, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", aws.url)
    aws.replies += [message(call_of("toolu_1", "add", a=1, b=2), stop="tool_use"), message(says("It is 3."))]

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async with App(LlmAgent(name="sums", model=f"bedrock/{CLAUDE}", tools=[add])) as app:
        reply = await app.ask("1 + 2?")
    assert reply.text == "It is 3." and not aws.refused


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_frames_may_be_cut_anywhere(aws: Aws, size: int):
    told = b"".join(piece(e, pretty=True) for e in as_events(MIXED))
    aws.replies.append(frames(*(told[i : i + size] for i in range(0, len(told), size))))
    model, watcher = model_of(aws), Watcher()
    answer = await model.generate(ask(), watcher)
    await model.aclose()
    assert answer.content is not None and "Schön 🎉" in answer.content.text
    assert len(answer.content.calls) == 2


@pytest.mark.usefixtures("keys")
async def test_a_fault_before_the_first_piece_is_tried_again(aws: Aws):
    start = piece(as_events(message(says("x")))[0])
    aws.replies += [frames(start, fault("throttlingException", "slow down")), message(says("hi"))]
    model, watcher = model_of(aws), Watcher()
    assert (await model.generate(ask(), watcher)).content == model_text("hi")
    await model.aclose()


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("last", "code", "words"),
    [
        (fault("modelStreamErrorException", "it broke"), "api_error", "it broke"),
        (fault("validationException", "too long"), "invalid_request_error", "too long"),
        (
            frame(b"", message_type="error", error_code="InternalFailure", error_message="oh no"),
            "InternalFailure",
            "oh no",
        ),
        (b"this is no frame at all, by its checksum", "MALFORMED_ANSWER", "event stream"),
        (frame(b"{", event_type="chunk", message_type="event"), "MALFORMED_ANSWER", "event stream"),
        (frame(b'{"bytes": 5}', event_type="chunk", message_type="event"), "MALFORMED_ANSWER", "event stream"),
        (b"\x00" * 64, "MALFORMED_ANSWER", "event stream"),
    ],
)
async def test_a_fault_in_the_middle_ends_the_answer(aws: Aws, last: bytes, code: str, words: str):
    events = as_events(message(says("hello")))
    aws.replies.append(frames(*map(piece, events[:4]), last))
    model, watcher = model_of(aws), Watcher()
    with pytest.raises(ModelError, match=words) as caught:
        await model.generate(ask(), watcher)
    await model.aclose()
    assert caught.value.code == code and watcher.seen


@pytest.mark.usefixtures("keys")
async def test_an_answer_that_ends_too_early_is_an_error(aws: Aws):
    aws.replies.append(frames(*map(piece, as_events(message(says("hello")))[:4]), cut=True))
    model, watcher = model_of(aws), Watcher()
    with pytest.raises(ModelError):
        await model.generate(ask(), watcher)
    await model.aclose()


@pytest.mark.usefixtures("keys")
async def test_frames_that_say_nothing_to_us_are_passed_over(aws: Aws):
    told = [piece(e) for e in as_events(message(says("hi")))]
    aws.replies.append(frames(frame(b"{}", event_type="initial-response", message_type="event"), *told))
    model, watcher = model_of(aws), Watcher()
    assert (await model.generate(ask(), watcher)).content == model_text("hi")
    await model.aclose()


@pytest.mark.usefixtures("keys")
async def test_beta_features_go_into_the_body(aws: Aws):
    aws.replies.append(message(says("hi")))
    model = model_of(aws)
    headers = {"Anthropic-Beta": "context-1m-2025-08-07, other-1"}
    await model.generate(ask(config=GenerateConfig(max_output_tokens=9, headers=headers)))
    await model.aclose()
    assert aws.asked[0].body["anthropic_beta"] == ["context-1m-2025-08-07", "other-1"]
    assert not aws.asked[0].headers.keys() & {"anthropic-beta", "anthropic-version"}


@pytest.mark.usefixtures("keys")
async def test_busy_is_tried_again_with_a_new_signature(aws: Aws):
    naps.clear()
    aws.replies += [refusal(429, {"message": "Too many requests"}, retry_after="2"), message(says("hi"))]
    model = model_of(aws)
    await model.generate(ask(config=SHORT))
    await model.aclose()
    assert naps == [2.0] and len(aws.asked) == 2 and not aws.refused


async def test_a_wrong_key_is_an_error_that_shows_no_secret(aws: Aws):
    model = model_of(aws, credentials=Credentials(ACCESS, "wrong/secret+key0123456789", "session-token-0123456789"))
    with pytest.raises(ModelError) as caught:
        await model.generate(ask(config=SHORT))
    aws.sessions = {"session-token-0123456789"}
    with pytest.raises(ModelError, match="signature we calculated") as mismatch:
        await model.generate(ask(config=SHORT))
    assert "(***)" in str(mismatch.value) and "AWS4-HMAC-SHA256" not in repr(mismatch.value)
    await model.aclose()
    assert caught.value.http_status == 403 and "(***)" in str(caught.value)
    assert "session-token-0123456789" not in repr(caught.value)


async def test_credentials_of_a_machine_are_refreshed_before_they_end(aws: Aws, monkeypatch: pytest.MonkeyPatch):
    """The fake runs on this very loop: it could not give credentials if the loop were held up."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{aws.url}/container")
    aws.lifetime = 300  # botocore refreshes what has less than ten minutes
    aws.replies += [message(says("hi"))] * 2
    model = model_of(aws)
    await model.generate(ask(config=SHORT))
    first = len(aws.issued)
    aws.lifetime = 36_000
    await model.generate(ask(config=SHORT))
    assert len(aws.issued) > first and not aws.refused
    await model.aclose()


async def test_credentials_that_ended_are_read_anew(aws: Aws, tmp_path: Path):
    def write(token: str) -> None:
        lines = f"aws_access_key_id={ACCESS}\naws_secret_access_key={SECRET}\naws_session_token={token}\n"
        (tmp_path / "credentials").write_text(f"[default]\n{lines}[other]\n{lines}")

    aws.sessions = {"first-0123456789"}
    write("first-0123456789")
    aws.replies += [message(says("hi"))] * 2
    model = model_of(aws, profile="other")
    await model.generate(ask(config=SHORT))
    aws.sessions = {"second-0123456789"}
    with pytest.raises(ModelError, match="expired"):
        await model.generate(ask(config=SHORT))
    write("second-0123456789")
    await model.generate(ask(config=SHORT))
    await model.aclose()


async def test_a_key_of_bedrock_needs_no_signature(aws: Aws, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", BEDROCK_KEY)
    aws.replies += [message(says("hi")), message(says("hi"))]
    for model in (model_of(aws), resolve(f"bedrock/{CLAUDE}", api_key=BEDROCK_KEY, base_url=aws.url)):
        await model.generate(ask(config=SHORT))
        await model.aclose()
    assert {a.headers["authorization"] for a in aws.asked} == {f"Bearer {BEDROCK_KEY}"}


async def test_no_credentials_say_what_to_do(aws: Aws):
    model = model_of(aws)
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        await model.generate(ask())
    await model.aclose()


def test_no_region_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(ConfigError, match="AWS_REGION"):
        Bedrock()
    (tmp_path / "config").write_text("[default]\nregion=eu-west-3\n")
    assert Bedrock().address == "https://bedrock-runtime.eu-west-3.amazonaws.com"


@pytest.mark.parametrize(
    "made",
    [
        lambda: Bedrock("evil.example/x"),
        lambda: Bedrock(profile="nobody"),
        lambda: Bedrock(base_url="http://example.com"),
        lambda: Bedrock(api_key="k", profile="p"),
        lambda: resolve("bedrock/amazon.nova-pro-v1:0"),
        lambda: AnthropicModel(CLAUDE, base_url=Bedrock(), api_key="k"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(made: Any):
    with pytest.raises(ConfigError):
        made()


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ConfigError, match=r"pip install 'polyport\[bedrock\]'"):
        resolve(f"bedrock/{CLAUDE}")


def test_it_shows_no_secret():
    where = Bedrock(credentials=Credentials(ACCESS, SECRET, "token-0123456789"))
    assert repr(where) == f"Bedrock({REGION!r})"
