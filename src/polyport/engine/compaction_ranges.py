"""Which part of a session a summary is to stand for (spec core 3.12, FR-130). Pure; used by `engine/compaction`.

A compaction covers a stretch of time, so the events are looked at in order of time, and a range never parts events of the same
time: what is covered is exactly what the summariser was told. A turn is what one run did without another one in between. A turn
with an open call (long-running, confirmation, credential) stays as it is until it is answered; what is around it may go.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from polyport.data.compaction import CompactionConfig
from polyport.data.content import Content, Part
from polyport.data.event import Compaction, Event
from polyport.engine.pairing import RESERVED, json_text
from polyport.engine.window import live_ranges, uncovered

BLOB_CHARS = 1000
"""What a picture or another file counts for: about 250 tokens."""


class Range(NamedTuple):
    """`events` are to be told to the summariser, with `previous`, the summaries that the new one takes the place of. `start`
    and `end` are epoch seconds. `chars` is the size of what goes out of the prompts; the summary must be smaller."""

    events: list[Event]
    previous: Content | None
    start: float
    end: float
    chars: int


def pick_range(events: list[Event], config: CompactionConfig) -> Range | None:
    """What to summarise now, None for nothing. Size goes first; when it has found something the interval is not looked at.

    Costs O(events since the last compaction) unless something is to be done.
    """
    threshold, kept = config.token_threshold, config.event_retention_size
    if threshold is not None and kept is not None and prompt_tokens(events) >= threshold:
        timeline = Timeline(events)
        found = timeline.range(0, len(timeline.events) - 1 - kept)
        if found is not None:
            return found
    interval, overlap = config.compaction_interval, config.overlap_size
    if interval is None or overlap is None:
        return None
    newest = _since_compaction(events)
    timeline = Timeline(newest)
    if sum(not turn.open for turn in timeline.turns) < interval:
        return None
    if len(newest) < len(events):
        timeline = Timeline(events)
    new = next((at for at, turn in enumerate(timeline.turns) if timeline.raw(turn)), None)
    if new is None:
        return None
    return timeline.range(timeline.turns[max(0, new - overlap)].first, len(timeline.events) - 1)


def prompt_tokens(events: list[Event]) -> int:
    """How large prompts are by now: what the provider last counted since the last compaction, else characters / 4."""
    for event in reversed(events):
        if event.actions.compaction is not None:
            break
        usage = event.usage_metadata
        if usage is not None and usage.prompt_token_count and not event.isolation_scope:
            return usage.prompt_token_count
    shown = uncovered(events, _visible)
    return sum(chars(event.content) for event in shown if event.actions.compaction is None and _visible(event)) // 4


def chars(content: Content | None) -> int:
    """The size of a content in a prompt, in characters."""
    return sum(_part_chars(part) for part in content.parts) if content is not None else 0


def _part_chars(part: Part) -> int:
    size = len(part.text or "")
    if part.function_call is not None:
        size += len(part.function_call.name) + len(json_text(part.function_call.args))
    if part.function_response is not None:
        size += len(part.function_response.name) + len(json_text(part.function_response.response))
    if part.executable_code is not None:
        size += len(part.executable_code.code)
    if part.code_execution_result is not None:
        size += len(part.code_execution_result.output)
    if part.inline_data is not None or part.file_data is not None:
        size += BLOB_CHARS
    return size


def event_chars(event: Event) -> int:
    spoken = (event.input_transcription, event.output_transcription)
    return chars(event.content) + sum(len(s.text) for s in spoken if s is not None)


def _visible(event: Event) -> bool:
    """Summaries are for the agents outside all scopes; a scoped agent sees neither them nor what they stand for."""
    return not event.isolation_scope


def _since_compaction(events: list[Event]) -> list[Event]:
    """The events stored after the newest compaction."""
    first = len(events)
    while first > 0 and events[first - 1].actions.compaction is None:
        first -= 1
    return events[first:]


class Turn:
    """What one run did without another one in between: `first` to `last` on the timeline. `open` when it has an open call."""

    __slots__ = ("first", "last", "open", "run_id")

    def __init__(self, first: int, run_id: str) -> None:
        self.first = self.last = first
        self.run_id = run_id
        self.open = False


class _Told(NamedTuple):
    """An event on the timeline, and its place in the session."""

    time: float
    at: int
    event: Event


class Timeline:
    """The events that prompts outside all scopes show, in order of time, and what may not be cut."""

    def __init__(self, events: list[Event]) -> None:
        told = [
            _Told(e.timestamp.timestamp(), at, e)
            for at, e in enumerate(events)
            if e.timestamp is not None and not e.partial and e.actions.compaction is None and _visible(e)
        ]
        raw = {id(e) for e in uncovered(events, _visible)}
        in_time = sorted(told, key=lambda one: one.time)
        self.events = [one.event for one in in_time]
        self.times = [one.time for one in in_time]
        self._stored = [one.at for one in in_time]
        self._covered = [id(e) not in raw for e in self.events]
        self._live = _live(events)
        self.turns: list[Turn] = []
        self._turn_of: list[Turn] = []
        for at, event in enumerate(self.events):
            if not self.turns or self.turns[-1].run_id != event.invocation_id:
                self.turns.append(Turn(at, event.invocation_id))
            self.turns[-1].last = at
            self._turn_of.append(self.turns[-1])
        place = {id(one.event): at for at, one in enumerate(in_time)}
        calls = _Calls([(place[id(one.event)], one.event) for one in told])
        self._links = [(a, b) for a, b in sorted(calls.links) if not (self._covered[a] or self._covered[b])]
        self._pinned = [False] * len(self.events)
        self._pin(calls.open)

    def raw(self, turn: Turn) -> bool:
        """Whether prompts still show something of the turn as it was, and need not go on with that."""
        return any(not self._covered[at] and not self._pinned[at] for at in range(turn.first, turn.last + 1))

    def range(self, first: int, last: int) -> Range | None:
        """The first stretch between `first` and `last` that may be summarised and holds something new. It may begin earlier
        than asked, where the call of a response is; it never ends later."""
        for start, end in self._free(first, last):
            lo, hi = self._settle(max(start, first), min(end, last), start)
            if any(not self._covered[at] for at in range(lo, hi + 1)):
                return self._range(lo, hi)
        return None

    def _pin(self, waiting: Sequence[int]) -> None:
        """Keep the turns of open calls out of every range, and what cannot be summarised without them: the calls and responses
        across or to such a turn, and events of the same time."""
        for at in waiting:
            self._keep_turn(at)
            self._turn_of[at].open = True
        changed = bool(waiting)
        while changed:
            changed = False
            before = [0]  # how many of the events before each one are kept
            for kept in self._pinned:
                before.append(before[-1] + kept)
            for a, b in self._links:
                kept = before[b + 1] - before[a]
                if kept and not (self._pinned[a] and self._pinned[b]):
                    self._keep_turn(a)
                    self._keep_turn(b)
                    changed = True
            for at, (one, next_one) in enumerate(pairwise(self.times)):
                if one == next_one and self._pinned[at] != self._pinned[at + 1]:
                    self._pinned[at] = self._pinned[at + 1] = changed = True

    def _keep_turn(self, at: int) -> None:
        turn = self._turn_of[at]
        self._pinned[turn.first : turn.last + 1] = [True] * (turn.last + 1 - turn.first)

    def _free(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The stretches without anything that is kept, as far as they have something between `first` and `last`."""
        start = 0
        for at, kept in enumerate([*self._pinned, True]):
            if kept:
                if start < at and start <= last and at > first:
                    yield start, at - 1
                start = at + 1

    def _settle(self, lo: int, hi: int, least: int) -> tuple[int, int]:
        """Move the ends of a range until they cut nothing; `least` is where it may begin at the earliest. `hi < lo` is none."""
        times = self.times
        moved = True
        while moved and lo <= hi:
            moved = False
            while lo > least and times[lo - 1] == times[lo]:
                lo -= 1
            while lo <= hi < len(times) - 1 and times[hi + 1] == times[hi]:
                hi -= 1
            for a, b in self._links:
                if lo <= a <= hi < b:
                    hi, moved = a - 1, True
                elif a < lo <= b <= hi:
                    lo, moved = max(least, self._turn_of[a].first), True
        return lo, hi

    def _range(self, lo: int, hi: int) -> Range | None:
        times = self.times
        before = times[lo - 1] if lo > 0 else -inf
        after = times[hi + 1] if hi + 1 < len(times) else inf
        inside = [(c, at) for c, at in self._live if before < c.start_timestamp and c.end_timestamp < after]
        ends = [c.end_timestamp for c, _ in inside]
        told: list[Event] = []
        size = sum(chars(c.compacted_content) for c, _ in inside)
        for at in range(lo, hi + 1):
            known = bisect_left(ends, times[at])
            if known < len(inside):
                compaction, stored = inside[known]
                if compaction.start_timestamp <= times[at] and self._stored[at] < stored:
                    continue
            told.append(self.events[at])
            if not self._covered[at]:
                size += event_chars(self.events[at])
        start = min([times[lo], *(c.start_timestamp for c, _ in inside)])
        end = max([times[hi], *ends])
        within = (c for c, at in self._live if (c, at) not in inside)
        if not size or any(c.start_timestamp <= start and end <= c.end_timestamp for c in within):
            return None  # nothing to say, or superseded from the start, which a clock that went back can bring about
        parts = [part for c, _ in inside for part in c.compacted_content.parts]
        return Range(told, Content(role="user", parts=parts) if parts else None, start, end, size)


