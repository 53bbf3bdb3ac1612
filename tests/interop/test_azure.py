"""Azure OpenAI with a key and with Entra ID by azure-identity, against a fake of both of its addresses."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from cloud_fakes import AZURE_KEY, MSI_SECRET, AzureCloud, running
from gemini_ways import ask
from openai_fake import USAGE, chunk, completion, events, refusal, whole

from polyport import App, LlmAgent
from polyport.data.content import model_text
from polyport.data.model import GenerateConfig, ModelResponse
from polyport.errors import ConfigError, ModelError, describe
from polyport.models.azure import Azure
from polyport.models.http import Http, Retry
from polyport.models.openai import OpenAIModel
from polyport.models.registry import resolve
from polyport.seams import Seams

HI = whole(completion({"content": "hi"}, usage=USAGE))
NAMES = "OPENAI_ENDPOINT OPENAI_API_KEY OPENAI_AD_TOKEN CLIENT_ID TENANT_ID CLIENT_SECRET AUTHORITY_HOST"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's own sign-in is found."""
    for name in (*(f"AZURE_{n}" for n in NAMES.split()), "OPENAI_API_VERSION", "IDENTITY_ENDPOINT", "IDENTITY_HEADER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")


@pytest.fixture
async def azure(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AzureCloud]:
    async with running(AzureCloud()) as fake:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{fake.url}/")
        yield fake


