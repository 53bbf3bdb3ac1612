"""The operations of A2A, free of any transport (spec a2a 1.4, 1.7-1.9): what the JSON-RPC, HTTP and gRPC bindings call.

One handler serves one app; several may share a task store. A binding decodes a request, makes a CallContext, calls one method
and encodes what comes out; errors are those of `polyport.errors` and `wire.a2a_errors`. Never reads or writes bytes of a wire.
"""

import unicodedata
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from msgspec import structs

from polyport.engine.hooks import ask
from polyport.errors import BadRequest, NotFound
from polyport.ports.tasks import TaskFilter, TaskHead, TaskScope, TaskStore
from polyport.protocols.a2a.calls import CallContext, Push, TaskStream
from polyport.protocols.a2a.executor import Executor
from polyport.protocols.a2a.fold import Update, ms_of, view_of
from polyport.protocols.a2a.intake import Intake
from polyport.protocols.a2a.recovery import Recovery
from polyport.protocols.a2a.registry import Tasks, task_not_found
from polyport.protocols.a2a.settings import A2aSettings, ExecutorConfig
from polyport.protocols.a2a.streams import Following, OneMessage
from polyport.protocols.a2a.tasks import Backing, LiveTask, NewStatus, StateChanged
from polyport.protocols.a2a.turns import Turn
from polyport.protocols.parts import Parts
from polyport.wire.a2a import (
    INTERRUPTED,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SendMessageResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    reply,
)
from polyport.wire.a2a_card import AgentCard
from polyport.wire.a2a_check import check, read_version, refused
from polyport.wire.a2a_errors import (
    ContentTypeNotSupported,
    ExtendedAgentCardNotConfigured,
    ExtensionSupportRequired,
    InvalidParams,
    PushNotificationNotSupported,
    TaskNotCancelable,
    UnsupportedOperation,
    VersionNotSupported,
    Violation,
)

__all__ = ["A2aHandler", "CallContext", "Push", "TaskStream", "Update"]

PAGE_SIZE = 50


