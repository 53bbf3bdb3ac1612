"""From the events of a session to the contents of one model request (spec core 3.6, 3.12).

Called by `engine/prepare` before each model call. Pure: never waits, never changes an event, never fails on odd history
but repairs it (12.22). Contents are the objects of the events wherever nothing had to change, so whoever edits a request
replaces contents and leaves their insides alone.

Decisions beyond the spec: a late response moves up to its call and leaves a short note where it came in, so that texts in
between stay and the model sees the news; ids are kept (`wire/gemini` strips made-up ones); reserved calls and answers
are dropped part by part, text beside them stays; a transfer alone is not a pivot for `include="none"`.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal

from msgspec import structs

from polyport.data.content import Content, FunctionCall, FunctionResponse, Part, user_text
from polyport.data.event import Event
from polyport.engine.pairing import RESERVED, CallIndex, Pairing, Turn, json_text, result_text
from polyport.engine.pause import records_of
from polyport.engine.window import opens_turn, uncovered, window_start

Include = Literal["default", "none"]

TRANSFER = "transfer_to_agent"
LEAD = Part(text="For your information, this is what another agent did:")
GO_ON = user_text("Please go on from here, following your instructions.")
ALONE = Part(text="Nobody will answer questions about this: finish it in one reply with what you know.")
_OPEN = Content()  # stands where responses or speech will be filled in


def build_contents(
    events: Sequence[Event],
    *,
    agent: str,
    branch: str = "",
    scope: str = "",
    include: Include = "default",
    window: int | None = None,
    user_content: Content | None = None,
    single_turn: bool = False,
) -> list[Content]:
    """The contents that `agent` sends for this history; empty when it sees nothing of it. See `Prompt`."""
    prompt = Prompt(
        agent=agent,
        branch=branch,
        scope=scope,
        include=include,
        window=window,
        user_content=user_content,
        single_turn=single_turn,
    )
    prompt.extend(events)
    return prompt.contents()


class Speech:
    """Transcriptions of one direction in a row; they become one text."""

    __slots__ = ("at", "author", "finished", "pieces", "role")

    def __init__(self, at: int, role: str, author: str) -> None:
        self.at = at
        self.role = role
        self.author = author
        self.pieces: list[str] = []
        self.finished = False

    def add(self, text: str, finished: bool) -> None:
        """Pieces are joined as they are; a new utterance is set off by a space."""
        if text:
            if self.finished and not self.pieces[-1][-1].isspace() and not text[0].isspace():
                self.pieces.append(" ")
            self.pieces.append(text)
            self.finished = False
        self.finished = self.finished or finished

    def content(self) -> Content:
        text = "".join(self.pieces)
        if self.role == "context":
            return Content(role="user", parts=[LEAD, Part(text=f"[{self.author}] said: {text}")])
        return Content(role=self.role, parts=[Part(text=text)])


class Prompt:
    """The contents of one agent's prompts while a run goes on: events in, contents out, at the cost of the new events.

    `branch` and `scope` are where the agent works; it sees events of its own branch and those above, and of exactly its
    scope. `include="none"` starts at the newest input. `window` keeps about the newest N visible events: the prompt
    starts at the first user turn among them. When there is none, they are the newest steps of a long turn, and stand behind
    what the user said at its start.

    A scoped agent's prompt starts with the arguments of the call that delegated to it, else with `user_content`;
    `single_turn` adds that nobody will reply. A partial event and one without content say nothing.
    """

    def __init__(
        self,
        *,
        agent: str,
        branch: str = "",
        scope: str = "",
        include: Include = "default",
        window: int | None = None,
        user_content: Content | None = None,
        single_turn: bool = False,
    ) -> None:
        self._agent = agent
        self._branch = branch
        self._scope = scope
        self._none = include == "none"
        self._window = window
        self._user_content = user_content
        self._single_turn = single_turn
        self.seed: Content | None = None
        """How a scoped prompt begins instead of with the call's arguments."""
        self._events: list[Event] = []
        self._turn: Event | None = None
        """The user's newest words, when the prompt has a window."""
        self._out: list[Content] = []
        self._reset()

    @cached_property
    def _index(self) -> CallIndex:
        return CallIndex(self._events)  # most prompts need none

    @property
    def seen(self) -> int:
        """How many events were taken in: `prompt.extend(session.events[prompt.seen:])` brings it up to date."""
        return len(self._events)

    def extend(self, events: Iterable[Event]) -> None:
        """Take in the next events of the session, in their order."""
        new = list(events)
        self._events += new
        if self._window is not None:
            said = (e for e in reversed(new) if not e.partial and self._visible(e) and opens_turn(e))
            self._turn = next(said, self._turn)
            return
        for event in new:
            if event.actions.compaction is not None:
                self._rebuild(self._events)
                return
        self._take(new)

    def contents(self) -> list[Content]:
        """The contents for the next model call: a new list, its last one by the user."""
        if self._window is not None:
            start, opens = window_start(self._events, self._window, self._visible)
            kept = self._events[start:]
            self._rebuild(kept if opens or self._turn is None else [self._turn, *kept])
        for at, item in self._open.items():
            self._out[at] = item.content()
        self._open.clear()
        seed = self._seed() if self._scope else None
        out = [seed, *self._out] if seed is not None else self._out.copy()
        if out and out[-1].role != "user":
            out.append(GO_ON)
        return out

    # -- taking events in

    def _reset(self) -> None:
        self._out.clear()
        self._pairs = Pairing()
        self._speech: Speech | None = None
        self._open: dict[int, Turn | Speech] = {}

    def _rebuild(self, events: list[Event]) -> None:
        self._reset()
        self._take(uncovered(events, self._visible))

    def _visible(self, event: Event) -> bool:
        at, branch = event.branch, self._branch
        return event.isolation_scope == self._scope and (
            not at or not branch or at == branch or branch.startswith(at + ".")
        )

    def _foreign(self, event: Event) -> bool:
        author = event.author
        return author != self._agent and author != "user" and author != ""

    def _take(self, events: Iterable[Event]) -> None:
        """The hot loop: plain text of this agent or the user passes as it is, all else is looked at closely."""
        agent, branch, scope, none, append = self._agent, self._branch, self._scope, self._none, self._out.append
        for event in events:
            at = event.branch
            if event.isolation_scope != scope or event.partial:
                continue
            if at and branch and at != branch and not branch.startswith(at + "."):
                continue
            content = event.content
            if content is None or not content.parts:
                self._hear(event)
                continue
            author = event.author
            if (author == agent or author == "user") and content.role:
                for part in content.parts:
                    if not part.text or part.function_call is not None or part.function_response is not None:
                        break
                else:
                    if none and author == "user":
                        self._reset()
                    append(content)
                    continue
            self._look(event, content)

    def _look(self, event: Event, content: Content) -> None:
        """One event that is not plain text of this agent or the user."""
        foreign = self._foreign(event)
        if self._none and (foreign or event.author == "user") and self._pivot(event, content, foreign):
            self._reset()
        turn: Turn | None = None
        shown: list[Part] = []
        late: list[str] = []
        for part in content.parts:
            call, response = part.function_call, part.function_response
            if response is not None:
                found = None
                if response.name not in RESERVED:
                    found = self._pairs.answer(part, response, turn, by_name=not foreign)
                if found is None:
                    shown += self._stray(event, response)
                    continue
                asked, name = found
                if asked.at >= 0:
                    self._open[asked.at] = asked
                    if self._pairs.late(asked, len(self._out)):
                        late.append(name)
            elif call is not None and not foreign and event.author != "user":
                if call.name and call.name not in RESERVED:
                    turn = turn or Turn()
                    shown.append(self._pairs.ask(turn, part, call))
            else:
                shown += _context(part, event.author) if foreign or call is not None else _own(part)
        if late:
            shown.insert(0, _late_note(late))
        if shown:
            self._show(event, content, shown, turn, LEAD if foreign and not late else None)
        else:
            self._hear(event)

    def _show(self, event: Event, content: Content, shown: list[Part], turn: Turn | None, lead: Part | None) -> None:
        """Put what is left of a content into the prompt, and room for the responses to its calls behind it."""
        out, role = self._out, content.role
        if lead is not None:
            role = "user"
            shown.insert(0, lead)
        elif turn is not None:
            role = "model"
        elif not role:
            role = "user" if event.author == "user" or content.responses else "model"
        elif content.responses:
            role = "user"
        same = role == content.role and shown == content.parts
        out.append(content if same else Content(role=role, parts=shown))
        if turn is not None:
            self._pairs.place(turn, len(out))
            self._open[len(out)] = turn
            out.append(_OPEN)

    def _stray(self, event: Event, response: FunctionResponse) -> list[Part]:
        """What is told of a response without a shown call. Nothing when the call is not for this agent's eyes."""
        found = self._index.find(response.id, event) if response.id else None
        if found is not None and found[1].name in RESERVED and event.author == "user":
            self._reopen(*found)
        if response.name in RESERVED:
            return []
        asker, name = (event if self._foreign(event) else None), response.name
        origin = "whose call is not part of this conversation"
        if found is not None:
            asker, call = found
            if call.name in RESERVED or not self._visible(asker):
                return []
            name, origin = call.name, f"called before with {json_text(call.args)}"
        if asker is not None and self._foreign(asker):
            return [Part(text=f"[{asker.author}] got from the tool `{name}`: {result_text(response)}")]
        if not response.response and not response.parts:
            return []
        return [Part(text=f"The tool `{name}`, {origin}, returned: {result_text(response)}")]

    def _reopen(self, asker: Event, request: FunctionCall) -> None:
        """A human has answered a request: that its call waits is no longer true."""
        turn = self._pairs.reopen(str(records_of(asker).get(request.id, {}).get("call", "")))
        if turn is not None and turn.at >= 0:
            self._open[turn.at] = turn

    def _pivot(self, event: Event, content: Content, foreign: bool) -> bool:
        """Whether an event by the user or another agent is new input, and not only answers to this agent's calls."""
        for part in content.parts:
            call, response = part.function_call, part.function_response
            if foreign and TRANSFER in (call.name if call else "", response.name if response else ""):
                continue
            if response is not None:
                if foreign and not self._pairs.waits(response) and self._stray(event, response):
                    return True
            elif _context(part, event.author) if foreign or call is not None else _own(part):
                return True
        return False

    def _hear(self, event: Event) -> None:
        """Transcriptions of an event without other content."""
        for spoken, role in ((event.input_transcription, "user"), (event.output_transcription, "model")):
            if spoken is None:
                continue
            author = "user" if role == "user" else event.author
            if role == "model" and self._foreign(event):
                role = "context"
            speech, at = self._speech, len(self._out)
            if speech is None or (speech.at, speech.role, speech.author) != (at - 1, role, author):
                if not spoken.text:
                    continue
                if self._none and role != "model":
                    self._reset()
                    at = 0
                speech = self._speech = Speech(at, role, author)
                self._out.append(_OPEN)
            speech.add(spoken.text, spoken.finished)
            self._open[speech.at] = speech

    # -- what the whole prompt is made of

    def _seed(self) -> Content | None:
        """What a scoped agent was asked to do (spec core 3.6.11)."""
        found = self._index.find(self._scope) if self.seed is None else None
        content = user_text(json_text(found[1].args)) if found is not None else self.seed or self._user_content
        if content is not None and self._single_turn:
            return Content(role="user", parts=[*content.parts, ALONE])
        return content


