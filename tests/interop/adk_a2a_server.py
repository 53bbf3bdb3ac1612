"""A till made with google-adk, over its own A2A server. Run by `test_foreign_clients.py` with google-adk's Python.

The argument is the listening socket. Its model repeats what it hears, pays when it is told to, and tells what came of it.
"""

import asyncio
import os
import socket
import sys
import warnings
from collections.abc import AsyncGenerator
from typing import Any

os.environ["OTEL_SDK_DISABLED"] = "true"
warnings.simplefilter("ignore")

import uvicorn  # noqa: E402
from google.adk.a2a.utils.agent_to_a2a import to_a2a  # noqa: E402
from google.adk.agents import LlmAgent  # noqa: E402
from google.adk.models import BaseLlm, LlmRequest, LlmResponse  # noqa: E402
from google.adk.tools import FunctionTool  # noqa: E402
from google.genai import types  # noqa: E402


def pay(amount: int) -> dict[str, str]:
    """Pay an amount."""
    return {"result": f"paid {amount}"}


def say(part: types.Part, partial: bool | None = None) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[part]), partial=partial)


class Teller(BaseLlm):
    model: str = "teller"

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncGenerator[Any, None]:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            yield say(types.Part(text=f"It said: {last.function_response.response}"))
        elif (last.text or "").startswith("pay"):
            yield say(types.Part(function_call=types.FunctionCall(name="pay", args={"amount": 5})))
        else:
            yield say(types.Part(text=f"You said: {last.text}"))


async def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    tools = [FunctionTool(pay, require_confirmation=True)]
    agent = LlmAgent(name="till", model=Teller(), description="Pays.", tools=tools)
    app = to_a2a(agent, host="127.0.0.1", port=listener.getsockname()[1])
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve([listener])


asyncio.run(main())
