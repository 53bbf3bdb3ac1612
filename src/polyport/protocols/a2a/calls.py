"""What surrounds an operation: who calls, how a stream is read, and who delivers push notifications.

Made by the bindings, used by the handler, the executor and their callbacks. Holds no behaviour.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from msgspec import Struct

from polyport.ports.tasks import TaskHead, TaskScope
from polyport.protocols.a2a.fold import Update
from polyport.wire.a2a import (
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)


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


class TaskStream(Protocol):
    """An open stream. The first frame is there already: a Task, or the only Message. `last` says whether the batch that was
    given is the last one. Iterated once, it gives frames in order, those together that are there together.

    LimitExceeded when the reader is so slow that frames are gone: it may subscribe again.
    """

    last: bool

    def nudge(self) -> None:
        """Have it give an empty batch if it waits for something to happen, or does so next."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Sequence[Update]: ...


class Push(Protocol):
    """Push notifications of tasks. The handler has checked that the task exists and is the caller's."""

    async def create(
        self, scope: TaskScope, config: TaskPushNotificationConfig, after: int = 0
    ) -> TaskPushNotificationConfig:
        """Store a config, with an id of its own when it has none; it is told the changes of its task after version `after`.
        BadRequest for a URL that is not allowed, LimitExceeded."""
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

    async def forget(self, tasks: Sequence[TaskHead]) -> None:
        """These tasks are gone after their retention time, and so are their configs (T065)."""
        ...
