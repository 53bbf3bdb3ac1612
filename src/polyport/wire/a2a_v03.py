"""A2A 0.3 at the edge: its methods, params, results and errors to and from those of 1.0 (spec a2a 2.1, 2.2).

Used by the bindings, which know only 1.0 behind this module, and by clients of 0.3 servers. JSON-RPC: `read_params`, `result`,
`event`, `error_object`; REST under /v1: `read_rest_*`, `rest_*`; clients: `call`, `read_answer`, `read_event`. Cards are in
`wire/a2a_v03_card.py`. Pure.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from polyport import codec
from polyport.errors import BadRequest
from polyport.wire import a2a, a2a_v03_read, a2a_v03_write
from polyport.wire.a2a_errors import (
    InvalidAgentResponse,
    InvalidParams,
    TaskNotFound,
    UnsupportedOperation,
    Violation,
    jsonrpc_error,
    rest_error,
    row,
)
from polyport.wire.a2a_v03_card import read_card, union_card

METHODS = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
"""0.3 method -> operation of 1.0. No name is in both versions."""
_NAMES = {
    "INVALID_ARGUMENT": "InvalidParamsError",
    "PARSE_ERROR": "JSONParseError",
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": "AuthenticatedExtendedCardNotConfiguredError",
}
_METHOD_OF = {operation: method for method, operation in METHODS.items()}

Request = (
    a2a.SendMessageRequest
    | a2a.GetTaskRequest
    | a2a.CancelTaskRequest
    | a2a.SubscribeToTaskRequest
    | a2a.TaskPushNotificationConfig
    | a2a.GetTaskPushNotificationConfigRequest
    | a2a.ListTaskPushNotificationConfigsRequest
    | a2a.DeleteTaskPushNotificationConfigRequest
    | a2a.GetExtendedAgentCardRequest
)


class _IdParams(codec.Data, frozen=True, kw_only=True):
    id: str = ""
    history_length: int | None = None
    push_notification_config_id: str = ""
    metadata: dict[str, Any] | None = None


def _plain(body: bytes | str) -> Any:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"malformed JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidParams([Violation("params", "must be an object")])
    return cast("Any", found)


def read_params(method: str, params: bytes | str) -> tuple[str, Request]:
    """The operation of 1.0 and its request for a 0.3 call; `method` is in METHODS. BadRequest for wrong params.

    tasks/pushNotificationConfig/get without a configuration's id is a ListTaskPushNotificationConfigs: `result` takes the
    first.
    """
    operation = METHODS[method]
    plain = _plain(params)
    if operation in ("SendMessage", "SendStreamingMessage"):
        return operation, a2a_v03_read.send_request(plain)
    if operation == "CreateTaskPushNotificationConfig":
        return operation, a2a_v03_read.push_config(plain)
    if operation == "GetExtendedAgentCard":
        return operation, a2a.GetExtendedAgentCardRequest()
    said = a2a.read_plain(plain, _IdParams)
    if not said.id:
        raise InvalidParams([Violation("id", "is required")])
    match operation:
        case "GetTask":
            return operation, a2a.GetTaskRequest(id=said.id, history_length=said.history_length)
        case "CancelTask":
            return operation, a2a.CancelTaskRequest(id=said.id, metadata=said.metadata)
        case "SubscribeToTask":
            return operation, a2a.SubscribeToTaskRequest(id=said.id)
        case "GetTaskPushNotificationConfig" if said.push_notification_config_id:
            one = a2a.GetTaskPushNotificationConfigRequest(task_id=said.id, id=said.push_notification_config_id)
            return operation, one
        case "DeleteTaskPushNotificationConfig":
            gone = a2a.DeleteTaskPushNotificationConfigRequest(task_id=said.id, id=said.push_notification_config_id)
            return operation, gone
        case _:
            return "ListTaskPushNotificationConfigs", a2a.ListTaskPushNotificationConfigsRequest(task_id=said.id)


def result(method: str, value: Any, proto: bool = False) -> Any:
    """What 1.0's handler gave, as 0.3's result: bare, with `kind`; None (null) for a delete."""
    match value:
        case a2a.SendMessageResponse():
            payload = value.payload
            return {} if payload is None else _bare(payload, proto)
        case a2a.Task() | a2a.Message():
            return _bare(value, proto)
        case a2a.TaskPushNotificationConfig():
            return a2a_v03_write.push_config(value, proto)
        case a2a.ListTaskPushNotificationConfigsResponse():
            configs = [a2a_v03_write.push_config(config, proto) for config in value.configs]
            if method != "tasks/pushNotificationConfig/get":
                return {"configs": configs} if proto else configs
            if not configs:
                raise TaskNotFound("the task has no push notification configuration")
            return configs[0]
        case None:
            return {} if proto else None
        case _:
            return union_card(value)


def _bare(value: a2a.Task | a2a.Message, proto: bool) -> dict[str, Any]:
    return a2a_v03_write.task(value, proto) if isinstance(value, a2a.Task) else a2a_v03_write.message(value, proto)


def event(payload: a2a.Payload, *, final: bool | None = None) -> dict[str, Any]:
    """One frame's result. A status update is final when it is terminal or input-required, unless `final` says otherwise: a
    subscription that stays open says False, for 0.3 clients leave at the first final one."""
    return a2a_v03_write.event(payload, final=final)


def error_object(error: BaseException) -> dict[str, Any]:
    """The `error` member of a 0.3 response: codes that 0.3 does not know become -32600."""
    found = jsonrpc_error(error)
    return found | {"code": -32600} if found["code"] in (-32008, -32009) else found


def read_rest_send(body: bytes) -> a2a.SendMessageRequest:
    """The body of /v1/message:send and :stream; the form of JSON-RPC is taken as well."""
    return a2a_v03_read.send_request(_plain(body), proto=True)


def read_rest_push(body: bytes, task_id: str) -> a2a.TaskPushNotificationConfig:
    """The body of POST /v1/tasks/{id}/pushNotificationConfigs."""
    return a2a_v03_read.push_config(_plain(body), task_id)


def rest_result(value: Any) -> Any:
    """An answer of REST: a send is wrapped as `{"task"}` or `{"message"}`, all else is bare; a delete is `{}`."""
    if isinstance(value, a2a.SendMessageResponse):
        return {} if value.payload is None else a2a_v03_write.event(value.payload, proto=True)
    return result("", value, proto=True)


def rest_event(payload: a2a.Payload, *, final: bool | None = None) -> dict[str, Any]:
    """One frame of a REST stream; `final` as in `event`."""
    return a2a_v03_write.event(payload, proto=True, final=final)


def rest_error_body(error: BaseException, codes: str) -> tuple[int, dict[str, Any]]:
    """HTTP status and body: 1.0's, with `type` and `message` at the top as 0.3 clients read them."""
    status, body = rest_error(error, codes)
    reason = row(error).reason
    name = _NAMES.get(reason) or "".join(word.capitalize() for word in reason.split("_")) + "Error"
    return status, body | {"type": name, "message": body["error"]["message"]}