@pytest.fixture
def identity(azure: AzureCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The managed identity of an app service."""
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{azure.url}/msi")
    monkeypatch.setenv("IDENTITY_HEADER", MSI_SECRET)


async def no_sleep(seconds: float) -> None: ...


def model_of(**more: Any) -> OpenAIModel:
    return OpenAIModel("prod", http=Http(Azure(**more), retry=Retry(attempts=2), sleep=no_sleep))


async def keep(piece: ModelResponse) -> None: ...


async def test_the_v1_api_is_asked_with_a_key(azure: AzureCloud, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", AZURE_KEY)
    azure.replies += [
        whole(
            completion(
                {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}]},
                "tool_calls",
            )
        ),
        HI,
    ]

    def add(a: int) -> int:
        """Add."""
        return a

    async with App(LlmAgent(name="sums", model="azure/prod", tools=[add])) as app:
        reply = await app.ask("1?")
    assert reply.text == "hi" and not azure.refused
    assert [a.target for a in azure.asked] == ["/openai/v1/chat/completions"] * 2
    assert azure.asked[0].body["model"] == "prod"
    assert azure.asked[0].headers["api-key"] == AZURE_KEY and "authorization" not in azure.asked[0].headers


@pytest.mark.parametrize(
    ("version", "target"),
    [
        ("2024-10-21", "/openai/deployments/prod/chat/completions?api-version=2024-10-21"),
        ("preview", "/openai/v1/chat/completions?api-version=preview"),
        ("v1", "/openai/v1/chat/completions"),
    ],
)
async def test_versions_of_the_api_have_their_addresses(
    azure: AzureCloud, version: str, target: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_VERSION", version)
    azure.replies.append(HI)
    model = resolve("azure/prod", api_key=AZURE_KEY)
    await model.generate(ask(config=GenerateConfig(max_output_tokens=5)))
    await model.aclose()
    assert azure.asked[0].target == target
    assert azure.asked[0].body["max_completion_tokens"] == 5, "what OpenAI's own models take"


async def test_a_stream_begins_with_what_its_filters_say(azure: AzureCloud):
    filters = chunk(prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}], model="")
    azure.replies.append(events(filters, chunk({"content": "hi"}), chunk({}, "stop"), chunk(usage=USAGE)))
    model = model_of(api_key=AZURE_KEY)
    assert (await model.generate(ask(), keep)).content == model_text("hi")
    await model.aclose()


@pytest.mark.usefixtures("identity")
async def test_entra_id_is_asked_once_for_many_and_the_loop_is_not_held_up(azure: AzureCloud):
    azure.replies += [HI] * 4
    azure.gate = anyio.Event()
    model = model_of()
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(model.generate, ask())
        await azure.arrived.wait()  # the fake runs on this very loop
        azure.gate.set()
    await model.aclose()
    assert len(azure.issued) == 1 and len(azure.asked) == 4
    assert azure.asked[0].headers["authorization"] == f"Bearer {azure.issued[0]}"


class Own:
    """A credential as users write them: a new token each time."""

    def __init__(self, azure: AzureCloud) -> None:
        self.azure = azure
        self.scopes: list[tuple[str, ...]] = []

    def get_token(self, *scopes: str) -> Any:
        self.scopes.append(scopes)
        token = f"own-token-{len(self.scopes)}-0123456789"
        self.azure.valid.add(token)

        class Got:
            expires_on = 10_000

        Got.token = token  # type: ignore[attr-defined]
        return Got


async def test_a_token_is_renewed_before_it_ends_and_after_a_401(azure: AzureCloud):
    azure.replies += [HI] * 3
    now = [0.0]
    own = Own(azure)
    model = model_of(credential=own, scope="https://other/.default", seams=Seams(clock=lambda: now[0]))
    await model.generate(ask())
    now[0] = 9_000.0
    azure.revoke()
    await model.generate(ask())
    now[0] = 9_950.0
    await model.generate(ask())
    await model.aclose()
    assert own.scopes == [("https://other/.default",)] * 3
    assert azure.refused == ["stranger"]


async def test_a_wrong_key_is_an_error_that_does_not_show_it(azure: AzureCloud):
    model = model_of(api_key="wrong-key-0123456789")
    with pytest.raises(ModelError) as caught:
        await model.generate(ask())
    await model.aclose()
    assert caught.value.http_status == 401 and "***" in str(caught.value)
    assert "wrong-key-0123456789" not in f"{caught.value!r} {describe(caught.value)} {model!r} {model._http.base_url!r}"


async def test_a_token_in_the_environment_is_used_as_it_is(azure: AzureCloud, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "ad-token-0123456789")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", AZURE_KEY)
    azure.valid.add("ad-token-0123456789")
    azure.replies.append(HI)
    model = model_of()
    await model.generate(ask())
    await model.aclose()
    assert azure.asked[0].headers["authorization"] == "Bearer ad-token-0123456789"


@pytest.mark.parametrize("name", ["Api-Key", "Authorization"])
async def test_a_secret_of_one_request_goes_before_ours(azure: AzureCloud, name: str):
    azure.valid.add(AZURE_KEY)
    azure.replies.append(HI)
    model = model_of(api_key="ours-0123456789")
    await model.generate(ask(config=GenerateConfig(headers={name: AZURE_KEY})))
    await model.aclose()
    assert "ours-0123456789" not in azure.asked[0].headers.values()


async def test_a_filtered_prompt_says_so(azure: AzureCloud):
    azure.replies.append(refusal(400, "The response was filtered due to the prompt triggering a policy"))
    model = model_of(api_key=AZURE_KEY)
    with pytest.raises(ModelError, match="was filtered"):
        await model.generate(ask())
    await model.aclose()


@pytest.mark.usefixtures("identity")
async def test_no_token_says_what_to_do(azure: AzureCloud):
    azure.broken = 99
    model = model_of()
    with pytest.raises(ModelError, match="az login") as caught:
        await model.generate(ask())
    await model.aclose()
    assert caught.value.code == "UNAUTHENTICATED" and MSI_SECRET not in repr(caught.value)


def test_no_endpoint_says_what_to_do():
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
        resolve("azure/prod")


@pytest.mark.parametrize(
    "made",
    [
        lambda: Azure("http://example.com", api_key="k"),
        lambda: Azure("https://x.openai.azure.com", api_key="k", api_version="1&x=y"),
        lambda: Azure("https://x.openai.azure.com", api_key="k", credential=Own(AzureCloud())),
        lambda: OpenAIModel("prod", base_url=Azure("https://x.openai.azure.com", api_key="k"), api_key="k"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(made: Any):
    with pytest.raises(ConfigError):
        made()


@pytest.mark.parametrize("suffix", ["", "/", "/openai", "/openai/v1/"])
def test_the_endpoint_may_be_any_that_azure_shows(suffix: str):
    assert Azure(f"https://x.openai.azure.com{suffix}", api_key="k").address == "https://x.openai.azure.com"


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(ConfigError, match=r"AZURE_OPENAI_API_KEY.*pip install 'polyport\[azure\]'"):
        resolve("azure/prod", base_url="https://x.openai.azure.com")
    resolve("azure/prod", base_url="https://x.openai.azure.com", api_key="k")
