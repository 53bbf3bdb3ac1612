"""The live loop of an LLM agent: user and model talk at the same time until one of them ends it (spec core 2.4).

Called by `run_llm` when the run is live. What the client says is stored and sent on; what the model says becomes events; its
calls run beside the conversation. A connection that is lost, or that the provider is about to close, is opened again, with the
provider's handle or else with the history. Opens task groups of its own (concurrency place 4): one for the calls, one for
each connection. None is left open on any way out.
"""

import dataclasses
import logging
from contextlib import nullcontext
from typing import cast

import anyio
from msgspec import structs

from polyport.data.asking import RESERVED
from polyport.data.content import Content, Part
from polyport.data.live import LiveBlob, LiveContent, LiveInput, LiveMessage, LiveRequest
from polyport.data.model import ModelRequest
from polyport.data.run import Ending
from polyport.engine.approvals import answered_steps
from polyport.engine.contents import GO_ON
from polyport.engine.hooks import first
from polyport.engine.live_events import LiveEvents
from polyport.engine.live_link import Link
from polyport.engine.live_tools import LiveTools
from polyport.engine.prepare import make_prompt, make_request, run_request_hooks
from polyport.engine.spec import LlmSpec
from polyport.errors import AgentError, BadRequest, Conflict, ModelError, Superseded, describe
from polyport.ports.agent import Bound, CallbackContext, RunContext
from polyport.ports.live import CONNECTION_LOST, LiveConnection, LiveModel, LiveScope, live_model

log = logging.getLogger("polyport.live")

RETRY_S = (0.0, 0.5, 1.0, 2.0, 4.0)
"""How long to wait before each new connection in a row that the model has said nothing on; then the run fails."""


async def run_live(ctx: RunContext, agent: LlmSpec) -> Ending:
    """The agent's part of a live session; how it ended. AgentError for a model that is not live, for a second agent beside
    this one, and when the budget of calls is used up; ModelError when the model cannot be reached any more."""
    live, bound = ctx.scope.live, ctx.tree.bound(agent)
    assert live is not None
    if live.over:
        return "ended"
    model = live_model(bound.model)
    if model is None:
        raise AgentError(
            f"agent {agent.name!r} cannot take part in a live session: model {bound.model.name!r} is not live"
        )
    if live.speaker:
        raise AgentError(
            f"agents {live.speaker!r} and {agent.name!r} cannot take part in one live session at the same time; "
            "run one after the other"
        )
    live.speaker = agent.name
    try:
        return await LiveTurn(ctx, agent, live, dataclasses.replace(bound, output=None, model=model), model).run()
    finally:
        live.speaker = ""


