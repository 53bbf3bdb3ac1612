"""JSON-RPC 2.0 as A2A uses it: calls and responses, both ways (spec a2a 1.4, 1.5; T070-T072).

Used by the JSON-RPC binding and by clients. An id is kept as the JSON text it came in, so it goes back with its type and value;
params stay bytes, to be read straight into their Struct. Pure.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from polyport import codec
from polyport.codec import encode
from polyport.errors import BadRequest, PolyportError
from polyport.wire.a2a_errors import (
    ContentTypeNotSupported,
    InvalidAgentResponse,
    InvalidParams,
    InvalidRequest,
    ParseFailed,
    Violation,
    jsonrpc_error,
    remote_error,
)

NO_ID = b"null"


class Call(Struct, frozen=True):
    """A call. `id` is JSON text, empty in a notification; `params` is the JSON text of an object."""

    id: bytes
    method: str
    params: bytes = b"{}"

    @property
    def notification(self) -> bool:
        """Whether the caller wants no answer."""
        return not self.id


class Refused(BadRequest):
    """A body that is no call. `error` says why; `id` is to be echoed and is empty when nothing is to be answered."""

    def __init__(self, error: PolyportError, id: bytes = NO_ID) -> None:
        super().__init__(str(error))
        self.error = error
        self.id = id


class _Envelope(Struct):
    jsonrpc: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET


class _Fault(Struct):
    code: int = 0
    message: str = ""
    data: Any = None


class _Answer(Struct):
    id: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: _Fault | None = None


_envelope = msgspec.json.Decoder(_Envelope)
_answer = msgspec.json.Decoder(_Answer)
_any = msgspec.json.Decoder()


def is_json(content_type: str | None) -> bool:
    """Whether a Content-Type is `application/json` or `application/*+json`, in UTF-8. None is not: a browser may send that
    to any site without asking."""
    kind, _, options = (content_type or "").lower().partition(";")
    kind = kind.strip()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return False
    _, given, charset = options.replace(" ", "").partition("charset=")
    return not given or charset.partition(";")[0].strip('"') in ("utf-8", "utf8", "us-ascii")


def read_call(body: bytes, content_type: str | None) -> Call:
    """The call in `body`. Refused for a wrong content type (looked at first), broken JSON, a batch, and what is no call."""
    if not is_json(content_type):
        raise Refused(ContentTypeNotSupported(f"Content-Type must be application/json, got {content_type!r:.80}"))
    try:
        codec.check_depth(body)
        envelope = _envelope.decode(body)
    except msgspec.ValidationError:
        what = "batches are not supported" if body.lstrip().startswith(b"[") else "a call is a JSON object"
        raise Refused(InvalidRequest(what)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Refused(ParseFailed(f"malformed JSON: {error}")) from None
    except BadRequest as error:
        raise Refused(InvalidRequest(str(error))) from None
    id = _id(envelope.id)
    if _value(envelope.jsonrpc) != "2.0":
        raise Refused(InvalidRequest('jsonrpc must be "2.0"'), id or NO_ID)
    method = _value(envelope.method)
    if not isinstance(method, str) or not method:
        raise Refused(InvalidRequest("method must be the name of an operation"), id or NO_ID)
    params = b"" if envelope.params is UNSET else bytes(envelope.params).strip()
    if params[:1] not in (b"{", b"n", b""):
        raise Refused(InvalidParams([Violation("params", "must be an object")]), id)
    return Call(id, method, params if params[:1] == b"{" else b"{}")


def _id(raw: Raw | UnsetType) -> bytes:
    if raw is UNSET:
        return b""
    text = bytes(raw).strip()
    if text[:1] not in b'"-0123456789n':
        raise Refused(InvalidRequest("id must be a string, a number or null"))
    try:
        _any.decode(text)  # a string of bad UTF-8 is found only here
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(ParseFailed(f"malformed JSON: {error}")) from None
    return text


def _value(raw: Raw | UnsetType) -> object:
    if raw is UNSET:
        return UNSET
    try:
        return _any.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNSET


def success(id: bytes, result: Any) -> bytes:
    """A response; empty for a notification."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, encode(result)) if id else b""


def failure(id: bytes, error: BaseException) -> bytes:
    """An error response in the form of A2A 1.0; empty for a notification."""
    return failure_object(id, jsonrpc_error(error))


def failure_object(id: bytes, error: dict[str, Any]) -> bytes:
    """An error response with a ready `error` member; empty for a notification."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id, encode(error)) if id else b""


def encode_call(id: str, method: str, params: Any) -> bytes:
    """A call to a remote agent."""
    return encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def read_result(body: bytes | str, id: str) -> bytes:
    """The JSON text of the result in a response to call `id`.

    Raises the remote's error by name; InvalidAgentResponse for what is no response to this call (FR-181).
    """
    try:
        answer = _answer.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidAgentResponse(f"the remote agent did not answer with a JSON-RPC response: {error}") from None
    theirs = None if answer.id is UNSET else _value(answer.id)
    if theirs != id and not (theirs is None and answer.error is not None):
        raise InvalidAgentResponse(f"the remote agent answered another call: id {theirs!r:.80} instead of {id!r}")
    if answer.error is not None:
        raise remote_error(answer.error.message, answer.error.data, code=answer.error.code)
    if answer.result is UNSET:
        raise InvalidAgentResponse("the remote agent's response has neither result nor error")
    return bytes(answer.result)
