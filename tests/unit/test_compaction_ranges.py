"""Which part of a session a summary stands for: triggers, cuts, open calls, times (spec core 3.12, FR-130)."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from polyport.data.compaction import CompactionConfig
from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse, Part, user_text
from polyport.data.event import Compaction, Event, EventActions, RequestInput
from polyport.data.model import Usage
from polyport.engine.compaction_ranges import BLOB_CHARS, Range, pick_range, prompt_tokens
from polyport.engine.contents import build_contents
from polyport.errors import ConfigError


def history(text: str, start: int = 1) -> list[Event]:
    """Events in short, numbered from `start`: `1:hi` is said by the user in run 1, `1=hi` by the agent, `1<c` is a call with id
    c, `1<c!` a long-running one, `1<c?` one for a confirmation, `1>c` its result by the agent, `1>c!` an error, `1>>c` a result
    by the user, `1>>c+` one that is not the last. `@` sets the time, which is the number of the event otherwise; `/s` puts an
    event into scope s."""
    return [_event(word, at) for at, word in enumerate(text.split(), start)]


def _event(word: str, at: int) -> Event:
    word, _, time = word.partition("@")
    word, _, scope = word.partition("/")
    mark = next(m for m in (">>", ">", "<", "=", ":") if m in word)
    run, rest = word.split(mark, 1)
    id, flag = rest.rstrip("!?+"), rest[len(rest.rstrip("!?+")) :]
    author = "user" if mark in (":", ">>") else "a"
    if mark == "<":
        name = "adk_request_confirmation" if flag == "?" else f"tool_{id}"
        part = Part(function_call=FunctionCall(id=id, name=name, args={}))
    elif mark in (">", ">>"):
        response = {"error": "no"} if flag == "!" else {"result": "ok"}
        part = Part(
            function_response=FunctionResponse(
                id=id, name=f"tool_{id}", response=response, will_continue=True if flag == "+" else None
            )
        )
    else:
        part = Part(text=rest)
    return Event(
        id=f"e{at}",
        author=author,
        invocation_id=run,
        timestamp=datetime.fromtimestamp(float(time or at), UTC),
        isolation_scope=scope,
        content=Content(role="model" if mark in ("=", "<") else "user", parts=[part]),
        long_running_tool_ids=[id] if mark == "<" and flag else [],
    )


def ids(found: Range | None) -> str:
    """The numbers of the events that are told to the summariser."""
    return "nothing" if found is None else " ".join(e.id[1:] for e in found.events)


def summary(found: Range, text: str = "s") -> Event:
    made = Compaction(start_timestamp=found.start, end_timestamp=found.end, compacted_content=user_text(text))
    return Event(id="e0", author="c", timestamp=datetime.fromtimestamp(999, UTC), actions=EventActions(compaction=made))


def between(start: float, end: float, text: str = "s") -> Event:
    return summary(Range([], None, start, end, 0), text)


def every(interval: int, overlap: int = 0) -> CompactionConfig:
    return CompactionConfig(compaction_interval=interval, overlap_size=overlap)


def keeping(kept: int, tokens: int = 1) -> CompactionConfig:
    return CompactionConfig(token_threshold=tokens, event_retention_size=kept)


def compacted(events: list[Event], config: CompactionConfig) -> list[Event]:
    found = pick_range(events, config)
    assert found is not None
    return [*events, summary(found)]


def prompt(events: list[Event]) -> str:
    out: list[str] = []
    for content in build_contents(events, agent="a"):
        for part in content.parts:
            call, response = part.function_call, part.function_response
            out.append(f"<{call.id}" if call else f">{response.id}" if response else str(part.text))
    return " ".join(out)


# ---- the interval


def test_core_3_12_the_interval_and_its_overlap():
    events: list[Event] = []
    told: list[str] = []
    for turn in range(1, 10):
        events += [_event(f"{turn}:{turn}", 2 * turn - 1), _event(f"{turn}={turn}", 2 * turn)]
        found = pick_range(events, every(3, 1))
        if found is not None:
            told.append("".join(e.invocation_id for e in found.events if e.author == "user"))
            assert found.previous is None
            events.append(summary(found))
    assert told == ["123", "3456", "6789"]


def test_core_3_12_an_overlap_over_all_takes_the_place_of_the_old_summary():
    events = compacted(history("1:a 1=b 2:c 2=d"), every(2, 5))
    found = pick_range([*events, *history("3:e 3=f 4:g 4=h", 5)], every(2, 5))
    assert found is not None
    assert (ids(found), found.previous, found.start) == ("5 6 7 8", user_text("s"), 1.0)


def test_core_3_12_turns_of_scopes_and_pieces_do_not_count():
    events = history("1:a 1=b 2:c/s 2=d/s 3:e/s")
    events.append(replace(_event("4=f", 6), partial=True))
    assert pick_range(events, every(2)) is None
    assert ids(pick_range([*events, _event("5:g", 7)], every(2))) == "1 2 7"


# ---- the size


def test_core_3_12_the_newest_count_of_the_provider_decides():
    events = history("1:a 1=b 2:c 2=d")
    big, small = Usage(prompt_token_count=100), Usage(prompt_token_count=5)
    events[1] = replace(events[1], usage_metadata=big)
    assert prompt_tokens(events) == 100
    assert ids(pick_range(events, keeping(1, 100))) == "1 2 3"
    assert pick_range(events, keeping(1, 101)) is None
    events[3] = replace(events[3], usage_metadata=small)
    assert prompt_tokens(events) == 5


def test_core_3_12_a_count_from_before_the_summary_is_of_no_use():
    events = history("1:a 1=b")
    events[1] = replace(events[1], usage_metadata=Usage(prompt_token_count=1000))
    events = [*events, between(1, 2, "x" * 40)]
    assert prompt_tokens(events) == 10
    assert prompt_tokens([*events, _event("2:" + "y" * 20, 8)]) == 15


def test_core_3_12_without_a_count_it_is_characters_by_four():
    events = history("1:12345678 1<c 1>c")
    call, response = len("tool_c{}"), len('tool_c{"result":"ok"}')
    assert prompt_tokens(events) == (8 + call + response) // 4
    picture = Part(inline_data=Blob(mime_type="image/png", data=b"x" * 100_000))
    event = Event(author="user", content=Content(role="user", parts=[picture]))
    assert prompt_tokens([event]) == BLOB_CHARS // 4


def test_core_3_12_size_goes_before_interval():
    both = CompactionConfig(token_threshold=1, event_retention_size=3, compaction_interval=1, overlap_size=0)
    events = history("1:aaaa 1=bbbb 2:cccc 2=dddd 3:eeee 3=ffff")
    assert ids(pick_range(events, both)) == "1 2 3"
    high = CompactionConfig(token_threshold=10**6, event_retention_size=3, compaction_interval=1, overlap_size=0)
    assert ids(pick_range(events, high)) == "1 2 3 4 5 6"


def test_core_3_12_a_size_without_anything_to_summarise_leaves_it_to_the_interval():
    both = CompactionConfig(token_threshold=1, event_retention_size=50, compaction_interval=1, overlap_size=0)
    assert ids(pick_range(history("1:aaaa 1=bbbb"), both)) == "1 2"
    assert pick_range(history("1:aaaa 1=bbbb"), keeping(50)) is None
    assert pick_range([], both) is None


def test_core_3_12_the_old_summary_is_the_seed_of_the_new_one_and_is_superseded():
    first = compacted(history("1:aaaa 1=bbbb 2:cccc 2=dddd"), keeping(1))
    events = [*first, *history("3:eeee 3=ffff", 5)]
    found = pick_range(events, keeping(1))
    assert found is not None
    assert (ids(found), found.previous) == ("4 5", user_text("s"))
    assert (found.start, found.end) == (1.0, 5.0)
    assert prompt([*events, summary(found, "new")]) == "new ffff Please go on from here, following your instructions."


def test_core_3_12_nothing_new_is_no_reason_for_a_summary():
    events = compacted(history("1:aaaa 1=bbbb 2:cccc 2=dddd"), keeping(0))
    assert pick_range(events, keeping(0)) is None
    assert pick_range(events, every(1)) is None
    nothing = [Event(id="e1", author="a", invocation_id="1", timestamp=datetime.fromtimestamp(1, UTC))]
    assert pick_range(nothing, every(1)) is None, "a summary of nothing cannot be smaller"


# ---- cuts


@pytest.mark.parametrize(
    ("kept", "told"), [(0, "1 2 3 4 5 6"), (1, "1 2 3 4 5"), (2, "1 2"), (3, "1 2"), (4, "1 2"), (5, "1")]
)
def test_core_3_12_a_call_and_its_responses_are_not_parted(kept: int, told: str):
    assert ids(pick_range(history("1:a 1=b 1<c 1=d 1>c 1=e"), keeping(kept))) == told


def test_core_3_12_calls_side_by_side_go_together():
    events = history("1:a 1<c 1>c 1>d 1=e")
    assert events[1].content is not None
    parts = [*events[1].content.parts, Part(function_call=FunctionCall(id="d", name="tool_d"))]
    events[1] = replace(events[1], content=Content(role="model", parts=parts))
    assert ids(pick_range(events, keeping(2))) == "1"
    assert ids(pick_range(events, keeping(1))) == "1 2 3 4"


def test_core_3_12_calls_without_ids_are_paired_by_name():
    def bare(event: Event) -> Event:
        part = event.content.parts[0] if event.content is not None else Part()
        call, response = part.function_call, part.function_response
        if call is not None:
            part = Part(function_call=replace(call, id=""))
        elif response is not None:
            part = Part(function_response=replace(response, id=""))
        return replace(event, content=Content(role="x", parts=[part]))

    events = [bare(e) for e in history("1:a 1<c 1>c 1=e")]
    assert ids(pick_range(events, keeping(2))) == "1"


def test_core_3_12_events_of_the_same_time_are_not_parted():
    assert ids(pick_range(history("1:aa 1=bb@2 1=cc@2 1=dd@2 1=ee"), keeping(2))) == "1"
    assert ids(pick_range(history("1:aa@7 1=bb@7 1=cc@7"), keeping(1))) == "nothing"
    assert ids(pick_range(history("1:aa@7 1=bb@7 1=cc@7"), keeping(0))) == "1 2 3"


def test_core_3_12_a_clock_that_went_back_loses_nothing():
    events = history("1:a@10 1=b@11 2:c@3 2=d@4 3:e@12")
    found = pick_range(events, keeping(2))
    assert found is not None
    assert (ids(found), found.start, found.end) == ("3 4 1", 3.0, 10.0)
    assert prompt([*events, summary(found)]) == "s b e"


def test_core_3_12_events_without_a_time_stay():
    events = history("1:aa 1=bb 2:cc")
    events[1] = replace(events[1], timestamp=None)
    found = pick_range(events, keeping(0))
    assert found is not None and ids(found) == "1 3"
    assert prompt([*events, summary(found)]).startswith("s bb")


# ---- open calls


@pytest.mark.parametrize("call", ["2<c!", "2<c?", "2<adk!"])
def test_FR_130_an_open_call_stays_and_what_is_around_it_may_go(call: str):
    events = history(f"1:a 1=b 2:c {call} 3:d 3=e 4:f 4=g")
    events = compacted(events, every(3))
    assert prompt(events).startswith("s c")
    for turn in (5, 6, 7):
        events += [_event(f"{turn}:x", 10 * turn), _event(f"{turn}=y", 10 * turn + 1)]
    found = pick_range(events, every(3, 1))
    assert found is not None
    assert ids(found) == "5 6 7 8 50 51 60 61 70 71", "the second summary is of what came after"
    shown = prompt([*events, summary(found, "t")])
    assert shown.startswith("s c") and shown.endswith("t")


def test_FR_130_size_too_leaves_an_open_call():
    assert ids(pick_range(history("1:a 2:b 2<c! 3:d 3=e"), keeping(0))) == "1"
    events = [*history("1:a 2:b 2<c! 3:d 3=e"), between(1, 1)]
    assert ids(pick_range(events, keeping(0))) == "4 5"
    assert ids(pick_range(events, keeping(2))) == "nothing"


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        ("3>>c", "1 2 3 4 5"),  # by the user
        ("3>>c+", "3"),  # more is to come
        ("3>c", "3"),  # what the tool said first
        ("3>c!", "1 2 3 4 5"),  # it failed
    ],
)
def test_FR_130_a_call_is_open_until_the_user_answers(answered: str, told: str):
    assert ids(pick_range(history(f"1:a 1<c! 2:b {answered} 4:d"), every(1))) == told


def test_FR_130_a_response_behind_an_open_call_waits_with_its_own_call():
    events = history("1:a 1<c! 2:b 2<d! 3>>c 4:e 4=f")
    assert ids(pick_range(events, every(1))) == "6 7", "c cannot go, for d stands between it and its response"
    events = [*events, *history("5>>d", 8)]
    assert ids(pick_range(events, every(1))) == "1 2 3 4 5 6 7 8"


def test_FR_130_an_answered_call_is_summarised_with_what_was_already():
    events = compacted(history("1:a 1<c! 2:b 2=d 3:e 3=f"), every(2))
    assert prompt(events).startswith("a")
    events = [*events, _event("4>>c", 20), _event("4=done", 21), _event("5:g", 22)]
    found = pick_range(events, every(2))
    assert found is not None
    assert (ids(found), found.previous) == ("1 2 20 21 22", user_text("s"))
    assert prompt([*events, summary(found, "all")]) == "all"


def test_FR_130_a_workflow_that_asks_is_open():
    events = history("1:a 1=b 2:c")
    events[1] = replace(events[1], requested_input=RequestInput(interrupt_id="i"))
    assert ids(pick_range(events, every(1))) == "3"


def test_FR_130_an_orphan_call_that_waits_for_nobody_may_go():
    assert ids(pick_range(history("1:a 1<c 2:b 2=d"), every(2))) == "1 2 3 4"


# ---- settings


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({}, "token_threshold"),
        ({"token_threshold": 5}, "event_retention_size is missing"),
        ({"event_retention_size": 5}, "token_threshold is missing"),
        ({"compaction_interval": 5}, "overlap_size is missing"),
        ({"overlap_size": 0}, "compaction_interval is missing"),
        ({"token_threshold": 0, "event_retention_size": 5}, "token_threshold is 0"),
        ({"token_threshold": 5, "event_retention_size": -1}, "event_retention_size is -1"),
        ({"compaction_interval": 0, "overlap_size": 0}, "compaction_interval is 0"),
        ({"compaction_interval": 1.5, "overlap_size": 0}, "compaction_interval is 1.5"),
        ({"compaction_interval": True, "overlap_size": 0}, "compaction_interval is True"),
        ({"compaction_interval": 1, "overlap_size": -2}, "overlap_size is -2"),
        ({"compaction_interval": 1, "overlap_size": 0, "timeout_s": 0}, "timeout_s is 0"),
        ({"compaction_interval": 1, "overlap_size": 0, "summary_tokens": 0}, "summary_tokens is 0"),
        ({"compaction_interval": 1, "overlap_size": 0, "part_chars": 0}, "part_chars is 0"),
        ({"compaction_interval": 1, "overlap_size": 0, "summariser": "x"}, "summariser must be"),
        ({"compaction_interval": 1, "overlap_size": 0, "summariser": print, "model": "demo"}, "model is set beside"),
    ],
)
def test_core_3_12_settings_that_make_no_sense(fields: dict[str, Any], wrong: str):
    make: Callable[..., Any] = CompactionConfig
    with pytest.raises(ConfigError, match=wrong):
        make(**fields)


def test_core_3_12_zero_is_a_number_to_keep():
    config = CompactionConfig(token_threshold=1, event_retention_size=0, compaction_interval=1, overlap_size=0)
    assert (config.event_retention_size, config.overlap_size) == (0, 0)
