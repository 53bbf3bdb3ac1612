"""From strings to models: which one, with which address and key, and what is said when none fits (spec core 8.3)."""

from typing import Any

import pytest

from polyport.errors import ConfigError
from polyport.models.anthropic import AnthropicModel
from polyport.models.demo import DemoModel
from polyport.models.gemini import GeminiModel
from polyport.models.openai import OpenAIModel
from polyport.models.registry import Registry, ollama_url, resolve
from polyport.ports.model import Model

ENVIRONMENT = (
    "GEMINI_API_KEY GOOGLE_API_KEY OPENAI_API_KEY OPENAI_BASE_URL ANTHROPIC_API_KEY OLLAMA_HOST VLLM_BASE_URL VLLM_API_KEY"
    " LLAMACPP_BASE_URL LLAMACPP_API_KEY LMSTUDIO_BASE_URL LMSTUDIO_API_KEY"
)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT.split():
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, f"{name.lower()}-value")


class Own:
    """A user's model that remembers how it was made."""

    schema_with_tools = True

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self.options = options

    async def generate(self, request: Any, on_partial: Any = None) -> Any:
        raise NotImplementedError

    async def aclose(self) -> None: ...


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("spec", "kind", "name"),
    [
        ("demo", DemoModel, "demo"),
        ("gemini-flash-latest", GeminiModel, "gemini-flash-latest"),
        ("gemini/gemma-3-27b-it", GeminiModel, "gemma-3-27b-it"),
        (" gemini-2.5-pro ", GeminiModel, "gemini-2.5-pro"),
        ("gpt-5.1-mini", OpenAIModel, "gpt-5.1-mini"),
        ("chatgpt-4o-latest", OpenAIModel, "chatgpt-4o-latest"),
        ("o3", OpenAIModel, "o3"),
        ("o4-mini", OpenAIModel, "o4-mini"),
        ("openai/org/any:thing", OpenAIModel, "org/any:thing"),
        ("claude-sonnet-4-5", AnthropicModel, "claude-sonnet-4-5"),
        ("anthropic/claude-x", AnthropicModel, "claude-x"),
        ("ollama/llama3.2:3b", OpenAIModel, "llama3.2:3b"),
        ("vllm/org/model", OpenAIModel, "org/model"),
        ("llamacpp/default", OpenAIModel, "default"),
        ("lmstudio/qwen", OpenAIModel, "qwen"),
    ],
)
async def test_core_8_3_a_string_names_a_model(spec: str, kind: type[Model], name: str):
    model = resolve(spec)
    assert type(model) is kind
    assert model.name == name
    await model.aclose()


@pytest.mark.parametrize("spec", ["ollama/x", "vllm/x", "llamacpp/x", "lmstudio/x", "demo"])
def test_local_models_need_no_key(spec: str):
    assert resolve(spec).name


@pytest.mark.parametrize(
    ("spec", "variable"),
    [("gemini-x", "GEMINI_API_KEY"), ("gpt-5", "OPENAI_API_KEY"), ("claude-x", "ANTHROPIC_API_KEY")],
)
def test_a_missing_key_is_told_by_the_name_of_its_variable(spec: str, variable: str):
    with pytest.raises(ConfigError, match=variable):
        resolve(spec)
    assert resolve(spec, api_key="a-key-of-my-own").name == spec


def address(model: Model) -> str:
    return model._http.base_url  # type: ignore[attr-defined]  # no public door leads there without a server


@pytest.mark.parametrize(
    ("spec", "default", "variable", "value", "url"),
    [
        ("ollama/x", "http://127.0.0.1:11434/v1", "OLLAMA_HOST", "box:99", "http://box:99/v1"),
        ("vllm/x", "http://127.0.0.1:8000/v1", "VLLM_BASE_URL", "http://box/v1", "http://box/v1"),
        ("llamacpp/x", "http://127.0.0.1:8080/v1", "LLAMACPP_BASE_URL", "http://box/v1", "http://box/v1"),
        ("lmstudio/x", "http://127.0.0.1:1234/v1", "LMSTUDIO_BASE_URL", "http://box/v1", "http://box/v1"),
    ],
)
def test_addresses_of_local_servers(
    monkeypatch: pytest.MonkeyPatch, spec: str, default: str, variable: str, value: str, url: str
):
    assert address(resolve(spec)) == default
    monkeypatch.setenv(variable, value)
    assert address(resolve(spec)) == url
    assert address(resolve(spec, base_url="http://mine/v1")) == "http://mine/v1"


