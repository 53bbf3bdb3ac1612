"""Whatever the history looks like, the prompt keeps the rules of the strictest provider."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from polyport import codec
from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse, Part
from polyport.data.event import Compaction, Event, EventActions
from polyport.data.model import Transcription
from polyport.engine.contents import Prompt, build_contents

IDS = st.sampled_from(["", "1", "2", "3", "1-2", "s", "adk-1", "adk-call-1"])
NAMES = st.sampled_from(["f", "f", "g", "", "transfer_to_agent", "adk_request_confirmation", "adk_request_input"])
TEXTS = st.sampled_from(["", "hi", "there", " "])

CALLS = st.builds(lambda i, n: Part(function_call=FunctionCall(id=i, name=n, args={"x": 1})), IDS, NAMES)
RESPONSES = st.builds(
    lambda i, n, r: Part(function_response=FunctionResponse(id=i, name=n, response=r)),
    IDS,
    NAMES,
    st.sampled_from([None, {}, {"result": 1}, {"error": "x"}]),
)
OTHERS = st.one_of(
    st.builds(lambda t, h: Part(text=t, thought=h), TEXTS, st.booleans()),
    st.sampled_from(
        [Part(), Part(text="", thought_signature=b"s"), Part(inline_data=Blob(mime_type="a/b", data=b"x"))]
    ),
)
PARTS = st.lists(st.one_of(CALLS, RESPONSES, OTHERS), max_size=4)
CONTENTS = st.builds(lambda p, r: Content(parts=p, role=r), PARTS, st.sampled_from(["user", "model", ""]))
SPEECH = st.builds(lambda t, f: Transcription(text=t, finished=f), TEXTS, st.booleans())
RANGES = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)
SUMMARIES = st.builds(
    lambda r, c: EventActions(
        compaction=Compaction(start_timestamp=float(r[0]), end_timestamp=float(r[1]), compacted_content=c)
    ),
    RANGES,
    CONTENTS,
)
BRANCHES = st.sampled_from(["", "", "p", "p.x", "p.xy", "q"])
SCOPES = st.sampled_from(["", "", "", "s"])


@st.composite
def events(draw: st.DrawFn, wild: bool = True) -> Event:
    compaction = wild and draw(st.integers(0, 15)) == 0
    return Event(
        author=draw(st.sampled_from(["a", "a", "user", "user", "b", ""])),
        branch=draw(BRANCHES),
        isolation_scope=draw(SCOPES),
        partial=draw(st.integers(0, 9)) == 0,
        content=draw(st.one_of(CONTENTS, CONTENTS, CONTENTS, st.none())),
        input_transcription=draw(st.one_of(st.none(), st.none(), SPEECH)),
        output_transcription=draw(st.one_of(st.none(), st.none(), SPEECH)),
        timestamp=draw(st.one_of(st.none(), st.integers(0, 30).map(lambda s: datetime.fromtimestamp(s, UTC)))),
        actions=draw(SUMMARIES) if compaction else EventActions(),
    )


HISTORIES = st.lists(events(), max_size=14)
VIEWS = st.fixed_dictionaries(
    {
        "agent": st.sampled_from(["a", "b"]),
        "branch": st.sampled_from(["", "p", "p.x"]),
        "scope": SCOPES,
        "include": st.sampled_from(["default", "none"]),
        "window": st.one_of(st.none(), st.none(), st.integers(0, 12)),
    }
)


def says_something(part: Part) -> bool:
    return bool(part.text) or Part(text=part.text, thought=part.thought, part_metadata=part.part_metadata) != part


def check(contents: list[Content]) -> None:
    ids: list[str] = []
    asked: list[FunctionCall] = []
    for content in contents:
        assert content.role
        assert content.parts
        assert all(says_something(p) for p in content.parts)
        if asked:
            assert content.role == "user"
            assert [(r.id, r.name) for r in content.responses] == [(c.id, c.name) for c in asked]
            assert len(content.parts) == len(asked)
        else:
            assert content.responses == []
        asked = content.calls
        assert content.role == "model" or not asked
        assert all(c.id and c.name and not c.name.startswith("adk_request") for c in asked)
        ids += [c.id for c in asked]
    assert asked == []
    assert len(ids) == len(set(ids))
    assert not contents or contents[-1].role == "user"


@settings(max_examples=150, deadline=None)
@given(HISTORIES, VIEWS)
def test_core_12_22_any_history_makes_a_prompt_that_a_strict_provider_takes(history: list[Event], view: dict[str, Any]):
    before = codec.encode(history)
    contents = build_contents(history, **view)
    check(contents)
    assert codec.encode(history) == before
    assert build_contents(history, **view) == contents


@settings(max_examples=150, deadline=None)
@given(HISTORIES, VIEWS, st.data())
def test_a_prompt_that_grows_equals_one_that_is_built_at_once(
    history: list[Event], view: dict[str, Any], data: st.DataObject
):
    prompt = Prompt(**view)
    while prompt.seen < len(history):
        size = data.draw(st.integers(1, 6))
        prompt.extend(history[prompt.seen : prompt.seen + size])
        if data.draw(st.booleans()):
            assert prompt.contents() == build_contents(history[: prompt.seen], **view)
    assert prompt.contents() == build_contents(history, **view)


@settings(max_examples=80, deadline=None)
@given(st.lists(events(wild=False), max_size=15), st.integers(0, 14))
def test_the_latest_result_of_every_call_is_in_the_prompt(history: list[Event], cut: int):
    """A call of the agent, then any history, then two answers: only the second stands at the call."""

    def answer(value: int) -> Event:
        part = Part(function_response=FunctionResponse(id="mine", name="h", response={"result": value}))
        return Event(author="user", content=Content(role="user", parts=[part]))

    asked = Event(
        author="a", content=Content(role="model", parts=[Part(function_call=FunctionCall(id="mine", name="h"))])
    )
    contents = build_contents([asked, *history[:cut], answer(1), *history[cut:], answer(2)], agent="a")
    check(contents)
    assert [r.response for c in contents for r in c.responses if r.id == "mine"] == [{"result": 2}]