class A2aHandler:
    """The eleven operations for the agent of one app.

    Enter `serving()` around `runs.serving()` (the runs must end first), then call `recover()` once.
    """

    def __init__(
        self,
        app: str,
        parts: Parts,
        store: TaskStore,
        *,
        push: Push | None = None,
        settings: A2aSettings | None = None,
        executor: ExecutorConfig | None = None,
    ) -> None:
        seams = parts.seams
        self.app = app
        self.settings = settings or A2aSettings()
        self.extended_card_hook: Callable[[CallContext], Any] | None = None
        """Set by whoever makes the card: `(call)` -> the AgentCard for this caller, None for none. Without it the capability
        is off."""
        self._push = push
        self._store = store
        self._tasks = Tasks(Backing(store, seams, push, self.settings.feed_items, parts.peers))
        self._executor = Executor(app, parts, executor or ExecutorConfig())
        self._intake = Intake(self._tasks, self._executor, self.settings, seams)
        self.recovery = Recovery(self._intake, self._executor, resume=self.settings.resume)

    # ---- life

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Take in messages inside the block. On leaving, waits until the tasks' runs have ended."""
        async with self._intake.serving():
            yield

    async def recover(self) -> int:
        """Go on with the tasks that no process works on, for the last one died, or fail them; how many there were (T109).
        Only for a store that no process works on now which is not one of our replicas."""
        return await self.recovery.recover()

    async def sweep(self) -> int:
        """Remove tasks whose retention time is over; how many. Happens by itself while messages come."""
        return await self._intake.sweep()

    # ---- who calls

    def admit(self, call: CallContext) -> tuple[str, ...]:
        """Check version, required extensions and tenant; the extensions to echo in A2A-Extensions. Called by every operation; a
        binding calls it for the echo. VersionNotSupported, ExtensionSupportRequired, NotFound for an unknown tenant."""
        settings = self.settings
        if call.version or settings.strict_version:
            version = call.version
            if version not in settings.versions and (version := read_version(version)) not in settings.versions:
                served = ", ".join(settings.versions)
                raise VersionNotSupported(f"A2A {version} is not served here; served are: {served}")
        missing = [uri for uri in settings.required_extensions if uri not in call.extensions]
        if missing:
            raise ExtensionSupportRequired(f"the A2A-Extensions of a call must have: {', '.join(missing)}")
        if settings.tenants is not None and call.tenant and call.tenant not in settings.tenants:
            raise NotFound(f"there is no tenant {call.tenant[:100]!r}")
        known = {*settings.required_extensions, *settings.extensions}
        return tuple(uri for uri in call.extensions if uri in known)

    def _admitted(self, call: CallContext, tenant: str) -> tuple[CallContext, TaskScope]:
        if tenant and not call.tenant:
            call = structs.replace(call, tenant=tenant)
        self.admit(call)
        return call, TaskScope(self.app, call.tenant, call.caller)

    # ---- messages

    async def send(self, call: CallContext, request: SendMessageRequest) -> SendMessageResponse:
        """SendMessage: waits until the task has ended or asks, unless `return_immediately` (spec a2a 1.7)."""
        call, scope = self._message(call, request)
        direct = await self._intake.direct_reply(call, request)
        if direct is not None:
            return reply(direct)
        at_once = request.configuration.return_immediately
        live, turn = await self._intake.accept(call, scope, request, streaming=at_once)
        try:
            if turn is not None and not at_once:
                await self._over(live, turn)
            return reply(live.view.snapshot(request.configuration.history_length))
        finally:
            self._tasks.release(live)

    async def _over(self, live: LiveTask, turn: Turn) -> None:
        await turn.over()
        if live.broken is not None and turn.ended_at is None:
            raise live.broken

    @asynccontextmanager
    async def send_stream(self, call: CallContext, request: SendMessageRequest) -> AsyncGenerator[TaskStream]:
        """SendStreamingMessage: `async with handler.send_stream(...) as stream`. Errors before the first frame are raised on
        entering (T043). Leaving the block early changes nothing for the task."""
        self._streams()
        call, scope = self._message(call, request)
        direct = await self._intake.direct_reply(call, request)
        if direct is not None:
            yield OneMessage(direct)
            return
        live, turn = await self._intake.accept(call, scope, request, streaming=True)
        stream = Following(live, turn=turn, history_length=request.configuration.history_length)
        try:
            yield stream
        finally:
            stream.close()
            self._tasks.release(live)

    def _message(self, call: CallContext, request: SendMessageRequest) -> tuple[CallContext, TaskScope]:
        """Check a message before anything is done with it."""
        call, scope = self._admitted(call, request.tenant)
        check(request)
        message, settings = request.message, self.settings
        wrong = [
            Violation(f"message.{name}", f"must be at most {settings.id_chars} characters without control characters")
            for name, value in (("messageId", message.message_id), ("contextId", message.context_id))
            if len(value) > settings.id_chars or not _clean(value)
        ]
        if wrong:
            raise InvalidParams(wrong)
        kinds = refused(message, settings.input_modes) if settings.input_modes else []
        if kinds:
            raise ContentTypeNotSupported(
                f"media type {kinds[0]!r} is not accepted; accepted are: {', '.join(settings.input_modes)}"
            )
        if request.configuration.task_push_notification_config is not None:
            self._pushes()
        self._intake.group()
        return call, scope

    def _streams(self) -> None:
        if not self.settings.streaming:
            raise UnsupportedOperation("this agent does not stream")

    # ---- tasks

    async def get(self, call: CallContext, request: GetTaskRequest) -> Task:
        """GetTask. TaskNotFound also for a task of somebody else."""
        _, scope = self._admitted(call, request.tenant)
        check(request)
        return (await self._tasks.newest(scope, request.id)).snapshot(request.history_length)

    async def list(self, call: CallContext, request: ListTasksRequest) -> ListTasksResponse:
        """ListTasks, only the caller's (spec a2a 1.9)."""
        _, scope = self._admitted(call, request.tenant)
        check(request)
        state = request.status if request.status is not TaskState.UNSPECIFIED else None
        asked = TaskFilter(
            context_id=request.context_id,
            state=state.value if state is not None else "",
            since_ms=ms_of(request.status_timestamp_after, up=True) if request.status_timestamp_after else None,
        )
        size = request.page_size or PAGE_SIZE
        shown = bool(request.include_artifacts)
        try:
            page = await self._store.list(scope, asked, page_size=size, page_token=request.page_token, artifacts=shown)
        except BadRequest as error:
            raise InvalidParams([Violation("pageToken", str(error).removeprefix("pageToken "))]) from None
        tasks = [view_of(stored).snapshot(request.history_length, artifacts=shown) for stored in page.tasks]
        return ListTasksResponse(tasks=tasks, next_page_token=page.next_token, page_size=size, total_size=page.total)

    async def cancel(self, call: CallContext, request: CancelTaskRequest) -> Task:
        """CancelTask: the state is CANCELED when this returns, and the work has been told to stop. TaskNotCancelable."""
        call, scope = self._admitted(call, request.tenant)
        check(request)
        async with self._tasks.holding(scope, request.id) as live:
            was = live.state
            try:
                await live.write(NewStatus(state=TaskState.CANCELED))
            except StateChanged:
                if live.state is TaskState.CANCELED and self.settings.cancel_twice:
                    return live.view.snapshot()
                raise TaskNotCancelable(f"task {live.id!r} has ended ({live.state})", {"taskId": live.id}) from None
            if live.turns or was not in INTERRUPTED:
                await self._executor.stop(live, self.settings.cancel_wait_s)
            else:
                with anyio.move_on_after(self.settings.cancel_wait_s):
                    await self._executor.cleanup(live, call)
            return live.view.snapshot()

    @asynccontextmanager
    async def subscribe(self, call: CallContext, request: SubscribeToTaskRequest) -> AsyncGenerator[TaskStream]:
        """SubscribeToTask: snapshot, then what follows, until the task has ended. UnsupportedOperation when it has already."""
        self._streams()
        _, scope = self._admitted(call, request.tenant)
        check(request)
        async with self._tasks.holding(scope, request.id) as live:
            if live.state.terminal:
                raise UnsupportedOperation(f"task {live.id!r} has ended ({live.state})", {"taskId": live.id})
            self._intake.follow(live)
            stream = Following(live, to_end=True)
            try:
                yield stream
            finally:
                stream.close()

    # ---- push notifications

    def _pushes(self) -> Push:
        if self._push is None:
            raise PushNotificationNotSupported("this agent does not send push notifications")
        return self._push

    async def _task_of(self, call: CallContext, tenant: str, task_id: str) -> TaskHead:
        """The head of a task that the caller may see. TaskNotFound."""
        _, scope = self._admitted(call, tenant)
        try:
            return (await self._store.get(scope, task_id, artifacts=False)).head
        except NotFound:
            raise task_not_found(task_id) from None

    async def create_push_config(
        self, call: CallContext, config: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig:
        """CreateTaskPushNotificationConfig. PushNotificationNotSupported, TaskNotFound, BadRequest for the URL."""
        push = self._pushes()
        check(config)
        head = await self._task_of(call, config.tenant, config.task_id)
        return await push.create(head.scope, config, head.version)

    async def get_push_config(
        self, call: CallContext, request: GetTaskPushNotificationConfigRequest
    ) -> TaskPushNotificationConfig:
        """GetTaskPushNotificationConfig. TaskNotFound also for an unknown config (T060)."""
        push = self._pushes()
        check(request)
        head = await self._task_of(call, request.tenant, request.task_id)
        return await push.get(head.scope, request.task_id, request.id)

    async def list_push_configs(
        self, call: CallContext, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        """ListTaskPushNotificationConfigs."""
        push = self._pushes()
        check(request)
        return await push.list((await self._task_of(call, request.tenant, request.task_id)).scope, request)

    async def delete_push_config(self, call: CallContext, request: DeleteTaskPushNotificationConfigRequest) -> None:
        """DeleteTaskPushNotificationConfig; silent when there is no such config."""
        push = self._pushes()
        check(request)
        head = await self._task_of(call, request.tenant, request.task_id)
        await push.delete(head.scope, request.task_id, request.id)

    # ---- the card

    async def extended_card(self, call: CallContext, request: GetExtendedAgentCardRequest) -> AgentCard:
        """GetExtendedAgentCard, by the hook that the card's owner gave. UnsupportedOperation when the capability is off,
        ExtendedAgentCardNotConfigured when there is no card for this caller."""
        call, _ = self._admitted(call, request.tenant)
        if self.extended_card_hook is None:
            raise UnsupportedOperation("this agent has no extended card")
        card = await ask(self.extended_card_hook, call)
        if not isinstance(card, AgentCard):
            raise ExtendedAgentCardNotConfigured("there is no extended card for this caller")
        return card


def _clean(text: str) -> bool:
    return text.isprintable() or not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)
