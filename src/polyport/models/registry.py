"""From a string such as `gemini-flash-latest` or `ollama/llama3.2` to a model (spec core 8.3).

Called by the app for agents whose model is a string. A string must match exactly one known pattern. Adapters are imported
when the first model of theirs is made, so that a start waits for none that it does not use. Never talks to a provider.
"""

import difflib
import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from polyport.errors import ConfigError
from polyport.ports.model import Model

Factory = Callable[..., Model]
"""Called with the whole string and the options given to `resolve`, as keywords."""

OPTIONS = ("api_key", "base_url", "headers")
"""What `resolve` passes on. How to generate (temperature and so on) belongs to an agent's GenerateConfig."""

FORMS = (
    ("demo", "offline, needs nothing"),
    ("gemini-NAME, gemini/NAME", "set GEMINI_API_KEY; live sessions need a NAME with live or native-audio"),
    ("gpt-NAME, o3, openai/NAME", "set OPENAI_API_KEY, and OPENAI_BASE_URL for a server that speaks its API"),
    ("claude-NAME, anthropic/NAME", "set ANTHROPIC_API_KEY"),
    ("ollama/NAME", "OLLAMA_HOST if it is not on this machine"),
    ("vertex/gemini-NAME, vertex/claude-NAME", "GOOGLE_CLOUD_PROJECT, GOOGLE_CLOUD_LOCATION; polyport[vertex]"),
    ("bedrock/anthropic.claude-NAME", "AWS_REGION and credentials of AWS; polyport[bedrock]"),
    ("azure/DEPLOYMENT", "AZURE_OPENAI_ENDPOINT, and AZURE_OPENAI_API_KEY or polyport[azure]"),
    ("vllm/NAME, llamacpp/NAME, lmstudio/NAME", "VLLM_BASE_URL, LLAMACPP_BASE_URL, LMSTUDIO_BASE_URL if not the usual"),
)
"""The built-in forms and what each needs."""

LOCAL = {
    "vllm": "http://127.0.0.1:8000/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
}
"""Where servers of the OpenAI API listen by default."""

_LIVE = re.compile(r"live|native-audio")
"""What the names of the Gemini models that hold live sessions have in them; the API refuses these to all others."""

_FAMILIES = ("demo", "gemini", "openai", "gpt", "anthropic", "claude", "ollama", "vertex", "bedrock", "azure", *LOCAL)


class _Entry(Struct, frozen=True):
    pattern: re.Pattern[str]
    factory: Factory


class Registry:
    """Patterns and factories. A new one knows the built-in forms."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        for pattern, factory in _BUILT_IN.items():
            self.register(pattern, factory)

    def register(self, pattern: str, factory: Factory) -> None:
        """Let strings that match the whole of the regular expression `pattern` be made by `factory`.

        ConfigError for a pattern that is registered already or is no regular expression.
        """
        if pattern in self._entries:
            raise ConfigError(f"the model pattern {pattern!r} is registered already")
        try:
            self._entries[pattern] = _Entry(re.compile(pattern), factory)
        except re.error as error:
            raise ConfigError(f"the model pattern {pattern!r} is no regular expression: {error}") from None

    def resolve(self, spec: str, **options: Any) -> Model:
        """The model that `spec` names. `options` are those of OPTIONS; None is as good as absent.

        ConfigError when no pattern matches, or more than one, or the model cannot be made (no key, say): says what to do.
        """
        given = {k: v for k, v in options.items() if v is not None}
        if unknown := sorted(given.keys() - set(OPTIONS)):
            raise ConfigError(f"a model takes {', '.join(OPTIONS)}; not {', '.join(unknown)} (see GenerateConfig)")
        name = spec.strip()
        found = [e for e in self._entries.values() if e.pattern.fullmatch(name)]
        if len(found) > 1:
            patterns = ", ".join(repr(e.pattern.pattern) for e in found)
            raise ConfigError(f"the model {spec!r} matches more than one pattern: {patterns}; narrow your own")
        if not found:
            raise ConfigError(_unknown(name))
        return found[0].factory(name, **given)


def _unknown(name: str) -> str:
    known = "; ".join(f"{form} ({need})" for form, need in FORMS)
    meant = _nearest(name)
    return f"no model is known as {name!r}" + (f"; did you mean {meant!r}?" if meant else ".") + f" Known: {known}"


def _nearest(name: str) -> str:
    """What was probably meant, or ""."""
    family, mark, rest = [*re.split(r"([/:-])", name, maxsplit=1), "", ""][:3]
    near = next(iter(difflib.get_close_matches(family.lower(), _FAMILIES, n=1, cutoff=0.6)), "")
    if near in ("", "demo"):
        return near
    if not rest:
        return f"{near}/{'NAME' if family.lower() == near else name}"
    return f"{near}/{rest}" if mark == ":" else f"{near}{mark}{rest}"


def _demo(spec: str, **options: Any) -> Model:
    from polyport.models.demo import DemoModel

    if options:
        raise ConfigError(f"the demo model takes no {', '.join(options)}")
    return DemoModel()


def _gemini(spec: str, **options: Any) -> Model:
    from polyport.models.gemini import GeminiModel
    from polyport.models.gemini_live import GeminiLiveModel

    name = spec.removeprefix("gemini/")
    return (GeminiLiveModel if _LIVE.search(name) else GeminiModel)(name, **options)


def _openai(spec: str, **options: Any) -> Model:
    """OPENAI_BASE_URL and OPENAI_API_KEY belong together, as in the vendor's own clients."""
    from polyport.models.openai import OpenAIModel

    base_url = os.environ.get("OPENAI_BASE_URL", "").strip()
    if base_url and "base_url" not in options:
        options["base_url"] = base_url
        options.setdefault("api_key", os.environ.get("OPENAI_API_KEY") or None)
    return OpenAIModel(spec.removeprefix("openai/"), **options)


