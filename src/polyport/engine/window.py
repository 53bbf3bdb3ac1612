"""Which events a prompt is made from: summaries instead of what they cover, and the newest ones only.

Used by `engine/contents`, before anything is made of the events. Pure; events are left as they are. `visible` says whether
the agent may see an event at all (branch and scope).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import structs

from polyport.data.content import Content
from polyport.data.event import Event, new_actions
from polyport.engine.pairing import RESERVED

Visible = Callable[[Event], bool]


class LiveRanges(NamedTuple):
    """The compactions that count, in order: both `starts` and `ends` (epoch seconds) grow. `stored` are their places among
    the events; a compaction covers only what was stored before it."""

    starts: list[float]
    ends: list[float]
    stored: list[int]


def live_ranges(events: Sequence[Event], visible: Visible) -> LiveRanges:
    """The visible compactions that are not inside another one."""
    found = [
        (c.start_timestamp, -c.end_timestamp, -at)
        for at, event in enumerate(events)
        if (c := event.actions.compaction) is not None and visible(event)
    ]
    live = LiveRanges([], [], [])
    for start, end, at in sorted(found):
        if not live.ends or -end > live.ends[-1]:
            live.starts.append(start)
            live.ends.append(-end)
            live.stored.append(-at)
    return live


def uncovered(events: list[Event], visible: Visible) -> list[Event]:
    """`events` with those that a visible compaction covers replaced by its summary (spec core 3.12).

    A range inside another one is superseded; of equal ranges the newest counts. A summary stands where the first event at
    or after its start was, else where it was stored. Its role is the user's: it is told to the model, and a prompt may begin
    with it.
    """
    ranges = live_ranges(events, visible)
    starts, ends, stored = ranges.starts, ranges.ends, ranges.stored
    if not stored:
        return events
    out: list[Event] = []
    untold = set(stored)
    passed = 0
    for at, event in enumerate(events):
        if event.actions.compaction is not None and visible(event):
            if at in untold:
                untold.remove(at)
                out.append(_summary(event))
            continue
        if event.timestamp is not None:
            time = event.timestamp.timestamp()
            while passed < len(starts) and starts[passed] <= time:
                if stored[passed] in untold:
                    untold.remove(stored[passed])
                    out.append(_summary(events[stored[passed]]))
                passed += 1
            first = bisect_left(ends, time)
            if any(starts[i] <= time and at < stored[i] for i in range(first, passed)):
                continue
        out.append(event)
    return out


def _summary(event: Event) -> Event:
    """The event that stands for a compaction. A summary is no place for calls and responses: they cannot be paired."""
    compaction = event.actions.compaction
    parts = compaction.compacted_content.parts if compaction is not None else []
    kept = [part for part in parts if part.function_call is None and part.function_response is None]
    return structs.replace(event, author="", content=Content(role="user", parts=kept), actions=new_actions())


def window_start(events: Sequence[Event], window: int, visible: Visible) -> tuple[int, bool]:
    """Where the newest `window` visible events begin, and whether a user turn or a summary begins there.

    It is moved to the first user turn or summary among them. When there is none, they are steps of one long turn: then they
    begin at a step, never at the response to a call. Looks at no more events than it must."""
    first, edge, count = -1, len(events), 0
    ranges: list[tuple[float, float]] = []
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        if event.partial or not visible(event) or _covered(event, ranges):
            continue
        compaction = event.actions.compaction
        if compaction is not None:
            ranges.append((compaction.start_timestamp, compaction.end_timestamp))
        elif not (event.content is not None and event.content.parts) and not _speech(event):
            continue
        if count >= window and (first >= 0 or (edge < len(events) and not events[edge].responses)):
            break
        count += 1
        edge = at
        if compaction is not None or opens_turn(event):
            first = at
    start = first if first >= 0 else edge
    while 0 < start < len(events) and _speech(events[start]) and _speech(events[start - 1]):
        start -= 1  # do not cut into somebody's speech
    return start, first >= 0


def _covered(event: Event, ranges: list[tuple[float, float]]) -> bool:
    if not ranges or event.timestamp is None:
        return False
    time = event.timestamp.timestamp()
    return any(start <= time <= end for start, end in ranges)


def _speech(event: Event) -> bool:
    """Whether the event is a piece of speech and nothing else."""
    if event.content is not None and event.content.parts:
        return False
    return any(s is not None and s.text for s in (event.input_transcription, event.output_transcription))


def opens_turn(event: Event) -> bool:
    """Whether a user turn starts here: the user says something that is no answer to a call."""
    if event.author != "user":
        return False
    if event.content is None or not event.content.parts:
        return event.input_transcription is not None
    return any(
        part.function_response is None
        and not part.empty
        and (part.function_call is None or part.function_call.name not in RESERVED)
        for part in event.content.parts
    )