def test_openai_base_url_leads_to_a_compatible_server_with_or_without_a_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway/v1")
    for spec in ("openai/anything", "gpt-5"):
        assert address(resolve(spec)) == "http://gateway/v1"
    assert address(resolve("ollama/x")) == "http://127.0.0.1:11434/v1"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("box", "http://box:11434/v1"),
        ("box:80", "http://box:80/v1"),
        ("http://box", "http://box/v1"),
        ("https://box:8443/", "https://box:8443/v1"),
        ("http://box/proxy/v1", "http://box/proxy/v1"),
        ("[::1]:5", "http://[::1]:5/v1"),
    ],
)
def test_ollama_host_spellings(host: str, url: str):
    assert ollama_url(host) == url


def test_a_bad_ollama_host_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_HOST", "box:port")
    with pytest.raises(ConfigError, match="OLLAMA_HOST"):
        resolve("ollama/x")


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("gemni-2.5-flash", "gemini-2.5-flash"),
        ("Gemini-2.5-flash", "gemini-2.5-flash"),
        ("opena/gpt-5", "openai/gpt-5"),
        ("ollama:llama3", "ollama/llama3"),
        ("ollama", "ollama/NAME"),
        ("calude-sonnet", "claude-sonnet"),
        ("Demo", "demo"),
    ],
)
def test_an_unknown_name_gets_the_nearest_known_one(spec: str, meant: str):
    with pytest.raises(ConfigError) as caught:
        resolve(spec)
    assert f"did you mean {meant!r}?" in str(caught.value)


@pytest.mark.parametrize("spec", ["", "xyzzy", "gemini-", "openai/", "mistral\n"])
def test_an_unknown_name_gets_the_list_of_forms_and_what_to_set(spec: str):
    with pytest.raises(ConfigError) as caught:
        resolve(spec)
    for word in (
        "demo",
        "gemini-NAME",
        "GEMINI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_API_KEY",
        "OLLAMA_HOST",
        "vllm/",
    ):
        assert word in str(caught.value)


def test_options_are_few_and_others_are_told_where_they_belong():
    with pytest.raises(ConfigError, match=r"temperature .*GenerateConfig"):
        resolve("demo", temperature=0.1)
    with pytest.raises(ConfigError, match="takes no api_key"):
        resolve("demo", api_key="x")
    assert resolve("demo", api_key=None, base_url=None).name == "demo"


def test_core_8_3_a_registered_pattern_makes_models_with_the_options():
    registry = Registry()
    registry.register(r"corp/(small|large)", Own)
    model = registry.resolve("corp/small", base_url="http://x", headers={"a": "b"})
    assert isinstance(model, Own)
    assert (model.name, model.options) == ("corp/small", {"base_url": "http://x", "headers": {"a": "b"}})
    with pytest.raises(ConfigError):
        registry.resolve("corp/smaller")
    with pytest.raises(ConfigError):
        resolve("corp/small")  # registries do not share


def test_core_8_3_a_duplicate_or_invalid_pattern_is_refused():
    registry = Registry()
    registry.register("mine-.*", Own)
    with pytest.raises(ConfigError, match="already"):
        registry.register("mine-.*", Own)
    with pytest.raises(ConfigError, match="already"):
        registry.register("demo", Own)
    with pytest.raises(ConfigError, match="regular expression"):
        registry.register("mine-(", Own)


def test_core_8_3_two_patterns_that_match_are_refused_by_name():
    registry = Registry()
    registry.register("gpt-corp", Own)
    with pytest.raises(ConfigError, match=r"gpt-corp.*narrow"):
        registry.resolve("gpt-corp")
