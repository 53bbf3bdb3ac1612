"""Scripted google-adk models of zero latency (and a slow one), for the agents in `adk_agents/`."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import script
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.models._capabilities import LlmCapabilities
from google.genai import types


def _text(text: str, partial: bool | None = None) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), partial=partial)


def _last(request: LlmRequest) -> types.Part:
    return request.contents[-1].parts[-1]


class Scripted(BaseLlm):
    """Answers at once with one text."""

    model: str = "scripted"

    @property
    def capabilities(self) -> LlmCapabilities:
        return LlmCapabilities(output_schema_and_tools=False)

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncGenerator[Any, None]:
        yield _text(script.ANSWER)


class ToolCaller(Scripted):
    """Calls `weather`, then answers."""

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncGenerator[Any, None]:
        if _last(llm_request).function_response is not None:
            yield _text(script.ANSWER)
            return
        call = types.FunctionCall(name="weather", args={"city": script.CITY})
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))


class Streamer(Scripted):
    """200 pieces, then the whole."""

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncGenerator[Any, None]:
        for piece in script.PIECES:
            yield _text(piece, partial=True)
        yield _text(script.WHOLE)


class Slow(Scripted):
    """One piece per period on a fixed schedule; see `script.schedule`."""

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncGenerator[Any, None]:
        count, period = script.schedule(_last(llm_request).text)
        loop = asyncio.get_running_loop()
        due = loop.time()
        for _ in range(count):
            due += period
            await asyncio.sleep(max(0.0, due - loop.time()))
            yield _text(script.PIECES[0], partial=True)
        yield _text(script.ANSWER)
