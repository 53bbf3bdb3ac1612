"""Tests of an app: recorded sessions that are played again, with the recorded answers in the model's place (spec rest 10.1).

So that what is tested is all but the model: instructions do not matter, tools, flow and callbacks do. `record` plays the user's
words to the real model and gives the session to be stored. Used by the tests routes and the command line.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Struct, structs

from polyport import codec
from polyport.codec import Data, encode
from polyport.data.content import Content, Part
from polyport.data.event import Event
from polyport.data.model import ModelRequest, ModelResponse
from polyport.data.session import Session, SessionKey
from polyport.engine.prepare import RESULT_TOOL
from polyport.errors import AgentError, BadRequest
from polyport.evals.cases import ASKING, EvalCase, SessionInput
from polyport.evals.playing import Meter, Subject, apart, play
from polyport.evals.recording import turns_of
from polyport.ports.agent import CallbackContext, ReadContext
from polyport.ports.plugin import CallNext, Plugin
from polyport.wire.adk import encode_event


class Recorded(Data, frozen=True, kw_only=True):
    """A session as a test file has it."""

    user_id: str = "user"
    events: list[Event] = []


class TestOutcome(NamedTuple):
    """`status` is PASSED, FAILED or SKIPPED; `why` are lines that say what is different."""

    __test__ = False  # it is no test class, whatever pytest makes of its name

    name: str
    status: str
    why: list[str]


class _Spotter:
    """Tells the answers of models among events that come in order: what agents said with the role of a model, but for what
    the engine wrote itself."""

    def __init__(self) -> None:
        self._typed: set[str] = set()

    def is_answer(self, event: Event) -> bool:
        if event.content is None or event.author == "user" or event.partial:
            return False
        if any(response.name == RESULT_TOOL for response in event.responses):
            self._typed.add(event.author)  # the text that follows is the result, spelled by the engine
            return False
        if event.content.role != "model" or any(call.name in ASKING for call in event.calls):
            return False
        if event.author in self._typed and not event.calls:
            self._typed.discard(event.author)
            return False
        return True


class Playback(Plugin):
    """Answers in the model's place what was recorded: as the nth answer of an agent what then became its nth, whoever gave it
    (a callback may have). No model is asked."""

    name = "eval_playback"

    def __init__(self, events: Sequence[Event]) -> None:
        self._answers: dict[str, list[Content]] = {}
        self._given: Counter[str] = Counter()
        self._spotter = _Spotter()
        recorded = _Spotter()
        for event in events:
            if recorded.is_answer(event) and event.content is not None:
                self._answers.setdefault(event.author, []).append(event.content)

    async def on_event(self, ctx: ReadContext, event: Event) -> None:
        if self._spotter.is_answer(event):
            self._given[event.author] += 1

    async def around_model(self, ctx: CallbackContext, request: ModelRequest, call_next: CallNext) -> ModelResponse:
        answers, at = self._answers.get(ctx.agent_name, []), self._given[ctx.agent_name]
        if at >= len(answers):
            raise AgentError(f"agent {ctx.agent_name!r} asked its model once more than it did when this was recorded")
        return ModelResponse(content=answers[at], finish_reason="STOP")


async def run_test(subject: Subject, app: str, name: str, stored: dict[str, Any]) -> TestOutcome:
    """Play a recorded session again and compare, agent by agent, what was said, called and answered."""
    try:
        recorded = _read(stored)
    except BadRequest as error:
        return TestOutcome(name, "FAILED", [f"this is not a session: {error}"])
    case = _case(name, app, recorded)
    if not case.conversation:
        return TestOutcome(name, "SKIPPED", ["there is no message of a user in it"])
    meter = Meter(subject.seams)
    async with apart(subject, Playback(recorded.events), meter) as runs:
        played = await play(runs, app, case, meter, subject.seams)
    why = _differences(recorded.events, played.session.events)
    if played.error:
        why.insert(0, played.error)
    return TestOutcome(name, "FAILED" if why else "PASSED", why)


async def record(subject: Subject, app: str, name: str, stored: dict[str, Any]) -> dict[str, Any]:
    """The session that the words of a recorded user give now, with the real model, as a test file has it: ids are counted
    and there are no times, so that files can be compared. BadRequest for what is no session; AgentError when a run fails."""
    case = _case(name, app, _read(stored))
    meter = Meter(subject.seams)
    async with apart(subject, meter) as runs:
        played = await play(runs, app, case, meter, subject.seams)
    if played.error:
        raise AgentError(f"{name} could not be recorded: {played.error}")
    return {
        "appName": app,
        "events": _counted(played.session.events),
        "id": stored.get("id") or name,
        "state": msgspec.json.decode(encode(played.session.state)),
        "userId": played.user,
    }


def _read(stored: dict[str, Any]) -> Recorded:
    return codec.convert(stored, Recorded, unknown="drop")


def _case(name: str, app: str, recorded: Recorded) -> EvalCase:
    session = Session(key=SessionKey(app, recorded.user_id, name), events=recorded.events)
    return EvalCase(
        eval_id=name,
        conversation=turns_of(session),
        session_input=SessionInput(app_name=app, user_id=recorded.user_id),
    )


# ---- comparing


class _Said(Struct, frozen=True):
    """One step of an agent, without what is different each time."""

    text: str
    calls: list[tuple[str, Any]]
    responses: list[tuple[str, Any]]
    other: list[Part]

    def __str__(self) -> str:
        calls = [f"calls {name}({_sorted(args)})" for name, args in self.calls]
        responses = [f"{name} gave {_sorted(result)}" for name, result in self.responses]
        rest = [f"{len(self.other)} other parts"] if self.other else []
        return ", ".join([*calls, *responses, *([repr(self.text)] if self.text else []), *rest]) or "nothing"


def _differences(recorded: Sequence[Event], played: Sequence[Event]) -> list[str]:
    want, have = _by_author(recorded), _by_author(played)
    lines: list[str] = []
    for author in [*want, *(name for name in have if name not in want)]:
        one, other = want.get(author, []), have.get(author, [])
        for step in range(max(len(one), len(other))):
            before = one[step] if step < len(one) else None
            now = other[step] if step < len(other) else None
            if before != now:
                lines.append(f"{author}, step {step + 1}: recorded {before or 'no step'}; now {now or 'no step'}")
                break  # what follows is different because of it
    return lines


def _by_author(events: Sequence[Event]) -> dict[str, list[_Said]]:
    found: dict[str, list[_Said]] = {}
    for event in events:
        if event.author != "user" and event.content is not None and not event.partial:
            found.setdefault(event.author, []).append(_said(event.content))
    return found


def _said(content: Content) -> _Said:
    asks = {call.name for call in content.calls} & ASKING
    return _Said(
        text=_text(content.text),
        calls=[(call.name, None if asks else call.args) for call in content.calls],  # what is asked names ids
        responses=[(response.name, response.response) for response in content.responses],
        other=[
            structs.replace(part, thought_signature=None)
            for part in content.parts
            if part.text is None and part.function_call is None and part.function_response is None
        ],
    )


def _sorted(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _text(text: str) -> str:
    """The text; JSON without its spaces and the order of its keys, which test files do not keep."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return _sorted(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return text


# ---- writing


def _without_times(event: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in event.items() if name not in ("timestamp", "usageMetadata") and value is not None
    }


def _counted(events: Sequence[Event]) -> list[Any]:
    """The events as REST shows them, all ids of events, runs and calls counted from 1, wherever they stand as a whole."""
    names: dict[str, str] = {}
    counts = {"e": 0, "i": 0, "fc": 0}

    def name(id: str, kind: str) -> None:
        if id and id not in names:
            counts[kind] += 1
            names[id] = f"{kind}-{counts[kind]}"

    for event in events:
        name(event.id, "e")
        name(event.invocation_id, "i")
        for call in event.calls:
            name(call.id, "fc")
    return [_renamed(_without_times(msgspec.json.decode(encode_event(event))), names) for event in events]


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_renamed(item, names) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(item, names) for key, item in cast("dict[str, Any]", value).items()}
    return value
