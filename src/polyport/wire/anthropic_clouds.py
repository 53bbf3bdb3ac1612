"""The Messages API as clouds serve it: what differs from the maker's own is moved, nothing else is touched. Pure functions.

Called by models/vertex and models/bedrock with bodies of wire/anthropic_request, whose members are not looked into. Shapes
are those of the `anthropic` SDK's cloud clients and of Bedrock's ResponseStream. Never does I/O.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from polyport.codec import encode

MESSAGES = "/v1/messages"
"""The path of the Messages API at its maker."""

_FAULTS = {
    "throttlingException": "rate_limit_error",
    "serviceUnavailableException": "overloaded_error",
    "internalServerException": "api_error",
    "modelStreamErrorException": "api_error",
    "modelTimeoutException": "timeout_error",
    "validationException": "invalid_request_error",
}
"""What the maker calls a fault that Bedrock tells of in the middle of a stream."""


class Moved(Struct, frozen=True):
    """A request to a cloud: the model and whether to stream are said by its address."""

    model: str
    stream: bool
    body: bytes


def moved(body: bytes, version: str, *, keep_stream: bool, betas: str = "") -> Moved:
    """`body` without its model, with `anthropic_version` unless it has one already, and with the beta features that a header
    would name (comma-separated)."""
    members = msgspec.json.decode(body, type=dict[str, Raw])
    model = msgspec.json.decode(members.pop("model"), type=str)
    stream = msgspec.json.decode(members["stream"], type=bool)
    if not keep_stream:
        del members["stream"]
    members.setdefault("anthropic_version", Raw(encode(version)))
    names = [name for beta in betas.split(",") if (name := beta.strip())]
    if names:
        members.setdefault("anthropic_beta", Raw(encode(names)))
    return Moved(model, stream, encode(members))


class _Chunk(Struct):
    data: bytes = field(default=b"", name="bytes")


class _Fault(Struct):
    message: str = ""


def event_of(headers: dict[str, Any], payload: bytes) -> bytes:
    """The server-sent event that one message of Bedrock's event stream stands for; b"" for one that says nothing to us.

    msgspec.DecodeError for a payload that is none.
    """
    kind = headers.get(":message-type")
    if kind == "event":
        if headers.get(":event-type") != "chunk":
            return b""
        said = msgspec.json.decode(payload, type=_Chunk).data
        # between the members of JSON a line break is blank space; in strings there is none
        return b"data: " + said.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"
    if kind == "exception":
        name = str(headers.get(":exception-type", ""))
        message = msgspec.json.decode(payload, type=_Fault).message
    else:
        name, message = str(headers.get(":error-code", "")), str(headers.get(":error-message", ""))
    return error_event(_FAULTS.get(name, name or "api_error"), message)


def error_event(kind: str, message: str) -> bytes:
    """The server-sent event of the Messages API that breaks an answer off."""
    return b"event: error\ndata: " + encode({"type": "error", "error": {"type": kind, "message": message}}) + b"\n\n"
