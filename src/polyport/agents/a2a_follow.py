"""Following one remote task to its end over streams that are cut, or by looking at it again and again.

Used by `a2a_client`. What comes out is one sequence without gaps and doubles, whatever came in (FR-178, T103). Holds no task
and no timer of its own between two frames.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import anyio
from msgspec import structs

from polyport.agents.a2a_door import A2ALimits, Caller
from polyport.agents.a2a_task import RemoteTask
from polyport.agents.a2a_transport import Binding
from polyport.errors import LimitExceeded, TimedOut, Unavailable
from polyport.wire import a2a
from polyport.wire.a2a_errors import InvalidAgentResponse, MethodNotFound, TaskNotFound, UnsupportedOperation

log = logging.getLogger("polyport.a2a")

_NOT_THERE = (UnsupportedOperation, MethodNotFound)
_PASSING = (Unavailable, TimedOut, LimitExceeded)
"""What may be over soon."""


async def send_once(
    binding: Binding, request: a2a.SendMessageRequest, caller: Caller, *, immediately: bool
) -> a2a.Task | a2a.Message:
    """Send a message in one request; `immediately` asks the agent not to finish its work first."""
    configuration = structs.replace(request.configuration, return_immediately=immediately)
    answer = await binding.call("SendMessage", structs.replace(request, configuration=configuration), caller)
    payload = answer.payload
    if payload is None:
        raise InvalidAgentResponse("the remote agent answered a message with neither a task nor a message")
    return payload


@dataclass(kw_only=True)
class Follow:
    """One task, or one message on its way. `until_input`: the end is also where the task asks for input."""

    binding: Binding
    caller: Caller
    limits: A2ALimits
    task: RemoteTask
    until_input: bool
    sleep: Callable[[float], Any]
    lossy: bool = False
    """Whether frames may be missing: a stream was taken up again and did not begin with a snapshot (0.3)."""

    @property
    def over(self) -> bool:
        """Whether nothing more is to be waited for. A task that waits for credentials may go on by itself."""
        asks = self.task.status.state is a2a.TaskState.INPUT_REQUIRED
        return self.task.message is not None or self.task.ended or (self.until_input and asks)

    async def send_and_stream(self, request: a2a.SendMessageRequest) -> AsyncGenerator[a2a.Payload]:
        """Send a message and stream the answer; polls when the agent has no streaming after all."""
        configuration = structs.replace(request.configuration, return_immediately=False)
        streamed = structs.replace(request, configuration=configuration)
        payloads = self._streams(self.binding.stream("SendStreamingMessage", streamed, self.caller))
        try:
            async with aclosing(payloads):
                async for payload in payloads:
                    yield payload
            return
        except _NOT_THERE as error:
            if self.task.begun:
                raise
            log.info("the remote agent does not stream, its task is polled: %s", error)
        async with aclosing(self.send_and_poll(request)) as payloads:
            async for payload in payloads:
                yield payload

    async def send_and_poll(self, request: a2a.SendMessageRequest) -> AsyncGenerator[a2a.Payload]:
        """Send a message and look at its task until it is over."""
        for payload in self.task.take(await send_once(self.binding, request, self.caller, immediately=True)):
            yield payload
        if not self.over and not self.task.waits:
            async with aclosing(self.poll(at_once=False)) as payloads:
                async for payload in payloads:
                    yield payload

    async def subscribe(self) -> AsyncGenerator[a2a.Payload]:
        """Stream what there is of a task and what comes; polls when the agent has no streaming after all."""
        async with aclosing(self._streams(self._subscription())) as payloads:
            async for payload in payloads:
                yield payload

    def _subscription(self) -> AsyncGenerator[a2a.Payload]:
        return self.binding.stream("SubscribeToTask", a2a.SubscribeToTaskRequest(id=self.task.id), self.caller)

    async def _streams(self, frames: AsyncGenerator[a2a.Payload]) -> AsyncGenerator[a2a.Payload]:
        """One stream after the other, each taking up where the last one was cut; then polling."""
        cuts = 0
        while True:
            before, again = self.task.news, bool(self.task.id)
            cut: Exception | None = None
            try:
                async with aclosing(self._stream(frames, again)) as payloads:
                    async for payload in payloads:
                        yield payload
            except _PASSING as error:
                cut = error
            except (*_NOT_THERE, TaskNotFound):
                if not again:
                    raise
                break  # it has ended in between, or streams cannot be taken up: a look will tell
            if self.over or (cut is None and self.task.waits):
                return
            if not self.task.id:
                raise cut or InvalidAgentResponse("the remote agent closed the stream without an answer")
            fruitless = again and self.task.news == before
            cuts = cuts + 1 if fruitless else 1
            if cuts > self.limits.resubscribes:
                break
            if fruitless:
                for payload in await self._glance():
                    yield payload
                if self.over:
                    return
            log.info("the stream of remote task %s was cut and is taken up again: %s", self.task.id, cut or "closed")
            await self.sleep(_pause(cuts))
            frames = self._subscription()
        async with aclosing(self.poll()) as payloads:
            async for payload in payloads:
                yield payload

    async def _stream(self, frames: AsyncGenerator[a2a.Payload], again: bool) -> AsyncGenerator[a2a.Payload]:
        """One stream, up to where it is over. `again`: it is not the first one of its task, and should begin with a
        snapshot."""
        async with aclosing(frames):
            async for payload in frames:
                if again and not isinstance(payload, a2a.Task):
                    self.lossy = True
                    for news in [] if self.task.begun else self.task.take(await self._look()):
                        yield news
                again = False
                for news in await self._taken(payload, frames):
                    yield news
                if self.over:
                    return

    async def _taken(self, payload: a2a.Payload, frames: AsyncGenerator[a2a.Payload]) -> list[a2a.Payload]:
        if isinstance(payload, a2a.Message):
            news = self.task.take(payload)
            await self._alone(frames)
            return news
        if self.lossy and _ends(payload):
            whole = await self._look()
            return [*self.task.catch_up(whole), *self.task.take(payload)]
        return self.task.take(payload)

    async def _alone(self, frames: AsyncGenerator[a2a.Payload]) -> None:
        """See that nothing comes after a message. InvalidAgentResponse when something does; a server that does not close is
        left."""
        with anyio.move_on_after(self.limits.linger_s), suppress(*_PASSING):
            async for other in frames:
                self.task.take(other)

    async def poll(self, *, at_once: bool = True) -> AsyncGenerator[a2a.Payload]:
        """Look at the task until it is over, or asks for something. Passing failures are endured a few times in a row."""
        pause, failures = self.limits.poll_s, 0
        if not at_once:
            await self.sleep(pause)
        while True:
            before = self.task.news
            try:
                found = await self._look()
            except _PASSING as error:
                failures += 1
                if failures > self.limits.poll_failures:
                    raise
                log.info("a look at remote task %s failed: %s", self.task.id, error)
            else:
                failures = 0
                for payload in self.task.catch_up(found):
                    yield payload
                if self.over or (self.task.waits and self.until_input):
                    return
            pause = self.limits.poll_s if self.task.news != before else min(pause * 1.6, self.limits.poll_max_s)
            await self.sleep(pause)

    async def _glance(self) -> list[a2a.Payload]:
        """One look between two streams: some servers break the stream of a task that has ended, instead of saying so."""
        try:
            return self.task.catch_up(await self._look())
        except _PASSING:
            return []

    async def _look(self) -> a2a.Task:
        request = a2a.GetTaskRequest(id=self.task.id, history_length=0)
        return await self.binding.call("GetTask", request, self.caller)


def _ends(payload: a2a.Payload) -> bool:
    return isinstance(payload, a2a.TaskStatusUpdateEvent) and (
        payload.status.state.terminal or payload.status.state.interrupted
    )


def _pause(cuts: int) -> float:
    """Seconds before a stream is taken up again; a first cut is no reason to wait."""
    return 0.0 if cuts <= 1 else min(0.2 * 2 ** (cuts - 1), 5.0)
