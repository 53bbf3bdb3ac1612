"""The A2A 1.0 vocabulary: tasks, messages, events and requests as Structs, in ProtoJSON (spec a2a 1.1).

Used by the A2A handler, its bindings and clients. Written in camelCase without unset members; `read` takes camelCase and
snake_case, both base64 alphabets, and ignores unknown members. Where presence means something, "unset" has a value of its
own: None, or UNSET for `Part.data`. Cards are in `wire/a2a_card.py`, checks in `wire/a2a_check.py`. Pure.
"""

from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, field

from polyport import codec
from polyport.codec import Data
from polyport.errors import BadRequest

T = TypeVar("T")


class TaskState(StrEnum):
    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"

    @property
    def terminal(self) -> bool:
        """Whether nothing can happen to such a task any more."""
        return self in TERMINAL

    @property
    def interrupted(self) -> bool:
        """Whether such a task waits for its caller."""
        return self in INTERRUPTED


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


class Role(StrEnum):
    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


def _text() -> str:
    return ""  # a factory of our own makes msgspec write the member even when it is empty: required members are always there


def _list() -> list[Any]:
    return []


def _number() -> int:
    return 0


class Part(Data, frozen=True, kw_only=True):
    """Exactly one of text, raw, url and data is set in a valid part. `data` is any JSON value, None (null) included;
    UNSET is "no data"."""

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Any = UNSET
    metadata: dict[str, Any] | None = None
    filename: str = ""
    media_type: str = ""

    @property
    def kinds(self) -> list[str]:
        """The content members that are set: one name in a valid part."""
        found = [n for n in ("text", "raw", "url") if getattr(self, n) is not None]
        return found if self.data is UNSET else [*found, "data"]


class Message(Data, frozen=True, kw_only=True):
    """`message_id`, `role` and `parts` are required; one that lacks them is readable, and refused by `a2a_check`."""

    message_id: str = field(default_factory=_text)
    context_id: str = ""
    task_id: str = ""
    role: Role = field(default_factory=lambda: Role.UNSPECIFIED)
    parts: list[Part] = field(default_factory=_list)
    metadata: dict[str, Any] | None = None
    extensions: list[str] = []
    reference_task_ids: list[str] = []

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(p.text for p in self.parts if p.text)


class Artifact(Data, frozen=True, kw_only=True):
    artifact_id: str
    name: str = ""
    description: str = ""
    parts: list[Part] = field(default_factory=_list)
    metadata: dict[str, Any] | None = None
    extensions: list[str] = []


class TaskStatus(Data, frozen=True, kw_only=True):
    """`timestamp` is RFC 3339 text in UTC with milliseconds, or empty: see `time_text` and `read_time`."""

    state: TaskState
    message: Message | None = None
    timestamp: str = ""


class Task(Data, frozen=True, kw_only=True):
    """`artifacts` None is "not shown" (no member on the wire); an empty list is written."""

    id: str
    context_id: str = ""
    status: TaskStatus
    artifacts: list[Artifact] | None = None
    history: list[Message] = []
    metadata: dict[str, Any] | None = None


class TaskStatusUpdateEvent(Data, frozen=True, kw_only=True):
    task_id: str
    context_id: str = field(default_factory=_text)
    status: TaskStatus
    metadata: dict[str, Any] | None = None


class TaskArtifactUpdateEvent(Data, frozen=True, kw_only=True):
    """`append` False creates or replaces the artifact, True adds parts to it; `last_chunk` closes it."""

    task_id: str
    context_id: str = field(default_factory=_text)
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


Payload = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""What one frame of a stream carries."""


class StreamResponse(Data, frozen=True, kw_only=True):
    """Exactly one member is set."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None

    @property
    def payload(self) -> Payload | None:
        """The member that is set; None in a frame from a newer version."""
        for value in (self.task, self.message, self.status_update, self.artifact_update):
            if value is not None:
                return value
        return None


class SendMessageResponse(Data, frozen=True, kw_only=True):
    """Exactly one member is set."""

    task: Task | None = None
    message: Message | None = None

    @property
    def payload(self) -> Task | Message | None:
        return self.message if self.task is None else self.task


class AuthenticationInfo(Data, frozen=True, kw_only=True):
    scheme: str = field(default_factory=_text)
    credentials: str = ""


class TaskPushNotificationConfig(Data, frozen=True, kw_only=True):
    tenant: str = ""
    id: str = ""
    task_id: str = ""
    url: str = field(default_factory=_text)
    token: str = ""
    authentication: AuthenticationInfo | None = None


