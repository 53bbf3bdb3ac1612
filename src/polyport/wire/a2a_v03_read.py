"""Reading A2A 0.3: its JSON objects, in both of its spellings, become the Structs of 1.0 (spec a2a 2.1).

Used by `wire/a2a_v03.py`. The spellings are the JSON-RPC one (`kind`, lower-case states, `parts`) and the one of REST and gRPC
(`content`, `fileWithUri`, TASK_STATE_CANCELLED); one reader takes either. Only what differs from 1.0 is touched, the rest
is checked by `a2a.read_plain`. Pure and total: anything but a right object is a BadRequest.
"""

from collections.abc import Callable
from typing import Any, cast

from polyport.errors import BadRequest
from polyport.wire import a2a
from polyport.wire.a2a import read_plain

DATA_PART_COMPAT = "data_part_compat"
"""The part metadata that marks data which was no object and is wrapped as `{"value": data}`."""

STATES = {
    "unknown": a2a.TaskState.UNSPECIFIED,
    "submitted": a2a.TaskState.SUBMITTED,
    "working": a2a.TaskState.WORKING,
    "input-required": a2a.TaskState.INPUT_REQUIRED,
    "completed": a2a.TaskState.COMPLETED,
    "canceled": a2a.TaskState.CANCELED,
    "failed": a2a.TaskState.FAILED,
    "rejected": a2a.TaskState.REJECTED,
    "auth-required": a2a.TaskState.AUTH_REQUIRED,
}
_SPELLINGS = {
    **STATES,
    **{state.value: state for state in a2a.TaskState},
    "cancelled": a2a.TaskState.CANCELED,
    "TASK_STATE_CANCELLED": a2a.TaskState.CANCELED,
}
_ROLES = {"user": a2a.Role.USER, "agent": a2a.Role.AGENT} | {role.value: role for role in a2a.Role}

Change = tuple[str, Callable[[Any], Any]]


def _as_is(value: Any) -> Any:
    return value


def _norm(key: str) -> str:
    return key.replace("_", "").lower()


def _changed(value: Any, changes: dict[str, Change]) -> Any:
    """A dict with the members in `changes` (found in any spelling) renamed and converted; what is no dict stays."""
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for key, item in cast("dict[str, Any]", value).items():
        if item is None:
            continue
        name, convert = changes.get(_norm(key), (key, _as_is))
        out[name] = convert(item)
    return out


