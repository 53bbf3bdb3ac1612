"""A2A in protobuf: messages made from the tables, and to and from the ProtoJSON that the rest of Polyport speaks.

Used by the gRPC binding and clients. Made in a descriptor pool of their own, so that the official stubs may live in the same
process; no code is generated. The package protobuf is an optional dependency; this module needs it. Pure.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    empty_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
)
from google.protobuf.message import DecodeError

from polyport.errors import BadRequest
from polyport.wire import a2a_proto_tables as tables

V10, V03, RPC = "lf.a2a.v1", "a2a.v1", "google.rpc"
"""The packages."""
EMPTY = "google.protobuf.Empty"
GIVES = {
    "SendMessage": "SendMessageResponse",
    "SendStreamingMessage": "StreamResponse",
    "GetTask": "Task",
    "ListTasks": "ListTasksResponse",
    "CancelTask": "Task",
    "SubscribeToTask": "StreamResponse",
    "CreateTaskPushNotificationConfig": "TaskPushNotificationConfig",
    "GetTaskPushNotificationConfig": "TaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs": "ListTaskPushNotificationConfigsResponse",
    "DeleteTaskPushNotificationConfig": EMPTY,
    "GetExtendedAgentCard": "AgentCard",
}
"""Operation -> the message that it gives, in 1.0."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
    "bool": _Field.TYPE_BOOL,
}
_KNOWN = frozenset({"Struct", "Value", "Timestamp", "Any"})
_ENUMS = frozenset({"TaskState", "Role"})
_FIELD = re.compile(r"(\w+)=(\d+)(?::(\w+))?([*?%]?)(?:\|(\w+))?(?:@(\w+))?")


def _file(package: str, table: str, canceled: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=f"polyport/{package}.proto", package=package, syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("struct", "timestamp", "any", "empty"))
    for name, fields in re.findall(r"^(\w+):((?:.|\n )*)$", table, re.MULTILINE):
        _message(file.message_type.add(name=name), package, fields)
    if canceled:
        states = ["UNSPECIFIED", *tables.STATES.format(canceled=canceled).split()]
        _enum(file, "TaskState", [f"TASK_STATE_{state}" for state in states])
        _enum(file, "Role", ["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"])
    return file


def _enum(file: descriptor_pb2.FileDescriptorProto, name: str, values: list[str]) -> None:
    enum = file.enum_type.add(name=name)
    for number, value in enumerate(values):
        enum.value.add(name=value, number=number)


def _message(message: descriptor_pb2.DescriptorProto, package: str, fields: str) -> None:
    groups: dict[str, int] = {}
    optional: list[Any] = []
    for name, number, kind, mark, group, json_name in _FIELD.findall(fields):
        field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if mark == "%":
            _map(message, field, package, kind or "string")
            continue
        _typed(field, package, kind or "string")
        if mark == "*":
            field.label = _Field.LABEL_REPEATED
        elif mark == "?":
            optional.append(field)
        if json_name:
            field.json_name = json_name
        if group:
            if group not in groups:
                groups[group] = len(message.oneof_decl)
                message.oneof_decl.add(name=group)
            field.oneof_index = groups[group]
    for field in optional:  # such groups of one come after the others
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _typed(field: Any, package: str, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _Field.TYPE_ENUM if kind in _ENUMS else _Field.TYPE_MESSAGE
    field.type_name = f".google.protobuf.{kind}" if kind in _KNOWN else f".{package}.{kind}"


def _map(message: descriptor_pb2.DescriptorProto, field: Any, package: str, kind: str) -> None:
    name = "".join(word.capitalize() for word in field.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    _typed(entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL), package, "string")
    _typed(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), package, kind)
    field.label = _Field.LABEL_REPEATED
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{package}.{message.name}.{name}"


@lru_cache(maxsize=1)
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for known in (struct_pb2, timestamp_pb2, any_pb2, empty_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for file in (
        _file(V10, tables.V10, "CANCELED"),
        _file(V03, tables.V03, "CANCELLED"),
        _file(RPC, tables.RPC, ""),
    ):
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@lru_cache(maxsize=256)
def message_class(name: str) -> Any:
    """The class of a message by its full name, such as `lf.a2a.v1.Task`."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def to_json(name: str, wire: bytes) -> str:
    """The message `name` in protobuf as ProtoJSON. BadRequest for what is none."""
    message = message_class(name)()
    try:
        message.ParseFromString(wire)
        return json_format.MessageToJson(message, indent=None, ensure_ascii=False)
    except (DecodeError, ValueError, RecursionError, json_format.Error):
        raise BadRequest(f"the message is not a {name}") from None


def from_json(name: str, text: bytes | str) -> bytes:
    """ProtoJSON as the message `name` in protobuf; members that it does not know are left out."""
    return cast("bytes", json_format.Parse(text, message_class(name)(), ignore_unknown_fields=True).SerializeToString())


def status(code: int, text: str, details: list[dict[str, Any]]) -> bytes:
    """The google.rpc.Status of an error; `details` as `wire.a2a_errors.details` makes them."""
    found = message_class(f"{RPC}.Status")(code=code, message=text)
    for detail in details:
        kind = str(detail["@type"]).rpartition("/")[2]
        plain = {name: value for name, value in detail.items() if name != "@type"}
        message = json_format.ParseDict(plain, message_class(kind)())
        found.details.add(type_url=detail["@type"], value=message.SerializeToString())
    return cast("bytes", found.SerializeToString())


def read_status(wire: bytes) -> tuple[int, str, list[dict[str, Any]]]:
    """Code, text and details of a google.rpc.Status, as `status` takes them; details of unknown types are left out."""
    found = message_class(f"{RPC}.Status").FromString(wire)
    return found.code, found.message, list(_details(found.details))


def _details(listed: Any) -> Iterator[dict[str, Any]]:
    for item in listed:
        try:
            message = message_class(item.type_url.rpartition("/")[2]).FromString(item.value)
        except KeyError:
            continue
        yield {"@type": item.type_url, **json_format.MessageToDict(message)}