def _live(events: list[Event]) -> list[tuple[Compaction, int]]:
    """The compactions that count, in order of time, and their places in the session."""
    found = ((events[at].actions.compaction, at) for at in live_ranges(events, _visible).stored)
    return [(compaction, at) for compaction, at in found if compaction is not None]


class _Calls:
    """Calls and their responses, told in the order of storage: `links` are pairs of places that belong together, the smaller
    one first; `open` are the places of calls for whose answer somebody outside is awaited."""

    def __init__(self, told: Sequence[tuple[int, Event]]) -> None:
        self.links: set[tuple[int, int]] = set()
        self._asked: dict[str, int] = {}
        self._named: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        for at, event in told:
            self._ask(at, event)
            self._answer(at, event)
        self.open = sorted(set(self._waiting.values()))

    def _ask(self, at: int, event: Event) -> None:
        for call in event.calls:
            self._named[call.name] = at
            if call.id:
                self._asked[call.id] = at
                if event.author != "user" and (call.id in event.long_running_tool_ids or call.name in RESERVED):
                    self._waiting[call.id] = at
        if event.requested_input is not None and event.requested_input.interrupt_id:
            self._waiting.setdefault(event.requested_input.interrupt_id, at)

    def _answer(self, at: int, event: Event) -> None:
        for response in event.responses:
            asked = self._asked.get(response.id) if response.id else self._named.get(response.name)
            if asked is not None and asked != at:
                self.links.add((min(asked, at), max(asked, at)))
            failed = "error" in (response.response or {})
            if (event.author == "user" and not response.will_continue) or failed:
                self._waiting.pop(response.id, None)