def _anthropic(spec: str, **options: Any) -> Model:
    from polyport.models.anthropic import AnthropicModel

    return AnthropicModel(spec.removeprefix("anthropic/"), **options)


def _vertex(spec: str, **options: Any) -> Model:
    """Claude by its name; all others are asked as Gemini."""
    from polyport.models.vertex import Vertex

    name = spec.removeprefix("vertex/")
    where = Vertex(api_key=options.pop("api_key", None), base_url=options.pop("base_url", None))
    return (_anthropic if name.startswith("claude") else _gemini)(name, base_url=where, **options)


def _bedrock(spec: str, **options: Any) -> Model:
    from polyport.models.bedrock import Bedrock

    name = spec.removeprefix("bedrock/")
    if "anthropic." not in name and not name.startswith("arn:"):
        raise ConfigError(
            f"{name!r} is no Claude model: Bedrock is asked for those only, as bedrock/anthropic.claude-NAME"
        )
    where = Bedrock(api_key=options.pop("api_key", None), base_url=options.pop("base_url", None))
    return _anthropic(name, base_url=where, **options)


def _azure(spec: str, **options: Any) -> Model:
    from polyport.models.azure import Azure
    from polyport.models.openai import OpenAIModel

    where = Azure(options.pop("base_url", None), api_key=options.pop("api_key", None))
    return OpenAIModel(spec.removeprefix("azure/"), base_url=where, **options)


def _ollama(spec: str, **options: Any) -> Model:
    from polyport.models.openai import OpenAIModel

    options.setdefault("base_url", ollama_url(os.environ.get("OLLAMA_HOST", "")))
    return OpenAIModel(spec.removeprefix("ollama/"), **options)


def _local(spec: str, **options: Any) -> Model:
    from polyport.models.openai import OpenAIModel

    server, _, name = spec.partition("/")
    options.setdefault("base_url", os.environ.get(f"{server.upper()}_BASE_URL", "").strip() or LOCAL[server])
    options.setdefault("api_key", os.environ.get(f"{server.upper()}_API_KEY") or None)
    return OpenAIModel(name, **options)


def ollama_url(host: str) -> str:
    """The base URL of Ollama's OpenAI API from OLLAMA_HOST, which may be a host, a host and port, or a URL."""
    host = host.strip()
    bare = "://" not in host
    try:
        parts = urlsplit(f"http://{host}" if bare else host)
        port = parts.port
    except ValueError:
        raise ConfigError(f"OLLAMA_HOST is {host!r}; it should be like 127.0.0.1:11434 or http://host:11434") from None
    name = parts.hostname or "127.0.0.1"
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # where it listens is not where to call
    where = f"[{name}]" if ":" in name else name
    if port is None:
        port = 11434 if bare else None
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{where}{f':{port}' if port else ''}{path if path.endswith('/v1') else path + '/v1'}"


_BUILT_IN: dict[str, Factory] = {
    r"demo": _demo,
    r"gemini/.+|gemini-.+": _gemini,
    r"openai/.+|gpt-.+|chatgpt-.+|o[1-9](?:-.+)?": _openai,
    r"anthropic/.+|claude-.+": _anthropic,
    r"vertex/.+": _vertex,
    r"bedrock/.+": _bedrock,
    r"azure/.+": _azure,
    r"ollama/.+": _ollama,
    r"(?:vllm|llamacpp|lmstudio)/.+": _local,
}

_registry = Registry()
resolve = _registry.resolve
"""`Registry.resolve` of the registry that apps use."""
register = _registry.register
"""`Registry.register` of the registry that apps use."""
