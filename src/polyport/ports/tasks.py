"""The port of A2A tasks: an append-only log of changes for each task, and the few columns by which tasks are found.

Implemented in `stores/`, required to pass `polyport.testing.task_suite`; called by `protocols/a2a` only, which alone knows what
the bodies mean. A store never decodes a body.
"""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

ChangeKind = Literal["task", "message", "status", "artifact", "claim"]
"""What a change holds: the task as it began, a message for its history, a new status, a piece of an artifact; or nothing, but
that another process has taken the task over, which `event_id` names. Callers of A2A do not see that one."""


class TaskScope(NamedTuple):
    """Who may see a task: callers of one app in one tenant with one identity ("" is everybody that has none)."""

    app: str
    tenant: str = ""
    owner: str = ""


class TaskChange(Struct, frozen=True, kw_only=True, gc=False):
    """One step in the life of a task. `body` is JSON (a StreamResponse); `event_id` names the session event that it
    came from, so that a recovery knows what was taken over already."""

    kind: ChangeKind
    body: bytes
    event_id: str = ""


class TaskHead(Struct, frozen=True, kw_only=True):
    """What is known of a task without reading its changes. `version` counts the changes; times are epoch milliseconds;
    `run_id` is the run that works, or worked last."""

    id: str
    scope: TaskScope
    context_id: str
    state: str
    status_ms: int
    created_ms: int
    version: int = 0
    run_id: str = ""


class StoredTask(Struct, frozen=True, kw_only=True):
    """A task with its changes in order; those of kind "artifact" may have been left out."""

    head: TaskHead
    changes: list[TaskChange]


class MessageKey(NamedTuple):
    """By which a message that is sent twice is known again. `context` is what its sender said (or the context of the
    task it goes to), `digest` tells two messages apart that were given the same id by a careless sender."""

    context: str
    message_id: str
    digest: str


class TaskUpdate(Struct, frozen=True, kw_only=True):
    """An append: the changes, and the columns that change with them (None leaves a column as it is)."""

    changes: Sequence[TaskChange]
    state: str | None = None
    status_ms: int | None = None
    run_id: str | None = None
    message: MessageKey | None = None


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which tasks of a scope to list; blank is no filter, `since_ms` is inclusive."""

    context_id: str = ""
    state: str = ""
    since_ms: int | None = None


class TaskPage(Struct, frozen=True, kw_only=True):
    """Newest status first, then the youngest task. `next_token` is "" on the last page; `total` counts all matches."""

    tasks: list[StoredTask]
    next_token: str
    total: int


class TaskStore(Protocol):
    """Keeps tasks. `instant` says that `create` and `append` never wait, as in memory, so that a caller need not shield them.
    All methods may be called concurrently.

    Errors: NotFound; Conflict for a version that is not the stored one; BadRequest for a page token that `list` did not
    give; Unavailable when the storage cannot be reached.
    """

    instant: bool

    async def create(
        self, head: TaskHead, changes: Sequence[TaskChange], message: MessageKey | None = None, since_ms: int = 0
    ) -> TaskHead:
        """Store a new task with its first changes, all or nothing; its head, with the version that it has now.

        When `message` was taken in at or after `since_ms` already, in the same scope, nothing is stored and the head
        of the task that has it is returned. Conflict if the id is in use.
        """
        ...

    async def get(self, scope: TaskScope, task_id: str, *, artifacts: bool = True) -> StoredTask:
        """The task, if this scope may see it; NotFound otherwise. `artifacts` False leaves out those changes."""
        ...

    async def changes(self, scope: TaskScope, task_id: str, after: int) -> list[tuple[int, TaskChange]]:
        """The changes with a version above `after`, oldest first, each with the version it made."""
        ...

    async def append(self, scope: TaskScope, task_id: str, version: int, update: TaskUpdate) -> TaskHead:
        """Add changes to a task of which `version` is known; the new head. All or nothing, durable on return.

        The cost does not depend on how long the task is. Conflict if somebody else was faster. Without changes it only
        sets columns, and the version stays.
        """
        ...

    async def list(
        self, scope: TaskScope, filter: TaskFilter, *, page_size: int, page_token: str = "", artifacts: bool = False
    ) -> TaskPage:
        """A page of the scope's tasks. New tasks that arrive between two pages change nothing in those that follow."""
        ...

    async def find_message(self, scope: TaskScope, message: MessageKey, since_ms: int) -> str | None:
        """The id of the task that took this message in at or after `since_ms`, or None."""
        ...

    async def in_state(self, app: str, states: Collection[str]) -> Sequence[TaskHead]:
        """The tasks of an app in one of these states, of all scopes, oldest first."""
        ...

    async def forget(self, app: str, before_ms: int, states: Collection[str], limit: int = 1000) -> Sequence[TaskHead]:
        """Remove at most `limit` tasks of an app whose status is older than `before_ms` and one of `states`; those that
        were removed. What is known of their messages goes with them."""
        ...

    async def ping(self) -> None:
        """Return if the storage can be reached; Unavailable otherwise."""
        ...

    async def aclose(self) -> None: ...


class PushKey(NamedTuple):
    """A push configuration: whose task's, and its id there."""

    scope: TaskScope
    task_id: str
    id: str


class PushTarget(Struct, frozen=True, kw_only=True):
    """A push configuration as kept. `number` orders those of a task; `body` is JSON with its secrets; `sent` is the version of
    the last change of the task that its receiver has, or that was given up."""

    key: PushKey
    number: int
    body: bytes
    sent: int


class PushStore(Protocol):
    """Keeps push configurations and how far each receiver is, so that what it was not told is known after a restart. What is
    to be told are the changes of the task, which the TaskStore has.

    `durable` says whether it outlives the process, and may be shared by several. One holder at a time tells a receiver: until
    the time it named, or until it lets go. Required to pass `polyport.testing.push_suite`. Errors as those of TaskStore.
    """

    durable: bool

    async def put(self, key: PushKey, body: bytes, after: int, limit: int) -> None:
        """Store a configuration, with `sent` at `after`; one that is there gets the new body only. LimitExceeded when the task
        has `limit` others."""
        ...

    async def list(self, scope: TaskScope, task_id: str) -> Sequence[PushTarget]:
        """All of a task, in the order in which they were made."""
        ...

    async def delete(self, key: PushKey) -> None:
        """Silent if there is none."""
        ...

    async def forget(self, tasks: Sequence[TaskHead]) -> None:
        """Remove all configurations of these tasks."""
        ...

    async def hold(self, key: PushKey, holder: str, now_ms: int, until_ms: int, sent: int = 0) -> PushTarget | None:
        """Become its holder, or stay it, until `until_ms`, and note that `sent` was dealt with (it never falls); as it is then.
        None if it is gone, or held by another one at `now_ms`."""
        ...

    async def release(self, key: PushKey, holder: str, *, done: bool) -> None:
        """Let go of it; `done` when its receiver has been told all there will ever be. Silent if it is not held by `holder`."""
        ...

    async def due(self, apps: Collection[str], now_ms: int, limit: int) -> Sequence[PushKey]:
        """Configurations of these apps that nobody holds and whose receivers have not been told all. A store that is not
        durable gives none."""
        ...

    async def aclose(self) -> None: ...
