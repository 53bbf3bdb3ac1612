"""For tests of evaluation: a weather agent that needs no key, cases about it, and an app that serves its evaluation."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from polyport import App, LlmAgent
from polyport.protocols.evals.mount import Evals
from polyport.testing import connect
from polyport.testing.connect import Client

DEV = "/dev/apps/weather"


def get_weather(city: str) -> dict:
    """Current weather of a city."""
    return {"t": 18}


def weather(model: Any = "demo", **fields: Any) -> LlmAgent:
    return LlmAgent(name="weather", model=model, instruction="Use the tool.", tools=[get_weather], **fields)


def turn(said: str, answer: str = "", *calls: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A turn of a case, in the older spelling of ADK's documentation."""
    made: dict[str, Any] = {"user_content": {"role": "user", "parts": [{"text": said}]}, **more}
    if answer:
        made["final_response"] = {"role": "model", "parts": [{"text": answer}]}
    made["intermediate_data"] = {"tool_uses": [{"name": name, "args": args} for name, args in calls]}
    return made


def case(id: str, *turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"eval_id": id, "conversation": list(turns), **more}


def eval_set(*cases: dict[str, Any], id: str = "s1") -> dict[str, Any]:
    return {"eval_set_id": id, "eval_cases": list(cases)}


PARIS = case("paris", turn("Weather in Paris?", "Paris: t 18.", ("get_weather", {"city": "Paris"})))
"""What the demo model does."""


def written(folder: Path, found: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found['eval_set_id']}.evalset.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    return path


@asynccontextmanager
async def evals_served(root: Path, agent: Any = None, **options: Any) -> AsyncGenerator[Client]:
    """A client of an app that serves REST and the evaluation of the agent `weather`."""
    settings = {name: options.pop(name) for name in ("judge", "metrics", "plugins", "parallel") if name in options}
    app = App(agent or weather(), protocols=["rest", Evals(root=root, **settings)], **options)
    async with connect(app) as client:
        yield client