def _each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: [convert(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _members(value: Any) -> dict[str, Any]:
    """The members that are set, by their names in lower case; nothing for what is no object."""
    if not isinstance(value, dict):
        return {}
    return {_norm(key): item for key, item in cast("dict[str, Any]", value).items() if item is not None}


def _state(value: Any) -> Any:
    return _SPELLINGS.get(value, a2a.TaskState.UNSPECIFIED) if isinstance(value, str) else value


def _role(value: Any) -> Any:
    return _ROLES.get(value, a2a.Role.UNSPECIFIED) if isinstance(value, str) else value


def _part(value: Any) -> Any:
    members = _members(value)
    if not members:
        return value
    out: dict[str, Any] = {}
    metadata = members.get("metadata")
    if "text" in members:
        out["text"] = members["text"]
    if "file" in members:
        out |= _file(members["file"])
    if "data" in members:
        data = members["data"]
        if "kind" not in members:
            data = _members(data).get("data", {})  # gRPC's and REST's DataPart
        flags = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
        if flags.get(DATA_PART_COMPAT) is True and isinstance(data, dict):
            metadata = {k: v for k, v in flags.items() if k != DATA_PART_COMPAT} or None
            data = cast("dict[str, Any]", data).get("value")
        out["data"] = data
    if metadata is not None:
        out["metadata"] = metadata
    return out


def _file(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest("file is not an object", "file")
    names = {"bytes": "raw", "filewithbytes": "raw", "uri": "url", "filewithuri": "url"}
    names |= {"mimetype": "mediaType", "name": "filename"}
    return {names[key]: item for key, item in _members(cast("object", value)).items() if key in names}


_PARTS: Change = ("parts", _each(_part))


def _message(value: Any) -> Any:
    return _changed(value, {"role": ("role", _role), "parts": _PARTS, "content": _PARTS})


def _status(value: Any) -> Any:
    message: Change = ("message", _message)
    return _changed(value, {"state": ("state", _state), "message": message, "update": message})


def _artifact(value: Any) -> Any:
    return _changed(value, {"parts": _PARTS})


def _task(value: Any) -> Any:
    return _changed(
        value,
        {
            "status": ("status", _status),
            "artifacts": ("artifacts", _each(_artifact)),
            "history": ("history", _each(_message)),
        },
    )


def _push(value: Any) -> Any:
    return _changed(value, {"authentication": ("authentication", _authentication)})


def _authentication(value: Any) -> Any:
    """0.3 lists schemes, 1.0 has one: the first. One that says nothing is none."""
    if not isinstance(value, dict):
        return value
    members = _members(cast("object", value))
    schemes = members.get("schemes", [])
    if not isinstance(schemes, list):
        raise BadRequest("authentication.schemes is not a list", "authentication.schemes")
    scheme = cast("list[Any]", schemes)[0] if schemes else members.get("scheme")
    if scheme is None and "credentials" not in members:
        return None
    return {"scheme": "Bearer" if scheme is None else scheme, "credentials": members.get("credentials")}


def message(value: Any) -> a2a.Message:
    return read_plain(_message(value), a2a.Message)


def task(value: Any) -> a2a.Task:
    return read_plain(_task(value), a2a.Task)


def payload(value: Any) -> a2a.Payload:
    """What one frame, or an answer to a send, carries: told by its `kind`, by the wrapper of REST, or by its members."""
    members = _members(value)
    for wrapper in ("task", "message", "msg", "statusupdate", "artifactupdate"):
        inner = members.get(wrapper)
        if "kind" not in members and isinstance(inner, dict):
            return _payload(inner, wrapper)
    kind = members.get("kind")
    if not isinstance(kind, str):
        kind = "message" if "messageid" in members else "artifactupdate" if "artifact" in members else ""
        kind = kind or ("statusupdate" if "taskid" in members else "task")
    return _payload(value, _norm(kind.replace("-", "")))


def _payload(value: Any, kind: str) -> a2a.Payload:
    if kind == "task":
        return task(value)
    if kind in ("message", "msg"):
        return message(value)
    if kind == "statusupdate":
        return read_plain(_changed(value, {"status": ("status", _status)}), a2a.TaskStatusUpdateEvent)
    if kind == "artifactupdate":
        return read_plain(_changed(value, {"artifact": ("artifact", _artifact)}), a2a.TaskArtifactUpdateEvent)
    raise BadRequest(f"kind {kind!r:.60} is not known in A2A 0.3", "kind")


def _configuration(value: Any) -> Any:
    push: Change = ("taskPushNotificationConfig", _push)
    changes: dict[str, Change] = {"pushnotificationconfig": push, "pushnotification": push}
    changes["blocking"] = ("returnImmediately", lambda on: not on if isinstance(on, bool) else on)
    return _changed(value, changes)


def send_request(value: Any, *, proto: bool = False) -> a2a.SendMessageRequest:
    """The params of message/send, or with `proto` the body of REST: there historyLength 0 is "all", and a configuration without
    `blocking` says false, for ProtoJSON leaves false out. No configuration at all is blocking."""
    body: Change = ("message", _message)
    changes: dict[str, Change] = {"message": body, "configuration": ("configuration", _configuration)}
    if proto:
        changes |= {"request": body, "configuration": ("configuration", _proto_configuration)}
    return read_plain(_changed(value, changes), a2a.SendMessageRequest)


def _proto_configuration(value: Any) -> Any:
    found = _configuration(value)
    if not isinstance(found, dict):
        return found
    said = cast("dict[str, Any]", found)
    out = {key: item for key, item in said.items() if not (_norm(key) == "historylength" and item == 0)}
    return {"returnImmediately": True} | out


def push_config(value: Any, task_id: str = "") -> a2a.TaskPushNotificationConfig:
    """The nested form `{taskId, pushNotificationConfig}`, REST's `{parent, configId, config: {name, pushNotificationConfig}}`
    (the wrapper may be missing), or the bare configuration. `task_id` from a path wins."""
    members = _members(value)
    outer = members
    if isinstance(members.get("config"), dict):
        members = _members(members["config"])
    inner = members.get("pushnotificationconfig", value if "url" in members else {})
    found = read_plain(_push(inner), a2a.TaskPushNotificationConfig)
    named = _names(members.get("name") or outer.get("parent"))
    task_id = task_id or str(members.get("taskid") or named[0])
    config_id = found.id or str(outer.get("configid") or named[1])
    return a2a.TaskPushNotificationConfig(
        id=config_id, task_id=task_id, url=found.url, token=found.token, authentication=found.authentication
    )


def _names(name: Any) -> tuple[str, str]:
    """`tasks/{id}/pushNotificationConfigs/{config}` -> both ids, or empty texts."""
    words = name.split("/") if isinstance(name, str) else []
    if len(words) < 2 or words[0] != "tasks":
        return "", ""
    return words[1], words[3] if len(words) > 3 else ""