def call(operation: str, request: Any) -> tuple[str, dict[str, Any]]:
    """Method and params for a 0.3 server. UnsupportedOperation for what 0.3 does not have."""
    method = _METHOD_OF.get(operation)
    if method is None:
        raise UnsupportedOperation(f"the remote agent speaks A2A 0.3, which has no {operation}")
    match request:
        case a2a.SendMessageRequest():
            return method, a2a_v03_write.send_params(request)
        case a2a.TaskPushNotificationConfig():
            return method, a2a_v03_write.push_config(request)
        case a2a.GetTaskPushNotificationConfigRequest() | a2a.DeleteTaskPushNotificationConfigRequest():
            params = {"id": request.task_id, "pushNotificationConfigId": request.id}
        case a2a.ListTaskPushNotificationConfigsRequest():
            params = {"id": request.task_id}
        case a2a.GetTaskRequest():
            params = {"id": request.id, "historyLength": request.history_length}
        case a2a.CancelTaskRequest() | a2a.SubscribeToTaskRequest():
            params = {"id": request.id, "metadata": getattr(request, "metadata", None)}
        case _:
            params: dict[str, Any] = {}
    return method, {name: value for name, value in params.items() if value not in (None, "")}


def read_event(body: bytes | str) -> a2a.Payload:
    """One frame's result, or a REST frame, from a 0.3 server. InvalidAgentResponse for what it must not send."""
    try:
        return a2a_v03_read.payload(_plain(body))
    except BadRequest as error:
        raise InvalidAgentResponse(f"the remote agent's answer is not A2A 0.3: {error}") from None


def read_answer(operation: str, body: bytes | str) -> Any:
    """A result of a 0.3 server, JSON-RPC or REST, as 1.0's result of `operation`; None for a delete."""
    if operation == "DeleteTaskPushNotificationConfig":
        return None
    try:
        if operation == "ListTaskPushNotificationConfigs":
            found = msgspec.json.decode(body)
            listed = cast("dict[str, Any]", found).get("configs", []) if isinstance(found, dict) else found
            configs = [a2a_v03_read.push_config(item) for item in cast("Sequence[Any]", listed)]
            return a2a.ListTaskPushNotificationConfigsResponse(configs=configs)
        plain = _plain(body)
        match operation:
            case "SendMessage":
                payload = a2a_v03_read.payload(plain)
                if isinstance(payload, a2a.Task | a2a.Message):
                    return a2a.reply(payload)
                raise BadRequest("an update instead of a task or message")
            case "GetTask" | "CancelTask":
                return a2a_v03_read.task(plain)
            case "GetExtendedAgentCard":
                return read_card(plain)
            case _:
                return a2a_v03_read.push_config(plain)
    except (BadRequest, msgspec.DecodeError, TypeError) as error:
        raise InvalidAgentResponse(f"the remote agent's answer is not A2A 0.3: {error}") from None
