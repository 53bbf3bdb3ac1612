"""The operations of A2A, free of any transport (spec a2a 1.4, 1.7-1.9): what the JSON-RPC, HTTP and gRPC bindings call.

One handler serves one app; several may share a task store. A binding decodes a request, makes a CallContext, calls one method
and encodes what comes out; errors are those of `polyport.errors` and `wire.a2a_errors`. Never reads or writes bytes of a wire.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from msgspec import Struct

from polyport.ports.runs import Runs
from polyport.ports.tasks import TaskScope, TaskStore
from polyport.wire.a2a import (
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
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from polyport.wire.a2a_card import AgentCard


class CallContext(Struct, frozen=True, kw_only=True):
    """Who calls, and with which service parameters. Made by a binding.

    `caller` is the authenticated identity, "" without one. `tenant` comes from the path; one in the request counts when the
    path has none. `version` is the text of A2A-Version ("" when it was not sent), `extensions` the URIs of A2A-Extensions,
    `headers` all headers or metadata with lower-case names, for callbacks.
    """

    caller: str = ""
    tenant: str = ""
    version: str = "1.0"
    extensions: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}


class Update(Struct, frozen=True, kw_only=True):
    """One frame of a task's stream. `version` is that of the stored task after it, 0 for a frame that is not stored.

    `json` is the frame as a StreamResponse in JSON, made once for the store and all streams.
    """

    frame: StreamResponse
    json: bytes
    version: int = 0


class TaskStream(Protocol):
    """An open stream. The first frame is there already: a Task, or the only Message."""

    def batches(self) -> AsyncGenerator[Sequence[Update]]:
        """Frames in order, those together that are there together; ends where the stream ends. To be read once.

        LimitExceeded when the reader is so slow that frames are gone: it may subscribe again.
        """
        ...


class Push(Protocol):
    """Push notifications of tasks. The handler has checked that the task exists and is the caller's."""

    async def create(self, scope: TaskScope, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """Store a config, with an id of its own when it has none. BadRequest for a URL that is not allowed."""
        ...

    async def get(self, scope: TaskScope, task_id: str, config_id: str) -> TaskPushNotificationConfig:
        """TaskNotFound if there is none."""
        ...

    async def list(
        self, scope: TaskScope, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse: ...

    async def delete(self, scope: TaskScope, task_id: str, config_id: str) -> None:
        """Silent if there is none."""
        ...

    async def changed(self, scope: TaskScope, task_id: str, updates: Sequence[Update]) -> None:
        """These changes of a task are stored, and about to be published. To be noted in an outbox, never delivered here:
        the run waits. Called in order of the versions. Frames that are not stored are not told."""
        ...


class A2aHandler:
    """The eleven operations for the agent of one app.

    Enter `serving()` around `runs.serving()` (the runs must end first), then call `recover()` once.
    """

    def __init__(self, app: str, runs: Runs, store: TaskStore, *, push: Push | None = None) -> None:
        self.app = app
        self._runs = runs
        self._store = store
        self._push = push

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Take in messages inside the block. On leaving, waits until the tasks' runs have ended."""
        yield

    async def recover(self) -> int:
        """Go on with the tasks that were being worked on when the last process died, or fail them; how many there were
        (T109)."""
        raise NotImplementedError

    def admit(self, call: CallContext) -> tuple[str, ...]:
        """Check version and required extensions; the extensions to echo in A2A-Extensions. Called by every operation; a
        binding calls it for the echo. VersionNotSupported, ExtensionSupportRequired."""
        raise NotImplementedError

    async def send(self, call: CallContext, request: SendMessageRequest) -> SendMessageResponse:
        """SendMessage: waits until the task has ended or asks, unless `return_immediately` (spec a2a 1.7)."""
        raise NotImplementedError

    @asynccontextmanager
    async def send_stream(self, call: CallContext, request: SendMessageRequest) -> AsyncGenerator[TaskStream]:
        """SendStreamingMessage: `async with handler.send_stream(...) as stream`. Errors before the first frame are raised on
        entering (T043). Leaving the block early changes nothing for the task."""
        raise NotImplementedError
        yield

    async def get(self, call: CallContext, request: GetTaskRequest) -> Task:
        """GetTask. TaskNotFound also for a task of somebody else."""
        raise NotImplementedError

    async def list(self, call: CallContext, request: ListTasksRequest) -> ListTasksResponse:
        """ListTasks, only the caller's (spec a2a 1.9)."""
        raise NotImplementedError

    async def cancel(self, call: CallContext, request: CancelTaskRequest) -> Task:
        """CancelTask: the state is CANCELED when this returns, and the work has been told to stop. TaskNotCancelable."""
        raise NotImplementedError

    @asynccontextmanager
    async def subscribe(self, call: CallContext, request: SubscribeToTaskRequest) -> AsyncGenerator[TaskStream]:
        """SubscribeToTask: snapshot, then what follows, until the task has ended. UnsupportedOperation when it has already."""
        raise NotImplementedError
        yield

    async def create_push_config(
        self, call: CallContext, config: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig:
        raise NotImplementedError

    async def get_push_config(
        self, call: CallContext, request: GetTaskPushNotificationConfigRequest
    ) -> TaskPushNotificationConfig:
        raise NotImplementedError

    async def list_push_configs(
        self, call: CallContext, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        raise NotImplementedError

    async def delete_push_config(self, call: CallContext, request: DeleteTaskPushNotificationConfigRequest) -> None:
        raise NotImplementedError

    async def extended_card(self, call: CallContext, request: GetExtendedAgentCardRequest) -> AgentCard:
        """GetExtendedAgentCard, by the hook that the card's owner gave. UnsupportedOperation when the capability is off,
        ExtendedAgentCardNotConfigured when there is no card for this caller."""
        raise NotImplementedError