class LiveTurn:
    """One agent's part of a live session."""

    def __init__(self, ctx: RunContext, agent: LlmSpec, live: LiveScope, bound: Bound, model: LiveModel) -> None:
        self.ctx = ctx
        self.agent = agent
        self.live = live
        self.bound = bound
        self.model = model
        self.link = Link()
        self.events = LiveEvents(ctx, agent)
        self.tools = LiveTools(ctx, agent, self.events, self.link, self._finish)
        self.tools.spend = self._spend
        self.ending: Ending | None = None
        self.handle = ""
        self.going_away = False
        self.lost = 0
        """How many connections in a row were lost before the model said anything."""

    async def run(self) -> Ending:
        self.box = await self.tools.collect(self.bound)
        ending: Ending = "done"
        try:
            async with anyio.create_task_group() as self.calls:
                try:
                    ending = await self._connections()
                finally:
                    self.calls.cancel_scope.cancel()
        except BaseExceptionGroup as failures:
            raise _first_error(failures) from None
        finally:
            await self.events.close()
        return ending

    # -- connections

    async def _connections(self) -> Ending:
        while self.ending is None:
            request = await self._request()
            if request is None:
                return self.ending or "done"
            self._spend()
            config = structs.replace(self.live.source.config, resumption_handle=self.handle)
            opened = self.going_away = False
            try:
                async with self.model.connect(request, config) as connection:
                    opened = True
                    await self._talk(connection)
            except ModelError as error:
                await self._again(request, error, opened)
                continue
            if self.ending is None and not self.going_away:
                self.live.over = True  # the model has hung up
                return "done"
        return self.ending

    async def _again(self, request: ModelRequest, error: ModelError, opened: bool) -> None:
        """Wait until a new connection may be tried, or give up."""
        log.warning("run %s: the connection of %s was lost: %s", self.ctx.invocation_id, self.model.name, error)
        if self.ending is not None:
            return  # there is nothing to connect for any more
        refused_handle = bool(self.handle) and not opened
        may = error.code == CONNECTION_LOST or refused_handle or self.going_away
        self.lost += 1
        if refused_handle and (error.code != CONNECTION_LOST or self.lost > 1):
            self.handle = ""  # it has expired: the history is told instead
        if not may or self.lost > len(RETRY_S):
            await self._give_up(request, error)
            return
        await anyio.sleep(RETRY_S[self.lost - 1])

    async def _give_up(self, request: ModelRequest, error: ModelError) -> None:
        """Raise, unless a callback has a last word for the user."""
        callback = CallbackContext(self.ctx, self.events.actions)
        hooks, agent = self.ctx.scope.hooks, self.agent
        mended = await first(hooks, "on_model_error", agent.on_model_error, callback, request, error)
        if mended is None:
            raise error
        await self.events.put(self.events.whole(mended))
        self.live.over = True
        self._finish("done")

    async def _request(self) -> ModelRequest | None:
        """What the next connection begins with; None when there is to be none, also because a callback has answered in the
        model's place."""
        ctx = self.ctx
        speaking = False
        if not self.handle:
            speaking = await self.events.cut_off()
            self.link.restart(len(ctx.session.events))
        request = await make_request(ctx, self.agent, self.bound, self.box, make_prompt(ctx, self.agent))
        request.response_schema = None
        request.contents = [] if self.handle else _history(request.contents, go_on=speaking)
        callback = CallbackContext(ctx, self.events.actions)
        await run_request_hooks(callback, self.box, request)
        early = await first(ctx.scope.hooks, "before_model", self.agent.before_model, callback, request)
        if early is not None:
            await self.events.put(self.events.whole(early))
            return None
        if ctx.scope.ended:
            self._finish("ended")
        return None if self.ending is not None else request

    def _spend(self) -> None:
        """Count one thing that makes the model speak though the user did not."""
        scope = self.ctx.scope
        if scope.calls_left <= 0:
            raise AgentError(
                f"the live session has used its budget of {scope.config.max_llm_calls} connections and tool results since the "
                "user spoke last (max_llm_calls); it may be going round in circles"
            )
        scope.calls_left -= 1

    def _user_spoke(self) -> None:
        self.ctx.scope.calls_left = self.ctx.scope.config.max_llm_calls or 0

    # -- one connection

    async def _talk(self, connection: LiveConnection) -> None:
        """Talk until the agent's part has ended, the model has hung up, or another connection is needed. ModelError when this
        one is lost."""
        try:
            async with anyio.create_task_group() as group:
                await self.link.open(connection, group.cancel_scope)
                group.start_soon(self._listen_to_client)
                await self._listen_to_model(connection)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as failures:
            raise _first_error(failures) from None
        finally:
            self.link.close()
        if self.link.error is not None and self.ending is None:
            raise self.link.error

    def _finish(self, ending: Ending) -> None:
        """End the agent's part."""
        self.ending = self.ending or ending
        self.link.cut()

    async def _listen_to_model(self, connection: LiveConnection) -> None:
        async for message in connection:
            self.handle = message.resumption_handle or self.handle
            self.going_away = self.going_away or message.go_away_s is not None
            if _says_something(message):
                self.lost = 0
            if message.input_transcription is not None:
                self._user_spoke()
            await self.events.take(message)
            if message.calls:
                await self.tools.begin(message.calls, self.calls)
            if message.cancelled_calls:
                self.tools.cancel(message.cancelled_calls)
            if self.ctx.scope.ended:
                self._finish("ended")
            if self.going_away and self.handle and self.events.quiet:
                return  # a good moment to change over: nobody speaks

    # -- what the client says

    async def _listen_to_client(self) -> None:
        source = self.live.source
        while True:
            said = await source.take()
            if said is None:
                self.live.over = True
                self._finish("done")
                return
            before = len(self.ctx.session.events)
            try:
                items = await self._take_in(said)
            except anyio.get_cancelled_exc_class():
                if any(e.author == "user" and not e.input_transcription for e in self.ctx.session.events[before:]):
                    self.link.keep(*self._items(said, self.ctx.scope.user_content))
                else:
                    source.put_back(said)  # whoever takes over hears it
                raise
            try:
                await self.link.send(*items)
                if isinstance(said.realtime, LiveBlob):
                    await self.events.record("user", said.realtime.blob)
            except BadRequest as error:
                await self._refuse(error)

    async def _take_in(self, said: LiveRequest) -> list[LiveInput]:
        """Make true what the client says; what the model is to get of it."""
        message: Content | None = None
        if said.content is not None or said.state_delta:
            answers = said.content is not None and bool(said.content.responses)
            try:
                # What holds answers must be the newest of the user's events when they are looked up.
                async with self.events.lock if answers else nullcontext():
                    message = await self.live.take_in(said)
                    return self._items(said, message)
            except Superseded:
                raise
            except (BadRequest, Conflict) as error:
                await self._refuse(error)
                return []
        return self._items(said, message)

    def _items(self, said: LiveRequest, message: Content | None) -> list[LiveInput]:
        """What the model gets of something that is stored as `message`. Calls that a human has decided on are carried out."""
        items: list[LiveInput] = []
        if message is not None:
            self._user_spoke()
            steps = answered_steps(self.ctx, self.agent.name) if message.responses else []
            for step in steps:
                self.tools.carry_out(step.event, step.ready, step.replies, self.calls)
            items += [self.tools.answered(r) for r in message.responses if r.name not in RESERVED]
            rest = [p for p in message.parts if p.function_response is None]
            if rest:
                items.append(LiveContent(structs.replace(message, parts=rest), said.turn_complete))
        if said.realtime is not None:
            if not isinstance(said.realtime, LiveBlob) or not self.live.source.config.input_transcription:
                self._user_spoke()
            items.append(said.realtime)
        return items

    async def _refuse(self, error: Exception) -> None:
        """Tell the client why something that it said has no effect; the session goes on."""
        said = describe(error)
        await self.live.show(self.ctx.event(error_code=said["code"], error_message=said["message"]))


def _says_something(message: LiveMessage) -> bool:
    return bool(
        message.content is not None
        or message.calls
        or message.input_transcription is not None
        or message.output_transcription is not None
        or message.turn_complete
    )


def _history(contents: list[Content], *, go_on: bool) -> list[Content]:
    """What a live model is told of the conversation: nothing that urges it to speak, unless it was cut off, and no sound, for
    its text is there."""
    told: list[Content] = []
    urged = bool(contents) and contents[-1] == GO_ON
    for content in contents[:-1] if urged and not go_on else contents:
        kept = [p for p in content.parts if not _is_sound(p)]
        if kept:
            told.append(content if len(kept) == len(content.parts) else structs.replace(content, parts=kept))
    return told


def _is_sound(part: Part) -> bool:
    return part.inline_data is not None and part.inline_data.mime_type.startswith("audio/")


def _first_error(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    found = failures.exceptions[0]
    return (
        _first_error(cast("BaseExceptionGroup[BaseException]", found))
        if isinstance(found, BaseExceptionGroup)
        else found
    )
