"""Serves the same agents as `adk_agents/` with Polyport, in memory unless told otherwise. Started by `main.py`."""

import asyncio

import script
from serving import arguments, serve

from polyport import App, LlmAgent
from polyport.cli.serve import calm_gc
from polyport.cli.serve_http import HttpProtocol
from polyport.data.content import Content, FunctionCall, Part, model_text
from polyport.data.limits import Limits
from polyport.data.model import ModelRequest, ModelResponse
from polyport.ports.model import OnPartial


def _text(text: str, partial: bool = False) -> ModelResponse:
    return ModelResponse(content=model_text(text), partial=partial)


class Scripted:
    """Answers at once with one text."""

    name = "scripted"
    schema_with_tools = False

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        return _text(script.ANSWER)

    async def aclose(self) -> None:
        pass


class ToolCaller(Scripted):
    """Calls `weather`, then answers."""

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        if request.contents[-1].parts[-1].function_response is not None:
            return _text(script.ANSWER)
        call = FunctionCall(name="weather", args={"city": script.CITY})
        return ModelResponse(content=Content(role="model", parts=[Part(function_call=call)]))


class Streamer(Scripted):
    """200 pieces, then the whole."""

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        if on_partial is not None:
            for piece in script.PIECES:
                await on_partial(_text(piece, partial=True))
        return _text(script.WHOLE)


class Slow(Scripted):
    """One piece per period on a fixed schedule; see `script.schedule`."""

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        count, period = script.schedule(request.contents[-1].parts[-1].text or "")
        loop = asyncio.get_running_loop()
        due = loop.time()
        for _ in range(count):
            due += period
            await asyncio.sleep(max(0.0, due - loop.time()))
            if on_partial is not None:
                await on_partial(_text(script.PIECES[0], partial=True))
        return _text(script.ANSWER)


def app(sqlite: str, a2a: bool, window: int | None) -> App:
    agents = [
        LlmAgent(name="one", model=Scripted(), instruction=script.INSTRUCTION),
        LlmAgent(name="tool", model=ToolCaller(), instruction=script.INSTRUCTION, tools=[script.weather]),
        LlmAgent(name="sse", model=Streamer(), instruction=script.INSTRUCTION),
        LlmAgent(name="slow", model=Slow(), instruction=script.INSTRUCTION),
    ]
    return App(
        agents,
        stores=f"sqlite:///{sqlite}" if sqlite else None,
        limits=Limits(history_window=window),
        protocols=("rest", "a2a") if a2a else ("rest",),
    )


if __name__ == "__main__":
    options = arguments()
    served = app(options.sqlite, options.a2a, options.window).asgi
    calm_gc()  # as `polyport serve` does
    serve(served, options.fd, HttpProtocol)
