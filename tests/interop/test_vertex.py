"""Gemini and Claude on Vertex, signed in to by google-auth, against a fake that checks assertions and tokens."""

import json
import logging
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anthropic_fake import call_of, message, stream
from anthropic_fake import said as says
from cloud_fakes import EXPRESS, LOCATION, PROJECT, Google, running
from gemini_fake import events, said, whole
from gemini_ways import ask, full_request, streamed
from google.oauth2 import credentials as own
from google.oauth2 import service_account

from polyport import App, LlmAgent
from polyport.data.content import model_text
from polyport.data.model import GenerateConfig
from polyport.errors import ConfigError, ModelError, describe
from polyport.models.anthropic import AnthropicModel
from polyport.models.gemini import GeminiModel
from polyport.models.http import Http, Retry
from polyport.models.registry import resolve
from polyport.models.vertex import Vertex
from polyport.seams import Seams

GEMINI, CLAUDE = "gemini-2.5-flash", "claude-sonnet-4-5@20250929"
HI = whole(said({"text": "hi there"}, finish="STOP"))


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own sign-in is found."""
    names = "GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_PROJECT GOOGLE_CLOUD_LOCATION GOOGLE_API_KEY GEMINI_API_KEY"
    for name in (*names.split(), "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
async def google() -> AsyncIterator[Google]:
    async with running(Google()) as fake:
        yield fake


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def no_sleep(seconds: float) -> None: ...


def vertex(google: Google, **more: Any) -> Vertex:
    account = service_account.Credentials.from_service_account_info(google.service_account())
    more.setdefault("credentials", account)
    return Vertex(PROJECT, LOCATION, base_url=google.url, **more)


def gemini(google: Google, **more: Any) -> GeminiModel:
    return GeminiModel(GEMINI, http=Http(vertex(google, **more), retry=Retry(attempts=2), sleep=no_sleep))


async def test_gemini_is_asked_in_its_project_with_a_token(google: Google):
    google.replies += [HI, events(said({"text": "hi "}), said({"text": "there"}, finish="STOP"))]
    model = gemini(google)
    assert (await model.generate(full_request())).content == model_text("hi there")
    pieces, answer = await streamed(model, ask())
    await model.aclose()
    assert answer.content == model_text("hi there") and len(pieces) == 2
    where = f"/v1beta1/projects/{PROJECT}/locations/{LOCATION}/publishers/google/models/{GEMINI}"
    assert [a.target for a in google.asked] == [f"{where}:generateContent", f"{where}:streamGenerateContent?alt=sse"]
    assert len(google.issued) == 1, "the token is kept"
    assert "x-goog-api-key" not in google.asked[0].headers and not google.refused


async def test_claude_is_asked_by_raw_predict_and_tools_work(google: Google):
    google.replies += [
        message(call_of("toolu_1", "add", a=1, b=2), stop="tool_use"),
        message(says("It is 3.")),
    ]

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    model = AnthropicModel(CLAUDE, base_url=vertex(google))
    async with App(LlmAgent(name="sums", model=model, tools=[add])) as app:
        reply = await app.ask("1 + 2?")
    assert reply.text == "It is 3."
    where = f"/v1/projects/{PROJECT}/locations/{LOCATION}/publishers/anthropic/models/{CLAUDE}:streamRawPredict"
    assert [a.target for a in google.asked] == [where, where]
    assert google.asked[0].body["anthropic_version"] == "vertex-2023-10-16"
    assert google.asked[1].body["messages"][-1]["content"][0]["tool_use_id"] == "toolu_1"
    assert not google.refused


async def test_a_short_answer_of_claude_comes_whole(google: Google):
    google.replies.append(message(says("hi")))
    model = AnthropicModel(CLAUDE, base_url=vertex(google))
    answer = await model.generate(ask(config=GenerateConfig(max_output_tokens=9)))
    await model.aclose()
    assert answer.content == model_text("hi") and google.asked[0].target.endswith(":rawPredict")


async def test_a_revoked_token_is_fetched_anew_once(google: Google):
    google.replies += [HI, HI]
    clock = Clock()
    model = gemini(google, seams=Seams(clock=clock))
    await model.generate(ask())
    google.revoke()
    clock.now += 600
    assert (await model.generate(ask())).content == model_text("hi there")
    await model.aclose()
    assert len(google.issued) == 2 and google.refused == ["stale token"]


async def test_a_fresh_token_that_is_refused_is_an_error_at_once(google: Google):
    model = gemini(google)
    google.lifetime = 100_000
    google.replies.append(HI)
    await model.generate(ask())
    google.revoke()
    with pytest.raises(ModelError) as caught:
        await model.generate(ask())
    await model.aclose()
    assert (caught.value.http_status, caught.value.code) == (401, "UNAUTHENTICATED")
    assert len(google.issued) == 1
    assert google.issued[0] not in f"{caught.value!r} {describe(caught.value)}" and "***" in str(caught.value)


async def test_many_at_once_fetch_one_token_and_do_not_hold_up_the_loop(google: Google):
    google.replies += [HI] * 6
    google.gate = anyio.Event()
    model = gemini(google)
    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(model.generate, ask())
        await google.arrived.wait()  # the fake runs on this very loop: it would not hear of it if the loop were held up
        assert not google.asked
        google.gate.set()
    await model.aclose()
    assert len(google.asked) == 6 and len(google.issued) == 1


async def test_a_token_is_renewed_before_it_ends_and_kept_when_that_fails(google: Google, caplog: Any):
    google.replies += [HI] * 5
    clock = Clock()
    model = gemini(google, seams=Seams(clock=clock))
    ends = time.time() + google.lifetime  # or a little later: that of the token is made when it is issued
    clock.now = ends - google.lifetime
    await model.generate(ask())
    clock.now = ends - 300
    await model.generate(ask())
    assert len(google.issued) == 1
    clock.now, google.broken = ends - 120, 9
    with caplog.at_level(logging.WARNING, logger="polyport"):
        await model.generate(ask())
    assert len(google.issued) == 1 and "cannot be renewed yet" in caplog.text
    google.broken = 9
    await model.generate(ask())
    assert google.broken == 9, "a while passes before the next try"
    google.broken = 0
    clock.now += 31
    await model.generate(ask())
    await model.aclose()
    assert len(google.issued) == 2
    assert not any(token in caplog.text for token in google.issued)


async def test_a_token_server_that_refuses_is_an_error_without_the_assertion(google: Google):
    google.broken = 9
    model = gemini(google)
    with pytest.raises(ModelError, match=r"signing in to Google Cloud failed \(RefreshError\)") as caught:
        await model.generate(ask())
    await model.aclose()
    assert "eyJ" not in f"{caught.value!r}" and "gcloud auth" in str(caught.value)
    assert google.broken == 8, "another try would be refused as well"


async def test_a_token_that_comes_back_in_a_stream_is_not_shown(google: Google):
    google.valid.add("mine-0123456789")
    fault = {"type": "error", "error": {"type": "permission_error", "message": "not mine-0123456789"}}
    google.replies += [stream(fault), events({"error": {"code": 403, "message": "not mine-0123456789"}})]
    where = vertex(google, credentials=own.Credentials("mine-0123456789"))
    for model in (AnthropicModel(CLAUDE, base_url=where), GeminiModel(GEMINI, base_url=where)):
        with pytest.raises(ModelError, match=r"not \*\*\*") as caught:
            await streamed(model, ask())
        assert "mine-0123456789" not in repr(caught.value)
        await model.aclose()


async def test_a_run_that_is_cancelled_does_not_wait_for_a_token(google: Google):
    google.gate = anyio.Event()
    model = gemini(google)
    async with anyio.create_task_group() as group:
        group.start_soon(model.generate, ask())
        await google.arrived.wait()
        group.cancel_scope.cancel()
    google.gate.set()
    google.replies.append(HI)
    await model.generate(ask())
    await model.aclose()


async def test_the_environment_of_google_genai_is_enough(
    google: Google, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    file = tmp_path / "account.json"
    file.write_text(json.dumps(google.service_account()))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", LOCATION)
    google.replies += [HI, message(says("hi there"))]
    for name in (f"vertex/{GEMINI}", f"vertex/{CLAUDE}"):
        model = resolve(name, base_url=google.url)
        assert (await model.generate(ask())).content == model_text("hi there")
        await model.aclose()
    assert f"/projects/{PROJECT}/" in google.asked[0].target, "the project is that of the credentials"


@pytest.mark.parametrize("spec", ["gemini-2.5-pro", "vertex/gemini-2.5-pro"])
def test_gemini_is_that_of_vertex_when_the_environment_says_so(spec: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "True")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p1")
    model = resolve(spec)
    assert isinstance(model, GeminiModel) and repr(model._http.base_url) == "Vertex('p1', 'global')"
    assert model.schema_with_tools, "spec core 3.5: Vertex does it from Gemini 2 on"


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us-east5", "us-east5-aiplatform.googleapis.com"),
    ],
)
def test_each_location_has_its_address(location: str, host: str):
    assert Vertex("p", location).address == f"https://{host}"


async def test_express_mode_takes_a_key_and_no_project(google: Google, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_API_KEY", EXPRESS)
    google.replies.append(HI)
    model = GeminiModel(GEMINI, base_url=Vertex(base_url=google.url))
    await model.generate(ask())
    await model.aclose()
    assert google.asked[0].target == f"/v1beta1/publishers/google/models/{GEMINI}:generateContent"
    claude = AnthropicModel(CLAUDE, base_url=Vertex(base_url=google.url))
    with pytest.raises(ConfigError, match="needs a project"):
        await claude.generate(ask())
    await claude.aclose()


async def test_the_quota_project_of_the_credentials_is_named(google: Google):
    google.valid.add("mine")
    google.replies.append(HI)
    model = gemini(google, credentials=own.Credentials("mine", quota_project_id="pays"))
    await model.generate(ask())
    await model.aclose()
    assert google.asked[0].headers["x-goog-user-project"] == "pays"


async def test_a_token_of_one_request_goes_before_ours(google: Google):
    google.valid.add("the-users-token")
    google.replies.append(HI)
    model = gemini(google)
    await model.generate(ask(config=GenerateConfig(headers={"Authorization": "Bearer the-users-token"})))
    await model.aclose()
    assert google.issued == []


async def test_no_credentials_say_what_to_do(google: Google):
    model = GeminiModel(GEMINI, base_url=Vertex(PROJECT, base_url=google.url))
    with pytest.raises(ConfigError, match="gcloud auth application-default login"):
        await model.generate(ask())
    await model.aclose()


async def test_no_project_says_what_to_do(google: Google):
    google.valid.add("mine")
    model = GeminiModel(GEMINI, base_url=Vertex(credentials=own.Credentials("mine"), base_url=google.url))
    with pytest.raises(ConfigError, match="GOOGLE_CLOUD_PROJECT"):
        await model.generate(ask())
    await model.aclose()


@pytest.mark.parametrize(
    "made",
    [
        lambda: Vertex("p/../q"),
        lambda: Vertex("p", "evil.example/"),
        lambda: Vertex("p", base_url="http://example.com"),
        lambda: Vertex("p", base_url="https://me:pw@example.com"),
        lambda: Vertex("p", api_key="k"),
        lambda: GeminiModel(GEMINI, base_url=Vertex("p"), api_key="k"),
        lambda: AnthropicModel(CLAUDE, base_url=Vertex("p"), api_key="k"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(made: Any):
    with pytest.raises(ConfigError) as caught:
        made()
    assert "pw" not in str(caught.value)


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "google.auth.transport.requests", None)
    with pytest.raises(ConfigError, match=r"pip install 'polyport\[vertex\]'"):
        resolve("vertex/gemini-2.5-pro")
