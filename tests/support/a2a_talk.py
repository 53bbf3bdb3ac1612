"""For stories of A2A: an agent behind a handler, in memory, and a caller that reads its answers."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from polyport import App
from polyport.ports.tasks import TaskStore
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.fold import Update
from polyport.protocols.a2a.handler import A2aHandler
from polyport.protocols.a2a.settings import A2aSettings, ExecutorConfig
from polyport.protocols.parts import Parts
from polyport.seams import REAL, Seams
from polyport.stores.memory_tasks import MemoryTasks
from polyport.wire.a2a import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
)


class Caller:
    """Somebody who talks to one handler. Message ids count: m1, m2, ..."""

    def __init__(self, handler: A2aHandler, app: App, call: CallContext, parts: Parts) -> None:
        self.handler = handler
        self.parts = parts
        self.app = app
        self.call = call
        self._count = 0

    def as_(self, caller: str = "", tenant: str = "") -> "Caller":
        return Caller(self.handler, self.app, CallContext(caller=caller, tenant=tenant), self.parts)

    def request(self, said: Any = "hi", *, task: str = "", context: str = "", **more: Any) -> SendMessageRequest:
        """A request; `said` is text or parts. `id` names the message, `metadata` is the request, the rest configures."""
        self._count += 1
        parts = [Part(text=said)] if isinstance(said, str) else said
        message = Message(
            message_id=more.pop("id", f"m{self._count}"), role=Role.USER, parts=parts, task_id=task, context_id=context
        )
        metadata = more.pop("metadata", None)
        return SendMessageRequest(message=message, metadata=metadata, configuration=SendMessageConfiguration(**more))

    async def send(self, said: Any = "hi", **more: Any) -> Task:
        with anyio.fail_after(20):
            found = await self.handler.send(self.call, self.request(said, **more))
        assert found.task is not None, found
        return found.task

    async def begin(self, said: Any = "hi", **more: Any) -> Task:
        """A task that is not waited for."""
        return await self.send(said, return_immediately=True, **more)

    async def stream(self, said: Any = "hi", **more: Any) -> list[Update]:
        with anyio.fail_after(20):
            async with self.handler.send_stream(self.call, self.request(said, **more)) as stream:
                return [u async for batch in stream for u in batch]

    async def subscribed(self, task_id: str) -> list[Update]:
        """All frames of a subscription, to its end."""
        with anyio.fail_after(20):
            async with self.handler.subscribe(self.call, SubscribeToTaskRequest(id=task_id)) as stream:
                return [u async for batch in stream for u in batch]

    async def get(self, task_id: str, history_length: int | None = None) -> Task:
        return await self.handler.get(self.call, GetTaskRequest(id=task_id, history_length=history_length))

    async def cancel(self, task_id: str) -> Task:
        with anyio.fail_after(20):
            return await self.handler.cancel(self.call, CancelTaskRequest(id=task_id))

    async def until(self, task_id: str, *states: str) -> Task:
        """The task once it is in one of these states (short names)."""
        with anyio.fail_after(20):
            while short(task := await self.get(task_id)) not in states:
                await anyio.lowlevel.checkpoint()
        return task


@asynccontextmanager
async def talking(
    agent: Any,
    *,
    tasks: TaskStore | None = None,
    settings: A2aSettings | None = None,
    executor: ExecutorConfig | None = None,
    push: Any = None,
    seams: Seams = REAL,
    recover: bool = False,
    **options: Any,
) -> AsyncGenerator[Caller]:
    """The agent, served over a handler; the options are those of App."""
    mount = Mount(recover, store=tasks or MemoryTasks(), push=push, settings=settings, executor=executor)
    async with App(agent, seams=seams, protocols=[mount], **options) as app:
        yield Caller(mount.handler, app, CallContext(), mount.parts)


class Mount:
    """The handler of the first app as a protocol without routes."""

    def __init__(self, recover: bool, **options: Any) -> None:
        self._recover = recover
        self._options = options
        self.handler: A2aHandler
        self.parts: Parts

    def mount(self, parts: Parts) -> "Mount":
        self.parts = parts
        self.handler = A2aHandler(next(iter(parts.trees)), parts, **self._options)
        return self

    def routes(self) -> list[Any]:
        return []

    def around(self) -> AbstractAsyncContextManager[None]:
        return self.handler.serving()

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        if self._recover:
            await self.handler.recover()
        yield


def short(task: Any) -> str:
    """`completed` for TASK_STATE_COMPLETED; of a task, a status or a state."""
    state = getattr(getattr(task, "status", task), "state", getattr(task, "status", task))
    return str(getattr(state, "value", state)).removeprefix("TASK_STATE_").lower()


def texts(parts: Sequence[Part]) -> list[str]:
    return [p.text for p in parts if p.text is not None]


def said(task: Task) -> str:
    """All text of a task's artifacts."""
    return "".join(text for a in task.artifacts or () for text in texts(a.parts))


def asked(task: Task) -> list[Part]:
    """The parts of the status message."""
    return task.status.message.parts if task.status.message is not None else []


def line(update: Update) -> str:
    """A frame in short: `task working`, `status completed`, `artifact + text`, `preview text`, `reset`."""
    frame = update.frame
    if frame.task is not None:
        return f"task {short(frame.task)}"
    if frame.message is not None:
        return f"message {frame.message.text}"
    if frame.status_update is not None:
        return f"status {short(frame.status_update)}"
    assert frame.artifact_update is not None
    change = frame.artifact_update
    shown = "".join(p.text if p.text is not None else "{data}" for p in change.artifact.parts)
    if (change.metadata or {}).get("adk_partial"):
        return "reset" if change.last_chunk else f"preview {shown}"
    return f"artifact{' +' if change.append else ''} {shown}{' .' if change.last_chunk else ''}"


def lines(updates: Sequence[Update]) -> list[str]:
    return [line(u) for u in updates]


async def until(true: Callable[[], Any]) -> None:
    """Let the server work until something is true."""
    with anyio.fail_after(20):
        while not true():
            await anyio.lowlevel.checkpoint()


class Gate:
    """A tool that says when it has begun and ends when it is told to; remembers whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go = anyio.Event()
        self.cancelled = anyio.Event()

    async def wait(self) -> str:
        """Wait."""
        self.begun.set()
        try:
            await self.go.wait()
        except BaseException:
            self.cancelled.set()
            raise
        return "waited"
