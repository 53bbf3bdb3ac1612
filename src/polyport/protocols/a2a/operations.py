"""The operations of A2A by the names that all bindings share (spec a2a 1.4): what they take, and who carries them out.

Read by the JSON-RPC and gRPC bindings. Holds a table.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from polyport.protocols.a2a.calls import CallContext, TaskStream
from polyport.protocols.a2a.handler import A2aHandler
from polyport.wire import a2a


class Unary(NamedTuple):
    """One request, one answer; an answer of None is an empty one."""

    takes: type[Any]
    run: Callable[[A2aHandler, CallContext, Any], Awaitable[Any]]


class Streaming(NamedTuple):
    """One request, many frames."""

    takes: type[Any]
    open: Callable[[A2aHandler, CallContext, Any], AbstractAsyncContextManager[TaskStream]]


UNARY: dict[str, Unary] = {
    "SendMessage": Unary(a2a.SendMessageRequest, A2aHandler.send),
    "GetTask": Unary(a2a.GetTaskRequest, A2aHandler.get),
    "ListTasks": Unary(a2a.ListTasksRequest, A2aHandler.list),
    "CancelTask": Unary(a2a.CancelTaskRequest, A2aHandler.cancel),
    "CreateTaskPushNotificationConfig": Unary(a2a.TaskPushNotificationConfig, A2aHandler.create_push_config),
    "GetTaskPushNotificationConfig": Unary(a2a.GetTaskPushNotificationConfigRequest, A2aHandler.get_push_config),
    "ListTaskPushNotificationConfigs": Unary(a2a.ListTaskPushNotificationConfigsRequest, A2aHandler.list_push_configs),
    "DeleteTaskPushNotificationConfig": Unary(
        a2a.DeleteTaskPushNotificationConfigRequest, A2aHandler.delete_push_config
    ),
    "GetExtendedAgentCard": Unary(a2a.GetExtendedAgentCardRequest, A2aHandler.extended_card),
}
STREAMING: dict[str, Streaming] = {
    "SendStreamingMessage": Streaming(a2a.SendMessageRequest, A2aHandler.send_stream),
    "SubscribeToTask": Streaming(a2a.SubscribeToTaskRequest, A2aHandler.subscribe),
}
