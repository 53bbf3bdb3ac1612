"""Any live conversation: whatever is said, called, lost and handed over, in any order, nothing is lost, nothing comes twice."""

from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polyport import LlmAgent
from polyport.data.content import model_text
from polyport.data.live import LiveContent, LiveResponses
from polyport.data.model import Transcription
from polyport.engine import live_loop
from polyport.errors import ModelError
from polyport.ports.live import CONNECTION_LOST
from polyport.testing import call
from polyport.testing.live import LiveDouble, LiveLine
from support.live import staged

ACTIONS = (
    "say",
    "answer",
    "speak",
    "spoken",
    "hear",
    "heard",
    "call slow",
    "call fast",
    "finish tools",
    "hand over",
    "handle",
    "go away",
    "drop",
    "turn",
    "interrupt",
    "stall",
    "let go",
    "wait",
)


class Slow(LiveDouble):
    """Takes its time to connect, so that things happen in between."""

    async def before(self) -> None:
        for _ in range(10):
            await anyio.lowlevel.checkpoint()


class Conversation:
    """Plays the client and both models."""

    def __init__(self) -> None:
        self.models = {"app": Slow(name="app"), "expert": Slow(name="expert")}
        self.release = anyio.Event()
        self.said = 0
        self.calls = 0
        fields: dict[str, Any] = {"tools": [self.slow, self.fast]}
        expert = LlmAgent(name="expert", model=self.models["expert"], **fields)
        self.agent = LlmAgent(name="app", model=self.models["app"], sub_agents=[expert], **fields)

    async def slow(self, n: int) -> int:
        """Work until the test lets go."""
        await self.release.wait()
        return n

    def fast(self, n: int) -> int:
        """Work."""
        return n

    @property
    def lines(self) -> list[LiveLine]:
        return [line for model in self.models.values() for line in model.lines]

    async def line(self) -> LiveLine:
        """The open connection, once there is one."""
        while True:
            for line in self.lines:
                if not line.closed:
                    return line
            await anyio.lowlevel.checkpoint()

    async def do(self, action: str, client: Any) -> None:
        line = await self.line()
        if action == "say":
            self.said += 1
            await client.say(f"word {self.said}")
        elif action.startswith("call"):
            self.calls += 1
            await line.say(calls=[call(action[5:], {"n": self.calls}, f"c{self.calls}")])
        elif action == "hand over":
            other = "expert" if line in self.models["app"].lines else "app"
            self.calls += 1
            await line.say(calls=[call("transfer_to_agent", {"agent_name": other}, f"c{self.calls}")])
            self.release.set()  # it waits for the other calls
        elif action == "finish tools":
            self.release.set()
        elif action == "drop":
            line.drop(ModelError("lost", code=CONNECTION_LOST))
        elif action == "wait":
            await anyio.wait_all_tasks_blocked()
        elif action in ("stall", "let go"):
            line.stall(action == "stall")
        else:
            await line.say(**MESSAGES[action])


MESSAGES: dict[str, dict[str, Any]] = {
    "answer": {"content": model_text("text ")},
    "speak": {"output_transcription": Transcription(text="spoken ")},
    "spoken": {"output_transcription": Transcription(finished=True)},
    "hear": {"input_transcription": Transcription(text="heard ")},
    "heard": {"input_transcription": Transcription(finished=True)},
    "handle": {"resumption_handle": "h"},
    "go away": {"go_away_s": 1.0},
    "turn": {"turn_complete": True},
    "interrupt": {"interrupted": True},
}


async def converse(actions: list[str]) -> None:
    talk = Conversation()
    async with staged(agent=talk.agent, model=talk.models["app"]) as stage:
        async with stage.connected() as client:
            for action in actions:
                await talk.do(action, client)
            talk.release.set()
            for _ in range(3):  # all that is on its way arrives
                await anyio.wait_all_tasks_blocked()
                (await talk.line()).stall(False)
            await client.send(close=True)
            assert (await client.closed())[0] == 1000
        stored = await stage.stored()
    assert all(model.open == 0 for model in talk.models.values())
    check_words(talk, stored)
    check_calls(talk, stored)


def check_words(talk: Conversation, stored: list[dict[str, Any]]) -> None:
    """Each word of the user is stored once, in order, and was told to a model."""
    words = [f"word {n}" for n in range(1, talk.said + 1)]
    texts = [p.get("text") for e in stored for p in (e["content"] or {}).get("parts", []) if e["author"] == "user"]
    assert [t for t in texts if t in words] == words
    told = [p.text for line in talk.lines for c in line.request.contents for p in c.parts]
    sent = [p.text for line in talk.lines for i in line.inputs if isinstance(i, LiveContent) for p in i.content.parts]
    assert set(words) <= {*told, *sent}
    assert max(Counter(t for t in sent if t in words).values(), default=1) == 1


def check_calls(talk: Conversation, stored: list[dict[str, Any]]) -> None:
    """Each call that was taken in is stored once, before its one result, which was told as such once at most. One that came
    while the agent was handing over is not taken in."""
    parts = [p for e in stored for p in (e["content"] or {}).get("parts", [])]
    asked = [p["functionCall"]["id"] for p in parts if "functionCall" in p]
    given = [p["functionResponse"]["id"] for p in parts if "functionResponse" in p]
    assert asked == sorted(set(asked), key=lambda id: int(id[1:]))
    assert len(given) == len(set(given))
    seen: set[str] = set()
    for part in parts:
        if "functionCall" in part:
            seen.add(part["functionCall"]["id"])
        elif "functionResponse" in part:
            assert part["functionResponse"]["id"] in seen
    told = Counter(
        r.id for line in talk.lines for i in line.inputs if isinstance(i, LiveResponses) for r in i.responses
    )
    assert all(n == 1 for n in told.values())


@settings(max_examples=30, deadline=None)
@example(["handle", "stall", "say", "wait", "drop"])
@example(["stall", "say", "say", "wait", "hand over"])
@example(["call slow", "handle", "wait", "drop", "finish tools"])
@example(["hear", "call fast", "wait", "drop", "heard"])
@example(["handle", "answer", "go away", "say", "turn", "say"])
@given(st.lists(st.sampled_from(ACTIONS), max_size=25))
def test_nothing_is_lost_and_nothing_is_twice(actions: list[str]):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_loop, "RETRY_S", (0.0,) * len(actions))  # no pauses, and as many attempts as it takes
        anyio.run(converse, [str(action) for action in actions])
