"""How the tests of GeminiModel ask it: a model for the fake server, requests, and a stream with its pieces."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gemini_fake import KEY, Server

from polyport.data.content import Blob, Content, FileData, FunctionCall, FunctionResponse, Part, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration
from polyport.models.gemini import GeminiModel
from polyport.models.http import Http
from polyport.ports.model import Model

NAME = "gemini-flash-latest"
WEATHER = ToolDeclaration(
    name="get_weather",
    description="Weather of a city",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@asynccontextmanager
async def model_of(server: Server, slept: list[float] | None = None, **more: Any) -> AsyncIterator[GeminiModel]:
    async def sleep(seconds: float) -> None:
        (slept if slept is not None else []).append(seconds)

    http = Http(server.url + "/v1beta", sleep=sleep, **more)
    model = GeminiModel(NAME, api_key=KEY, http=http)
    try:
        yield model
    finally:
        await model.aclose()


def ask(text: str = "hi", **more: Any) -> ModelRequest:
    return ModelRequest(contents=[user_text(text)], **more)


async def streamed(model: Model, request: ModelRequest) -> tuple[list[ModelResponse], ModelResponse]:
    pieces: list[ModelResponse] = []

    async def on_partial(piece: ModelResponse) -> None:
        pieces.append(piece)

    return pieces, await model.generate(request, on_partial)


def full_request() -> ModelRequest:
    parts = [
        Part(text="look", part_metadata={"a": 1}),
        Part(inline_data=Blob(mime_type="image/png", data=b"\x89PNG\r\n\x1a\n", display_name="a.png")),
        Part(file_data=FileData(file_uri="data:text/plain;base64,aGk=", display_name="b")),
        Part(file_data=FileData(file_uri="https://x/y.pdf", mime_type="application/pdf", display_name="c")),
        Part(),
    ]
    calls = [
        Part(
            function_call=FunctionCall(id="adk-1", name="get_weather", args={"city": "A"}),
            thought_signature=b"\xff\xfe",
        ),
        Part(function_call=FunctionCall(id="v2", name="get_weather", args={"city": "B"})),
    ]
    results = [
        Part(function_response=FunctionResponse(id="v2", name="get_weather", response={"t": 2})),
        Part(function_response=FunctionResponse(id="adk-1", name="get_weather", response=None)),
    ]
    return ModelRequest(
        contents=[
            Content(role="user", parts=parts),
            Content(role="model", parts=[Part(text="hm", thought=True), *calls]),
            Content(role="user", parts=results),
            Content(role="model", parts=[Part(text="done", thought_signature=b"s")]),
            Content(role="model", parts=[Part(function_call=FunctionCall(id="lost", name="get_weather", args={}))]),
            user_text("stop, do something else"),
        ],
        system="Be brief.",
        tools=[WEATHER, ToolDeclaration(name="now", response={"type": "object"})],
        config=GenerateConfig(
            temperature=0.5,
            top_k=3,
            max_output_tokens=5,
            stop_sequences=["X"],
            thinking_budget=1,
            tool_choice="now",
        ),
    )
