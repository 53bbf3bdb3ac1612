"""Sessions of all kinds of agents, recorded as tests, play again without a model as they were."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polyport import Agent, AgentTool, Content, LlmAgent, ModelResponse, ParallelAgent, Part, tool
from polyport.testing import ScriptedModel, call
from support.evals import DEV, evals_served

Message = str | Callable[[list[Any]], dict[str, Any]]


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, description=name, model=ScriptedModel(*steps), **fields)


def yes(events: list[Any]) -> dict[str, Any]:
    """The answer to the approval that was asked for."""
    calls = [p["functionCall"] for e in events for p in e["content"]["parts"] if "functionCall" in p]
    asked = next(c["id"] for c in calls if c["name"] == "adk_request_confirmation")
    answer = {"id": asked, "name": "adk_request_confirmation", "response": {"confirmed": True}}
    return {"role": "user", "parts": [{"functionResponse": answer}]}


def first_from_a_cache(ctx: Any, request: Any) -> ModelResponse | None:
    if len(request.contents) > 1:
        return None
    return ModelResponse(content=Content(role="model", parts=[Part(text="cached")]))


def kinds() -> dict[str, tuple[Agent, list[Message]]]:
    approved = tool(require_confirmation=True)(pay)
    inner = llm("inner", call("pay", {"amount": 1}), "inner says", tools=[pay])
    sub = llm("sub", "here", "here again")
    helper = llm("helper", "which?", call("finish_task", {"result": "ok"}), mode="task")
    side = [llm("a", "from a", "a again"), llm("b", call("pay", {"amount": 2}), "from b", "b again", tools=[pay])]
    return {
        "approval": (llm("till", call("pay", {"amount": 5}), "Done.", "Bye", tools=[approved]), ["pay", yes, "bye"]),
        "agent tool": (llm("outer", call("inner", {"request": "x"}), "outer says", tools=[AgentTool(inner)]), ["go"]),
        "side by side": (ParallelAgent(name="p", sub_agents=side), ["go", "again"]),
        "transfer": (llm("root", call("transfer_to_agent", {"agent_name": "sub"}), sub_agents=[sub]), ["go", "more"]),
        "task": (llm("root", call("helper", {"request": "x"}), "done", sub_agents=[helper]), ["go", "this one"]),
        "a callback in the model's place": (llm("root", "asked", before_model=first_from_a_cache), ["go", "more"]),
    }


@pytest.mark.parametrize("kind", kinds())
async def test_a_recorded_session_plays_again_as_it_was(tmp_path: Path, kind: str):
    agent, messages = kinds()[kind]
    async with evals_served(tmp_path, {"weather": agent}) as client:
        await client.post("/apps/weather/users/u/sessions/x", json={})
        events: list[Any] = []
        for message in messages:
            said = message(events) if callable(message) else {"role": "user", "parts": [{"text": message}]}
            body = {"appName": "weather", "userId": "u", "sessionId": "x", "newMessage": said}
            response = await client.post("/run", json=body)
            assert response.status == 200, response.text
            events = response.json()
        session = (await client.get("/apps/weather/users/u/sessions/x")).json()
        assert (await client.put(f"{DEV}/tests/t", json={"session_data": session})).status == 200
        assert (await client.post(f"{DEV}/tests/run")).text == "weather/t.json PASSED\n1 passed\n"
        # and it becomes an eval case with a turn for each message
        await client.post(f"{DEV}/eval_sets/s1")
        added = {"evalId": "c", "sessionId": "x", "userId": "u"}
        assert (await client.post(f"{DEV}/eval_sets/s1/add_session", json=added)).status == 200
        turns = (await client.get(f"{DEV}/eval_sets/s1/evals/c")).json()["conversation"]
        assert len(turns) == len(messages)
