"""What the contract suites share: a clock that stands still, events to store, and things done at the same time.

Used by the suites of this package and by tests of stores. Never does I/O.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse, Part, model_text
from polyport.data.event import Compaction, Event, EventActions, NodeInfo, RequestInput, ToolConfirmation
from polyport.data.model import Transcription, Usage
from polyport.data.session import SessionKey
from polyport.errors import PolyportError
from polyport.seams import Seams

KEY = SessionKey("app", "ann", "s1")


class Clock:
    """Epoch seconds that stand still until somebody sets `now`; and ids `id-1`, `id-2`, ..."""

    def __init__(self, now: float = 1772000000.25) -> None:
        self.now = now
        self.ids = 0

    def seams(self) -> Seams:
        return Seams(clock=lambda: self.now, new_id=self.new_id, chance=lambda: 0.5)

    def new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"


def note(text: str = "hello", *, at: float | None = None, run: str = "e-1", **delta: Any) -> Event:
    """A model's event without an id. In `delta`, `app__x` is the state key `app:x`."""
    return Event(
        timestamp=None if at is None else datetime.fromtimestamp(at, UTC),
        invocation_id=run,
        author="agent",
        content=model_text(text),
        actions=EventActions(state_delta={k.replace("__", ":"): v for k, v in delta.items()}, artifact_delta={}),
    )


def change(delta: dict[str, Any]) -> Event:
    """An event that changes state and says nothing."""
    return Event(author="agent", actions=EventActions(state_delta=delta, artifact_delta={}))


def full_event() -> Event:
    """An event in which every field says something."""
    parts = [
        Part(text="thinking", thought=True, thought_signature=b"\x00\xff\xfe"),
        Part(inline_data=Blob(mime_type="image/png", data=bytes(range(256)), display_name="dot")),
        Part(function_call=FunctionCall(id="c1", name="f", args={"n": 1, "x": 1.0, "s": "你好", "none": None})),
        Part(function_response=FunctionResponse(id="c1", name="f", response={"big": 2**60, "list": [1, 2.5, {}]})),
    ]
    return Event(
        id="event-1",
        timestamp=datetime(2026, 2, 25, 6, 13, 20, 123457, UTC),
        invocation_id="e-7",
        author="agent",
        branch="a.b",
        content=Content(role="model", parts=parts),
        actions=EventActions(
            state_delta={"k": [1, {"deep": None}]},
            artifact_delta={"f.txt": 2},
            requested_tool_confirmations={"c1": ToolConfirmation(hint="sure?", payload={"sum": 5})},
            skip_summarization=True,
            transfer_to_agent="other",
            escalate=True,
            end_invocation=True,
            compaction=Compaction(start_timestamp=1.25, end_timestamp=2.5, compacted_content=model_text("short")),
        ),
        long_running_tool_ids=["c1"],
        isolation_scope="scope",
        routes=["left"],
        requested_input=RequestInput(interrupt_id="i", message="m", response_schema={"type": "string"}, payload=[1]),
        output={"answer": 42},
        node_info=NodeInfo(path="wf@1/leaf@1", message_as_output=True, output_for=["wf@1"]),
        usage_metadata=Usage(prompt_token_count=3, total_token_count=12, traffic_type="ON_DEMAND"),
        finish_reason="STOP",
        error_code="E",
        error_message="went wrong",
        model_version="m-1",
        turn_complete=True,
        interrupted=True,
        grounding_metadata={"webSearchQueries": ["q"]},
        citation_metadata={"citations": [{"startIndex": 1}]},
        custom_metadata={"a2a:response": {"id": 1}},
        logprobs_result={"chosen": [-0.5]},
        avg_logprobs=-0.25,
        input_transcription=Transcription(text="in", finished=True),
        output_transcription=Transcription(text="out"),
        session_resumption_handle="handle",
    )


async def together(*steps: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Do all at the same time; results in order, a PolyportError in place of one that failed."""
    results: list[Any] = [None] * len(steps)

    async def one(number: int, step: Callable[[], Awaitable[Any]]) -> None:
        try:
            results[number] = await step()
        except PolyportError as error:
            results[number] = error

    async with anyio.create_task_group() as group:
        for number, step in enumerate(steps):
            group.start_soon(one, number, step)
    return results


class Suite:
    """The fixtures that a `store` fixture may ask for."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def seams(self, clock: Clock) -> Seams:
        return clock.seams()
