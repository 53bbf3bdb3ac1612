"""Writing A2A 0.3: the Structs of 1.0 as plain data in the spelling of JSON-RPC, or of REST and gRPC (spec a2a 2.1).

Used by `wire/a2a_v03.py`; what comes out goes to `codec.encode`. `proto` True is the spelling of REST: no `kind`, `content`
for the parts of a message, states and roles by their full names. Pure and total. 0.3 has no place for the media type and file
name of text and data parts.
"""

from base64 import b64encode
from typing import Any, cast

from msgspec import UNSET

from polyport.wire import a2a
from polyport.wire.a2a_v03_read import DATA_PART_COMPAT, STATES

_STATES = {state: name for name, state in STATES.items()}


def _set(**members: Any) -> dict[str, Any]:
    """The members that say something: neither None nor an empty text or list."""
    return {name: value for name, value in members.items() if value is not None and value != "" and value != []}


def state(value: a2a.TaskState, proto: bool = False) -> str:
    if proto:
        return "TASK_STATE_CANCELLED" if value is a2a.TaskState.CANCELED else value.value
    return _STATES[value]


def part(value: a2a.Part, proto: bool = False) -> dict[str, Any]:
    """A part; one without content becomes an empty text."""
    metadata = value.metadata
    body: dict[str, Any]
    if value.text is None and (value.raw is not None or value.url is not None):
        kind, body = "file", {"file": _file(value, proto)}
    elif value.text is None and value.data is not UNSET:
        data = cast("dict[str, Any]", value.data)
        if not isinstance(value.data, dict):
            data = {"value": value.data}
            metadata = {**(metadata or {}), DATA_PART_COMPAT: True}
        kind, body = "data", {"data": {"data": data} if proto else data}
    else:
        kind, body = "text", {"text": value.text or ""}
    if not proto:
        body["kind"] = kind
    if metadata is not None:
        body["metadata"] = metadata
    return body


def _file(value: a2a.Part, proto: bool) -> dict[str, Any]:
    if value.raw is not None:
        found = {"fileWithBytes" if proto else "bytes": b64encode(value.raw).decode()}
    else:
        found = {"fileWithUri" if proto else "uri": value.url or ""}
    return found | _set(mimeType=value.media_type, name=value.filename)


def message(value: a2a.Message, proto: bool = False) -> dict[str, Any]:
    role = value.role
    spoken = role.value if proto else "user" if role is a2a.Role.USER else "agent"
    parts = [part(p, proto) for p in value.parts]
    found = _set(
        messageId=value.message_id,
        contextId=value.context_id,
        taskId=value.task_id,
        metadata=value.metadata,
        extensions=value.extensions,
        role=spoken,
    )
    if proto:
        return found | {"content": parts}
    return (
        {"kind": "message", "messageId": ""}
        | found
        | {"parts": parts}
        | _set(referenceTaskIds=value.reference_task_ids)
    )


def status(value: a2a.TaskStatus, proto: bool = False) -> dict[str, Any]:
    said = None if value.message is None else message(value.message, proto)
    return {"state": state(value.state, proto)} | _set(message=said, timestamp=value.timestamp)


def artifact(value: a2a.Artifact, proto: bool = False) -> dict[str, Any]:
    return {"artifactId": value.artifact_id, "parts": [part(p, proto) for p in value.parts]} | _set(
        name=value.name, description=value.description, metadata=value.metadata, extensions=value.extensions
    )


def task(value: a2a.Task, proto: bool = False) -> dict[str, Any]:
    head: dict[str, Any] = {} if proto else {"kind": "task"}
    return (
        head
        | {"id": value.id, "contextId": value.context_id, "status": status(value.status, proto)}
        | _set(
            artifacts=[artifact(a, proto) for a in value.artifacts or ()],
            history=[message(m, proto) for m in value.history],
            metadata=value.metadata,
        )
    )


def ends(value: a2a.TaskState) -> bool:
    """Whether a stream that was opened by a send ends with this state: terminal, or input-required."""
    return value.terminal or value is a2a.TaskState.INPUT_REQUIRED


def event(value: a2a.Payload, proto: bool = False, final: bool | None = None) -> dict[str, Any]:
    """One frame; with `proto` wrapped by its member's name. `final` None marks a status update by `ends`."""
    if isinstance(value, a2a.Task):
        name, found = "task", task(value, proto)
    elif isinstance(value, a2a.Message):
        name, found = "message", message(value, proto)
    else:
        found: dict[str, Any] = {"taskId": value.task_id, "contextId": value.context_id}
        if isinstance(value, a2a.TaskStatusUpdateEvent):
            name = "statusUpdate"
            last = ends(value.status.state) if final is None else final
            found |= {"kind": "status-update", "status": status(value.status, proto), "final": last}
        else:
            name = "artifactUpdate"
            found |= {"kind": "artifact-update", "artifact": artifact(value.artifact, proto)}
            found |= {"append": value.append, "lastChunk": value.last_chunk}
        found |= _set(metadata=value.metadata)
    if not proto:
        return found
    found.pop("kind", None)
    return {name: found}


def push_config(value: a2a.TaskPushNotificationConfig, proto: bool = False) -> dict[str, Any]:
    """The nested form; with `proto` named by its resource."""
    inner = bare_push_config(value)
    if proto:
        return {"name": f"tasks/{value.task_id}/pushNotificationConfigs/{value.id}", "pushNotificationConfig": inner}
    return {"taskId": value.task_id, "pushNotificationConfig": inner}


def rest_push_body(value: a2a.TaskPushNotificationConfig) -> dict[str, Any]:
    """The request of REST and gRPC that makes a configuration."""
    return {"parent": f"tasks/{value.task_id}", "configId": value.id, "config": push_config(value, proto=True)}


def bare_push_config(value: a2a.TaskPushNotificationConfig) -> dict[str, Any]:
    found = {"url": value.url} | _set(id=value.id, token=value.token)
    said = value.authentication
    if said is not None:
        found["authentication"] = {"schemes": [said.scheme]} | _set(credentials=said.credentials)
    return found


def send_params(value: a2a.SendMessageRequest) -> dict[str, Any]:
    """The params of message/send."""
    said = value.configuration
    push = said.task_push_notification_config
    configuration = {"blocking": not said.return_immediately} | _set(
        acceptedOutputModes=said.accepted_output_modes,
        historyLength=said.history_length,
        pushNotificationConfig=None if push is None else bare_push_config(push),
    )
    return {"message": message(value.message), "configuration": configuration} | _set(metadata=value.metadata)


def rest_send_body(value: a2a.SendMessageRequest) -> dict[str, Any]:
    """The body of REST's /v1/message:send; there historyLength 0 means all, so it cannot be asked for."""
    params = send_params(value)
    configuration = params["configuration"]
    push = configuration.pop("pushNotificationConfig", None)
    if not configuration.get("historyLength"):
        configuration.pop("historyLength", None)
    params["configuration"] = configuration | _set(pushNotification=push)
    return params | {"message": message(value.message, proto=True)}
