"""What a remote agent is told of a session: the answer to its question, or what is new since its last turn.

Used by `RemoteAgent` before each call (spec a2a 4, core 8.4). Other agents' words become "[name] said: ..."; their thoughts,
tool calls and results stay here (T104, FR-175). Pure: reads the events, waits for nothing.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from polyport.data.content import Content, Part
from polyport.data.event import Event
from polyport.engine.contents import LEAD
from polyport.engine.pairing import json_text
from polyport.engine.window import opens_turn, uncovered, window_start
from polyport.ports.agent import RunContext
from polyport.wire import a2a
from polyport.wire.a2a_translate import CONTEXT_ID, TASK_ID, to_a2a_parts

INPUT_ID = "a2a:input_id"
"""In the custom metadata of an event: the id of the call with which a question in plain text was put to the user. Its answer
goes back as plain text."""
_ANSWER_KEYS = ("payload", "result", "response", "answer", "text", "output")


class Draft(Struct, frozen=True):
    """Parts to send, and where they belong. Without parts there is nothing to say."""

    parts: list[a2a.Part]
    task_id: str = ""
    context_id: str = ""


def metadata_of(event: Event, key: str) -> str:
    """A text in an event's custom metadata, or ""."""
    found = (event.custom_metadata or {}).get(key)
    return found if isinstance(found, str) else ""


def draft(ctx: RunContext) -> Draft:
    """What the remote agent does not know yet. Pending answers go to the task that asked; all else begins a new task in the
    same context, but for a text that answers a question in plain text."""
    events, name = ctx.session.events, ctx.agent.name
    mine = [at for at, event in enumerate(events) if event.author == name and visible(ctx, event) and _told(event)]
    last = mine[-1] if mine else -1
    tail = [event for event in events[last + 1 :] if visible(ctx, event)]
    asked = [events[at] for at in mine if events[at].long_running_tool_ids]
    answer = _answer(asked, tail)
    if answer is not None:
        return answer
    context_id = next((found for at in reversed(mine) if (found := metadata_of(events[at], CONTEXT_ID))), "")
    parts = to_a2a_parts(_news(ctx, tail, first=last < 0))
    newest = events[last] if mine else None
    if newest is not None and metadata_of(newest, INPUT_ID):
        return Draft(parts, metadata_of(newest, TASK_ID), context_id)
    return Draft(parts, "", context_id)


def visible(ctx: RunContext, event: Event) -> bool:
    """Whether the agent may see an event: of its own isolation scope, and on its branch or above."""
    at, branch = event.branch, ctx.branch
    return event.isolation_scope == ctx.isolation_scope and (
        not at or not branch or at == branch or branch.startswith(at + ".")
    )


def _told(event: Event) -> bool:
    """Whether an event of the agent came from its remote one. One that tells of a failed call did not: what was to be sent
    is sent again."""
    said = event.custom_metadata or {}
    return TASK_ID in said or CONTEXT_ID in said


def _answer(asked: Sequence[Event], tail: Sequence[Event]) -> Draft | None:
    """The results that the user gave to the newest task that asked, with the text beside them (T102)."""
    by_call = {id: event for event in asked for id in event.long_running_tool_ids}
    found: list[a2a.Part] = []
    asker: Event | None = None
    for event in reversed(tail):
        if event.author != "user" or not any(r.id in by_call for r in event.responses):
            continue
        here = next(by_call[r.id] for r in event.responses if r.id in by_call)
        if asker is not None and metadata_of(here, TASK_ID) != metadata_of(asker, TASK_ID):
            continue
        asker = here
        found[:0] = _answer_parts(event, here)
    if asker is None:
        return None
    return Draft(found, metadata_of(asker, TASK_ID), metadata_of(asker, CONTEXT_ID))


def _answer_parts(event: Event, asker: Event) -> list[a2a.Part]:
    """The parts of a user's event that belong to one asker; the answer to a question in plain text is plain."""
    parts: list[a2a.Part] = []
    plain = metadata_of(asker, INPUT_ID)
    for part in event.content.parts if event.content is not None else ():
        response = part.function_response
        if response is None:
            parts += to_a2a_parts([part])
        elif response.id == plain:
            parts += _plain(response.response)
        elif response.id in asker.long_running_tool_ids:
            parts += to_a2a_parts([part])
    return parts


def _plain(response: dict[str, Any] | None) -> list[a2a.Part]:
    """The one value in a response, as text if it is one, else as data."""
    if not response:
        return []
    value: Any = response
    if len(response) == 1 and next(iter(response)) in _ANSWER_KEYS:
        value = next(iter(response.values()))
    return [a2a.Part(text=value) if isinstance(value, str) else a2a.Part(data=value)]


def _news(ctx: RunContext, tail: list[Event], *, first: bool) -> list[Part]:
    """The content of events that are new to the remote agent, as the user's parts."""
    parts: list[Part] = []
    if first:
        inner = ctx.scope.delegations.get(ctx.isolation_scope) if ctx.isolation_scope else None
        if inner is not None:
            parts += _own((inner.seed or inner.user_content or Content()).parts)
        tail = uncovered(tail, lambda event: visible(ctx, event))
    window = ctx.config.history_window
    if window is not None:
        start, opens = window_start(tail, window, lambda event: True)
        turn = None if opens else next((event for event in reversed(tail[:start]) if opens_turn(event)), None)
        tail = tail[start:] if turn is None else [turn, *tail[start:]]
    leading = True
    for event in tail:
        if event.content is None or event.author == ctx.agent.name:
            continue
        if event.author in ("user", ""):
            parts += _own(event.content.parts)
            leading = True
            continue
        told = _told_of(event.author, event.content.parts)
        if told and leading:
            parts.append(LEAD)
            leading = False
        parts += told
    return parts


def _own(parts: Sequence[Part]) -> list[Part]:
    """What a user said; answers to other agents' calls are none of the remote one's business."""
    return [p for p in parts if p.function_response is None and p.function_call is None and not p.thought]


def _told_of(author: str, parts: Sequence[Part]) -> list[Part]:
    """What another agent said or made, without its thoughts and the inside of its work."""
    told: list[Part] = []
    for part in parts:
        if part.thought:
            continue
        if part.text:
            told.append(Part(text=f"[{author}] said: {part.text}"))
        elif part.inline_data is not None or part.file_data is not None:
            told.append(Part(inline_data=part.inline_data, file_data=part.file_data))
    return told


def message_id(ctx: RunContext, found: Draft) -> str:
    """An id that is the same when the same run sends the same thing again after a crash, so that a server that knows it does
    not work twice (T023)."""
    seen = [event.id for event in ctx.session.events if visible(ctx, event)]
    words = [ctx.invocation_id, ctx.agent.name, ctx.branch, ctx.isolation_scope, found.task_id, *seen[-1:]]
    h = hashlib.sha256(json_text(words).encode()).hexdigest()
    return f"{h[:8]}-{h[8:12]}-8{h[13:16]}-a{h[17:20]}-{h[20:32]}"


def waiting(events: Sequence[Event], name: str) -> dict[str, list[str]]:
    """The remote tasks that wait for an answer to a question of agent `name`: task id -> ids of the open calls."""
    answered: set[str] = set()
    found: dict[str, list[str]] = {}
    for event in reversed(events):
        answered.update(r.id for r in event.responses if event.author == "user")
        task_id = metadata_of(event, TASK_ID) if event.author == name else ""
        if task_id and task_id not in found:
            found[task_id] = [id for id in event.long_running_tool_ids if id not in answered]
    return {task_id: ids for task_id, ids in found.items() if ids}
