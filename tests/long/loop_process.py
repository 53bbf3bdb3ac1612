"""Ten thousand turns of a tool loop in a process that may not grow; started by test_tool_loop.py.

Prints one JSON object: how the turns ended, and the resident memory (MB) at several marks.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Any

import anyio

from polyport import App, Limits, LlmAgent
from polyport.data.content import Content, FunctionCall, Part, model_text
from polyport.data.model import ModelRequest, ModelResponse
from polyport.ports.model import OnPartial
from polyport.ports.stores import Stores
from polyport.stores.sqlite import SqliteSessions

TURNS = 10_000
LIMIT_MB = 400
TOOL_BYTES = 1_000


class Caller:
    """Calls the tool until it was called `calls` times since the user spoke, then answers."""

    name = "caller"
    schema_with_tools = False

    def __init__(self, calls: int, marks: dict[int, float]) -> None:
        self._calls = calls
        self._left = calls
        self._asked = 0
        self._marks = marks

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        self._asked += 1
        if self._asked % 1000 == 0:
            self._marks[self._asked] = resident()
        if self._left == 0:
            self._left = self._calls
            return ModelResponse(content=model_text("done"))
        self._left -= 1
        call = FunctionCall(name="look", args={"n": self._left})
        return ModelResponse(content=Content(role="model", parts=[Part(function_call=call)]))

    async def aclose(self) -> None:
        pass


def look(n: int) -> dict[str, Any]:
    """Look at something."""
    return {"n": n, "text": "x" * TOOL_BYTES}


def resident() -> float:
    """Memory of this process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


async def main(kind: str, path: str) -> None:
    marks: dict[int, float] = {}
    one_run = kind == "one_run"
    model = Caller(TURNS if one_run else 1, marks)
    limits = Limits(max_llm_calls=2 * TURNS, history_window=40, feed_items=1000, run_timeout_s=7200)
    ended: set[str] = set()
    stores = Stores(SqliteSessions(Path(path), cache_bytes=1_000_000))  # a larger cache fills, and looks like a leak
    async with App(LlmAgent(name="a", model=model, tools=[look]), stores=stores, limits=limits) as app:
        for turn in range(1 if one_run else TURNS):
            reply = None
            if one_run:
                async for event in app.stream("go", session="s"):
                    reply = event
                ended.add(reply.text if reply is not None else "")
            else:
                ended.add((await app.ask("go", session=f"s{turn // 50}")).text)
    print(json.dumps({"ended": sorted(ended), "marks": marks}))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_MB * 1024 * 1024, LIMIT_MB * 1024 * 1024))
    anyio.run(main, sys.argv[1], sys.argv[2])
