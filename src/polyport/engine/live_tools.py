"""Tools in a live session: each call runs beside the conversation, and its result is told when it is there.

Used by the live loop, in whose task group the calls run (spec core 2.4, 6.2). They go through the same hooks, callbacks and
approvals as all calls. A streaming tool is told of piece by piece until it ends or `stop_streaming` is called; a call that the
model cancels, or that waits for a human, is not told of at all.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.abc
from msgspec import structs

from polyport.data.asking import Reply
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part, user_text
from polyport.data.event import Event
from polyport.data.live import LiveContent, LiveInput, LiveResponses
from polyport.data.model import ToolDeclaration
from polyport.data.run import Ending
from polyport.engine.flow import FlowSpec
from polyport.engine.live_events import LiveEvents
from polyport.engine.live_link import Link, late
from polyport.engine.pairing import json_text
from polyport.engine.pause import request_events
from polyport.engine.prepare import Toolbox, collect_tools
from polyport.engine.scopes import call_event
from polyport.engine.spec import LlmSpec
from polyport.engine.tool_calls import NO_REPLIES, Done, run_calls
from polyport.ports.agent import Bound, RunContext, Tool, ToolContext

STOP_TOOL = "stop_streaming"
DONE_TOOL = "task_completed"

RUNNING = {"status": "The tool is running; what it reports will follow."}
ENDED = {"status": "The tool has ended."}
STOPPED = {"status": "The tool was stopped."}
CANCELLED = {"status": "The call was cancelled, as its result was not wanted any more."}
TALKS = {"error": "This needs more answers of the user than a live session can bring it; do without it."}


class StopTool(Tool):
    """How the model stops a streaming tool. The call itself is carried out by `LiveTools`."""

    name = STOP_TOOL
    description = "Stop a tool that is running and reports again and again."
    idempotent = True

    def __init__(self, stop: Callable[[str], bool]) -> None:
        self._stop = stop

    def declaration(self) -> ToolDeclaration:
        name = {"type": "string", "description": "The name of the tool to stop."}
        parameters = {"type": "object", "properties": {"function_name": name}, "required": ["function_name"]}
        return ToolDeclaration(name=STOP_TOOL, description=self.description, parameters=parameters)

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        name = args.get("function_name")
        if self._stop(str(name)):
            return {"status": f"Stopped {name}."}
        return {"error": f"No tool named {str(name)[:100]!r} is running."}


class DoneTool(Tool):
    """How the model says that its part of a flow is done, so that the next agent goes on."""

    name = DONE_TOOL
    description = "Say that your task is completed. Call it as soon as it is."
    idempotent = True

    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(name=DONE_TOOL, description=self.description)

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        return {"status": "Task completed."}


class Running:
    """A call at work."""

    __slots__ = ("call", "scope", "stopped", "streaming", "told")

    def __init__(self, call: FunctionCall, streaming: bool) -> None:
        self.call = call
        self.streaming = streaming
        self.scope = anyio.CancelScope()
        self.stopped: Mapping[str, Any] | None = None
        """What its response is to be, once it was stopped from outside."""
        self.told = False
        """Whether the model has got a response of it."""


class LiveTools:
    """The calls of one agent in one live session. `finish` is called when a call has ended the agent's part."""

    def __init__(
        self,
        ctx: RunContext,
        agent: LlmSpec,
        events: LiveEvents,
        link: Link,
        finish: Callable[[Ending], None],
    ) -> None:
        self._ctx = ctx
        self._agent = agent
        self._events = events
        self._link = link
        self._finish = finish
        self._running: dict[str, Running] = {}
        self._given: dict[str, str] = {}
        """Our id of a call -> the model's."""
        self._epochs: dict[str, int] = {}
        """Our id of a call -> the conversation in which the model made it, until it has got its response."""
        self._ending: Ending | None = None
        self.spend: Callable[[], None] = lambda: None
        """Counts one more answer of the model that nobody asked for."""

    async def collect(self, bound: Bound) -> Toolbox:
        """The tools of the agent for a live session."""
        ctx = self._ctx
        self.box = box = await collect_tools(ctx, self._agent, bound)
        if any(tool.streaming for tool in box.all):
            stop = StopTool(self.stop)
            if STOP_TOOL in box.by_name:
                box.by_name[STOP_TOOL] = stop  # the user's stands for ours, as in ADK
            else:
                box.add(stop)
        parent = ctx.tree.parent(self._agent)
        while parent is not None and not isinstance(parent, FlowSpec):
            parent = ctx.tree.parent(parent)
        if parent is not None and DONE_TOOL not in box.by_name:
            box.add(DoneTool())
            box.system.append(
                f"When your task is completed, call `{DONE_TOOL}` at once, so that the next agent goes on."
            )
        return box

    async def begin(self, calls: Sequence[FunctionCall], group: anyio.abc.TaskGroup) -> None:
        """Store the model's calls, and carry them out in the group."""
        own = [self._own(call) for call in calls]
        tools = self.box.by_name
        asked = await self._events.calls(own, [c.id for c in own if c.name in tools and tools[c.name].long_running])
        self.carry_out(asked, own, NO_REPLIES, group)

    def carry_out(
        self, asked: Event, calls: Sequence[FunctionCall], replies: Mapping[str, Reply], group: anyio.abc.TaskGroup
    ) -> None:
        """Carry out calls of an event; `replies` are what a human has said about them."""
        for call in calls:
            tool = self.box.by_name.get(call.name)
            self._running[call.id] = running = Running(call, tool is not None and tool.streaming)
            group.start_soon(self._run, asked, running, replies)

    def _own(self, call: FunctionCall) -> FunctionCall:
        """The call under an id that no other call of the session has."""
        given, taken = call.id, call_event(self._ctx.session.events, call.id) if call.id else None
        if not given or taken is not None or given in self._given:
            call = structs.replace(call, id="adk-" + self._ctx.scope.seams.new_id())
        self._given[call.id] = given
        self._epochs[call.id] = self._link.epoch
        return call

    def cancel(self, given: Sequence[str]) -> None:
        """Cancel calls by the model's ids: it does not want their results any more."""
        for id in [id for id in self._epochs if self._given.get(id, id) in given]:
            if id in self._running:
                self._stop(self._running[id], CANCELLED)
            else:
                del self._epochs[id]  # it waits for somebody; what comes of it will be news

    def stop(self, name: str) -> bool:
        """Stop the streaming tools of a name; whether there was one."""
        found = [r for r in self._running.values() if r.streaming and r.call.name == name]
        for running in found:
            self._stop(running, STOPPED)
        return bool(found)

    @staticmethod
    def _stop(running: Running, why: Mapping[str, Any]) -> None:
        running.stopped = why
        running.scope.cancel()

    def answered(self, response: FunctionResponse) -> LiveInput:
        """How the model is told a result that came from outside."""
        if self._epochs.pop(response.id, -1) != self._link.epoch:
            return late(response)
        return LiveResponses([structs.replace(response, id=self._given.get(response.id, response.id))])

    # -- one call

    async def _run(self, asked: Event, running: Running, replies: Mapping[str, Reply]) -> None:
        call, live = running.call, self._ctx.scope.live
        assert live is not None
        done: Done | None = None
        try:
            with running.scope:
                if running.streaming:
                    live.listeners[call.id] = partial(self._piece, running)
                    if not self.box.by_name[call.name].require_confirmation:
                        await self._told(running)
                done = await run_calls(self._ctx, self._agent, self.box, [call], replies)
            await self._after(asked, running, done)
        finally:
            live.listeners.pop(call.id, None)
            self._running.pop(call.id, None)
        self._settle()

    async def _piece(self, running: Running, piece: Any) -> None:
        """One piece of a streaming tool's result: stored, and told as words of the user (spec core 6.2)."""
        if not running.told:
            await self._told(running)
        text = piece if isinstance(piece, str) else json_text(piece)
        content = user_text(f"The tool `{running.call.name}` reports: {text}")
        at = len(self._ctx.session.events)
        await self._events.put(self._ctx.event(content=content))
        await self._link.news(LiveContent(content), at)

    async def _told(self, running: Running) -> None:
        """Say at once that a streaming tool runs, for the model may wait for it."""
        running.told = True
        await self._respond(self._event(running.call, RUNNING))

    async def _after(self, asked: Event, running: Running, done: Done | None) -> None:
        """Store what a call came to, and tell the model, unless that is not to know."""
        call = running.call
        if running.stopped is not None and (done is None or done.event is None):
            await self._events.put(self._event(call, running.stopped))
            return
        if done is None:
            return
        event = done.event
        if done.waits:
            event = self._event(call, TALKS)
        if event is None:
            return
        asks = request_events(self._ctx, asked, event.actions.requested_tool_confirmations, done.questions)
        if asks:
            await self._events.put(event, *asks)
            return
        if running.told:
            await self._streamed(event)
        elif self._leads_on(event, call.name):
            await self._events.put(event)
        else:
            await self._respond(event)

    async def _streamed(self, event: Event) -> None:
        """A streaming tool has ended. What it said is told already, but for an error."""
        responses = event.responses
        failed = bool(responses) and "error" in (responses[0].response or {})
        if responses and not failed:
            parts = [Part(function_response=structs.replace(r, response=dict(ENDED))) for r in responses]
            event = structs.replace(event, content=Content(role="user", parts=parts))
        at = len(self._ctx.session.events)
        await self._events.put(event)
        if failed:
            await self._link.news(late(responses[0]), at)

    async def _respond(self, event: Event) -> None:
        """Store responses and tell them, each once."""
        at = len(self._ctx.session.events)
        await self._events.put(event)
        for response in event.responses:
            epoch = self._epochs.pop(response.id, self._link.epoch - 1)
            self.spend()
            quiet = "SILENT" if event.actions.skip_summarization else response.scheduling
            told = structs.replace(response, id=self._given.get(response.id, response.id), scheduling=quiet)
            await self._link.respond(told, epoch, at)

    def _event(self, call: FunctionCall, response: Mapping[str, Any]) -> Event:
        made = FunctionResponse(id=call.id, name=call.name, response=dict(response))
        return self._ctx.event(content=Content(role="user", parts=[Part(function_response=made)]))

    # -- the end of the agent's part

    def _leads_on(self, event: Event, name: str) -> bool:
        """Whether the agent's part ends with this result. The model is not told of it then."""
        ctx, actions = self._ctx, event.actions
        ending: Ending | None = None
        if ctx.scope.ended or actions.end_invocation:
            ctx.scope.ended = True
            ending = "ended"
        elif actions.transfer_to_agent:
            ctx.next_agent = ctx.tree.find(actions.transfer_to_agent)
            ending = "done"
        elif actions.escalate:
            ending = "escalated"
        elif name == DONE_TOOL and "error" not in (event.responses[0].response or {}):
            ending = "done"
        self._ending = ending or self._ending
        return ending is not None

    def _settle(self) -> None:
        """End the agent's part once the calls beside the one that ended it are done (spec core 3.9)."""
        if self._ending is not None and not any(not r.streaming for r in self._running.values()):
            self._finish(self._ending)
