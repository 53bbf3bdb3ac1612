"""Compaction of any history: what a summary stands for is what the summariser was told, and calls keep their responses."""

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from polyport.data.compaction import CompactionConfig
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part, user_text
from polyport.data.event import Compaction, Event, EventActions
from polyport.engine.compaction_ranges import Range, pick_range
from polyport.engine.contents import build_contents
from polyport.engine.context_filter import cut
from polyport.engine.window import uncovered

IDS = st.sampled_from(["1", "2", "3", "4", "5", "6"])
CALLS = st.builds(lambda i: Part(function_call=FunctionCall(id=i, name="f")), IDS)
RESPONSES = st.builds(
    lambda i, r: Part(function_response=FunctionResponse(id=i, name="f", response=r)),
    IDS,
    st.sampled_from([{"result": 1}, {"error": "x"}]),
)
TEXT = st.just(Part(text="some words"))


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Turns of one to three runs that come again, with calls that are answered near, far, or never; times that may stand still
    or go back."""
    events: list[Event] = []
    time = 100
    for at in range(draw(st.integers(0, 24))):
        time += draw(st.sampled_from([1, 1, 1, 1, 0, 2, -1, -3]))
        author = draw(st.sampled_from(["a", "a", "user"]))
        parts = draw(
            st.lists(st.one_of(TEXT, RESPONSES) if author == "user" else st.one_of(TEXT, CALLS, RESPONSES), max_size=3)
        )
        calls = [p.function_call.id for p in parts if p.function_call is not None]
        events.append(
            Event(
                id=str(at),
                author=author,
                invocation_id=draw(st.sampled_from(["r1", "r2", "r3"])),
                timestamp=datetime.fromtimestamp(time, UTC),
                isolation_scope=draw(st.sampled_from(["", "", "", "", "s"])),
                content=Content(role="user" if author == "user" else "model", parts=parts),
                long_running_tool_ids=calls if draw(st.integers(0, 3)) == 0 else [],
            )
        )
    return events


CONFIGS = st.one_of(
    st.builds(lambda k: CompactionConfig(token_threshold=1, event_retention_size=k), st.integers(0, 6)),
    st.builds(
        lambda i, o: CompactionConfig(compaction_interval=i, overlap_size=o), st.integers(1, 4), st.integers(0, 3)
    ),
)


def root(event: Event) -> bool:
    return not event.isolation_scope


def raw(events: list[Event]) -> set[str]:
    """The events that prompts show as they were; a summary has no author."""
    return {e.id for e in uncovered(events, root) if root(e) and e.author}


def stored(found: Range, number: int) -> Event:
    made = Compaction(
        start_timestamp=found.start, end_timestamp=found.end, compacted_content=user_text(f"summary{number}")
    )
    return Event(id=f"c{number}", timestamp=datetime.fromtimestamp(10**6, UTC), actions=EventActions(compaction=made))


def open_calls(events: list[Event]) -> set[str]:
    """The events with a call that waits for the user."""
    waiting: dict[str, str] = {}
    for event in filter(root, events):
        for call in event.calls:
            if call.id in event.long_running_tool_ids and event.author != "user":
                waiting[call.id] = event.id
        for response in event.responses:
            if event.author == "user" or "error" in (response.response or {}):
                waiting.pop(response.id, None)
    return set(waiting.values())


def pairs(events: list[Event]) -> set[tuple[str, str]]:
    asked: dict[str, str] = {}
    found: set[tuple[str, str]] = set()
    for event in filter(root, events):
        for call in event.calls:
            asked[call.id] = event.id
        for response in event.responses:
            if response.id in asked:
                found.add((asked[response.id], event.id))
    return found


@settings(max_examples=400)
@given(histories(), st.lists(st.tuples(st.integers(1, 8), CONFIGS), max_size=6))
def test_core_3_12_FR_130_what_goes_is_what_was_told_and_nothing_is_cut(
    events: list[Event], steps: list[tuple[int, CompactionConfig]]
):
    history: list[Event] = []
    told: set[str] = set()
    for number, (count, config) in enumerate(steps):
        history += events[:count]
        events = events[count:]
        shown = raw(history)
        found = pick_range(history, config)
        if found is None:
            continue
        assert found.start <= found.end and found.chars > 0
        told |= {e.id for e in found.events}
        history = [*history, stored(found, number)]
        now = raw(history)
        gone = shown - now
        assert gone, "a summary that stands for nothing new"
        assert gone <= told, "gone, though the summariser never saw it"
        assert not gone & open_calls(history), "an open call is gone"
        for call, response in pairs(history):
            if call in shown and response in shown:
                assert (call in gone) == (response in gone), "a call and its response are parted"


@settings(max_examples=200)
@given(histories(), CONFIGS)
def test_core_3_12_a_superseded_summary_is_told_to_the_summariser(events: list[Event], config: CompactionConfig):
    first = pick_range(events, config)
    if first is None:
        return
    history = [*events, stored(first, 1)]
    later = [
        structs.replace(e, id=f"x{e.id}", timestamp=datetime.fromtimestamp(10**4 + n, UTC))
        for n, e in enumerate(events)
    ]
    second = pick_range([*history, *later], config)
    if second is None:
        return
    prompt = build_contents([*history, *later, stored(second, 2)], agent="a")
    shown = "".join(c.text for c in prompt)
    assert "summary2" in shown
    assert ("summary1" in shown) == (second.previous is None)


@settings(max_examples=200)
@given(histories(), st.integers(1, 5))
def test_core_3_6_the_last_invocations_keep_their_calls_and_responses(events: list[Event], count: int):
    contents = build_contents(events, agent="a")
    kept = contents[cut(contents, count) :]
    assert not contents or kept
    called: list[str] = []
    for content in kept:
        called += [c.id for c in content.calls]
        assert all(r.id in called for r in content.responses)