class SendMessageConfiguration(Data, frozen=True, kw_only=True):
    """`history_length` None is "as the server likes", 0 is "no history"."""

    accepted_output_modes: list[str] = []
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: int | None = None
    return_immediately: bool = False


NO_MESSAGE = Message()
NO_CONFIGURATION = SendMessageConfiguration()


class SendMessageRequest(Data, frozen=True, kw_only=True):
    tenant: str = ""
    message: Message = NO_MESSAGE
    configuration: SendMessageConfiguration = NO_CONFIGURATION
    metadata: dict[str, Any] | None = None


class GetTaskRequest(Data, frozen=True, kw_only=True):
    tenant: str = ""
    id: str = field(default_factory=_text)
    history_length: int | None = None


class ListTasksRequest(Data, frozen=True, kw_only=True):
    """`status` UNSPECIFIED is no filter, like None. `status_timestamp_after` is RFC 3339 text, see `read_time`."""

    tenant: str = ""
    context_id: str = ""
    status: TaskState | None = None
    page_size: int | None = None
    page_token: str = ""
    history_length: int | None = None
    status_timestamp_after: str = ""
    include_artifacts: bool | None = None


class ListTasksResponse(Data, frozen=True, kw_only=True):
    """All members are always written."""

    tasks: list[Task] = field(default_factory=_list)
    next_page_token: str = field(default_factory=_text)
    page_size: int = field(default_factory=_number)
    total_size: int = field(default_factory=_number)


class CancelTaskRequest(Data, frozen=True, kw_only=True):
    tenant: str = ""
    id: str = field(default_factory=_text)
    metadata: dict[str, Any] | None = None


class SubscribeToTaskRequest(Data, frozen=True, kw_only=True):
    tenant: str = ""
    id: str = field(default_factory=_text)


class GetTaskPushNotificationConfigRequest(Data, frozen=True, kw_only=True):
    tenant: str = ""
    task_id: str = field(default_factory=_text)
    id: str = field(default_factory=_text)


class DeleteTaskPushNotificationConfigRequest(Data, frozen=True, kw_only=True):
    tenant: str = ""
    task_id: str = field(default_factory=_text)
    id: str = field(default_factory=_text)


class ListTaskPushNotificationConfigsRequest(Data, frozen=True, kw_only=True):
    task_id: str = field(default_factory=_text)
    page_size: int = 0
    page_token: str = ""
    tenant: str = ""


class ListTaskPushNotificationConfigsResponse(Data, frozen=True, kw_only=True):
    configs: list[TaskPushNotificationConfig] = field(default_factory=_list)
    next_page_token: str = ""


class GetExtendedAgentCardRequest(Data, frozen=True, kw_only=True):
    tenant: str = ""


def read(body: bytes | str, kind: type[T]) -> T:
    """JSON text as a `kind`, read by the rules above. BadRequest names the wrong member; an unknown enum text is one."""
    return codec.decode(body, kind, unknown="drop")


def read_plain(raw: Any, kind: type[T]) -> T:
    """Plain data (already parsed JSON) as a `kind`; as `read`."""
    return codec.convert(raw, kind, unknown="drop")


def time_text(ms: int) -> str:
    """Epoch milliseconds as RFC 3339 in UTC: `2026-01-31T08:00:00.123Z`."""
    second, rest = divmod(ms, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=4)
def _second(at: int) -> str:
    """The text of a second. Many statuses have the same one, and making it costs ten times as much as looking it up."""
    return datetime.fromtimestamp(at, UTC).isoformat()[:19]


def read_time(text: str, where: str) -> datetime:
    """RFC 3339 text with any offset as aware UTC, to the microsecond. BadRequest names `where`."""
    try:
        at = msgspec.convert(text, datetime)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        pass
    raise BadRequest(f"{where} is not an RFC 3339 time with an offset, such as 2026-01-31T08:00:00.000Z", where)


def new_status(state: TaskState, ms: int, message: Message | None = None) -> TaskStatus:
    """A status as of these epoch milliseconds."""
    return TaskStatus(state=state, message=message, timestamp=time_text(ms))


def frame(payload: Payload) -> StreamResponse:
    """`payload` as a frame of a stream."""
    if isinstance(payload, Task):
        return StreamResponse(task=payload)
    if isinstance(payload, Message):
        return StreamResponse(message=payload)
    if isinstance(payload, TaskStatusUpdateEvent):
        return StreamResponse(status_update=payload)
    return StreamResponse(artifact_update=payload)


def reply(payload: Task | Message) -> SendMessageResponse:
    """`payload` as the answer to SendMessage."""
    return SendMessageResponse(task=payload) if isinstance(payload, Task) else SendMessageResponse(message=payload)