def _late_note(names: list[str]) -> Part:
    tools = ", ".join(f"`{name}`" for name in dict.fromkeys(names))
    return Part(text=f"A result of {tools} has come in since; it is shown right behind the call.")


def _own(part: Part) -> list[Part]:
    """The part when it says something to a model. A signature alone does: Gemini wants it back."""
    if (
        part.text
        or part.inline_data is not None
        or part.file_data is not None
        or part.function_call is not None
        or part.executable_code is not None
        or part.code_execution_result is not None
        or part.thought_signature is not None
        or part.tool_call is not None
        or part.tool_response is not None
    ):
        return [part]
    return []


def _context(part: Part, author: str) -> list[Part]:
    """What another agent's part is told as (spec core 3.6.5). Its thoughts, signatures and metadata stay its own."""
    call = part.function_call
    text = ""
    if part.thought or (call is not None and call.name in RESERVED):
        return []
    if part.text:
        text = f"said: {part.text}"
    elif call is not None:
        text = f"called the tool `{call.name}` with {json_text(call.args)}"
    elif part.executable_code is not None:
        text = f"wrote code: {part.executable_code.code}"
    elif part.code_execution_result is not None:
        text = f"ran code, which gave: {part.code_execution_result.output}"
    elif part.tool_call is not None:
        text = f"used a tool of its model: {json_text(part.tool_call)}"
    elif part.tool_response is not None:
        text = f"got from a tool of its model: {json_text(part.tool_response)}"
    if text:
        return [Part(text=f"[{author}] {text}")]
    if part.inline_data is None and part.file_data is None:
        return []
    bare = structs.replace(part, text=None, thought_signature=None, part_metadata=None)
    return [part if bare == part else bare]
