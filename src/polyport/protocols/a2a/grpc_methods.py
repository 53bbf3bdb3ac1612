"""The methods of the gRPC binding: their messages in both packages, and how a request is read (spec a2a 1.4, 2.1).

Read by `grpc`. Holds a table, and the names of resources in 0.3.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from polyport.protocols.a2a.operations import STREAMING, UNARY
from polyport.wire import a2a, a2a_proto, a2a_v03
from polyport.wire.a2a_errors import InvalidParams, Violation


class Method(NamedTuple):
    """`takes` and `gives` are names of messages in `package` (a whole name when it has a dot); `read` makes the request of 1.0
    from ProtoJSON."""

    package: str
    operation: str
    takes: str
    gives: str
    read: Callable[[str], Any]


def _v10() -> dict[str, Method]:
    found: dict[str, Method] = {}
    for operation, gives in a2a_proto.GIVES.items():
        takes = (UNARY.get(operation) or STREAMING[operation]).takes
        read = _reader(takes)
        found[f"/{a2a_proto.V10}.A2AService/{operation}"] = Method(
            a2a_proto.V10, operation, takes.__name__, gives, read
        )
    return found


def _reader(kind: type[Any]) -> Callable[[str], Any]:
    return lambda text: a2a.read(text, kind)


class _Named(msgspec.Struct, rename="camel"):
    """The requests of 0.3 that name a resource."""

    name: str = ""
    parent: str = ""
    history_length: int = 0
    page_size: int = 0
    page_token: str = ""

    @property
    def ids(self) -> tuple[str, str]:
        """Task and configuration in `tasks/{id}[/pushNotificationConfigs/{id}]`."""
        words = (self.name or self.parent).split("/")
        if (
            len(words) not in (2, 4)
            or words[0] != "tasks"
            or (len(words) == 4 and words[2] != "pushNotificationConfigs")
        ):
            where = "name" if self.name else "parent"
            raise InvalidParams([Violation(where, "must be tasks/{id} or tasks/{id}/pushNotificationConfigs/{id}")])
        return words[1], words[3] if len(words) == 4 else ""


def _named(make: Callable[[_Named], Any]) -> Callable[[str], Any]:
    return lambda text: make(msgspec.json.decode(text, type=_Named))


def _config(kind: type[Any]) -> Callable[[str], Any]:
    return _named(lambda said: kind(task_id=said.ids[0], id=said.ids[1]))


_V03: dict[str, tuple[str, str, str, Callable[[str], Any]]] = {
    "SendMessage": (
        "SendMessage",
        "SendMessageRequest",
        "SendMessageResponse",
        lambda text: a2a_v03.read_rest_send(text.encode()),
    ),
    "SendStreamingMessage": (
        "SendStreamingMessage",
        "SendMessageRequest",
        "StreamResponse",
        lambda text: a2a_v03.read_rest_send(text.encode()),
    ),
    "GetTask": (
        "GetTask",
        "GetTaskRequest",
        "Task",
        _named(lambda said: a2a.GetTaskRequest(id=said.ids[0], history_length=said.history_length or None)),
    ),
    "CancelTask": (
        "CancelTask",
        "CancelTaskRequest",
        "Task",
        _named(lambda said: a2a.CancelTaskRequest(id=said.ids[0])),
    ),
    "TaskSubscription": (
        "SubscribeToTask",
        "TaskSubscriptionRequest",
        "StreamResponse",
        _named(lambda said: a2a.SubscribeToTaskRequest(id=said.ids[0])),
    ),
    "CreateTaskPushNotificationConfig": (
        "CreateTaskPushNotificationConfig",
        "CreateTaskPushNotificationConfigRequest",
        "TaskPushNotificationConfig",
        lambda text: a2a_v03.read_rest_push(text.encode(), ""),
    ),
    "GetTaskPushNotificationConfig": (
        "GetTaskPushNotificationConfig",
        "GetTaskPushNotificationConfigRequest",
        "TaskPushNotificationConfig",
        _config(a2a.GetTaskPushNotificationConfigRequest),
    ),
    "ListTaskPushNotificationConfig": (
        "ListTaskPushNotificationConfigs",
        "ListTaskPushNotificationConfigRequest",
        "ListTaskPushNotificationConfigResponse",
        _named(
            lambda said: a2a.ListTaskPushNotificationConfigsRequest(
                task_id=said.ids[0], page_size=said.page_size, page_token=said.page_token
            )
        ),
    ),
    "DeleteTaskPushNotificationConfig": (
        "DeleteTaskPushNotificationConfig",
        "DeleteTaskPushNotificationConfigRequest",
        a2a_proto.EMPTY,
        _config(a2a.DeleteTaskPushNotificationConfigRequest),
    ),
    "GetAgentCard": (
        "GetExtendedAgentCard",
        "GetAgentCardRequest",
        "AgentCard",
        lambda text: a2a.GetExtendedAgentCardRequest(),
    ),
}

METHODS: dict[str, Method] = _v10() | {
    f"/{a2a_proto.V03}.A2AService/{name}": Method(a2a_proto.V03, *rest) for name, rest in _V03.items()
}
"""Path of a call -> what it is."""
