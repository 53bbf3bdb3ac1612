"""The errors that A2A names: as exceptions, as one table, and as objects on the wire (spec a2a 1.5).

Raised by the A2A handler and by clients; the bindings turn any exception into their form with `jsonrpc_error`, `rest_error` or
`row` and `details`. Errors of a general kind get their row from `errors.STATUS`. A foreign exception is named by its type
only. Pure.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from polyport.errors import (
    STATUS,
    AgentError,
    BadRequest,
    Conflict,
    Forbidden,
    LimitExceeded,
    NotFound,
    PolyportError,
    Status,
    TooLarge,
    Unauthenticated,
    Unavailable,
    describe,
)

DOMAIN = "a2a-protocol.org"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
CODES = ("1.0.1", "1.0.0")
"""The values of the setting `status_codes`: the tables of spec 1.0.1 and of 1.0.0. JSON-RPC codes are equal in both."""


class Violation(NamedTuple):
    """One wrong member of a request: its camelCase path, and what is wrong with it."""

    field: str
    description: str


class A2AError(PolyportError):
    """An error with a row of its own in TABLE. `metadata` is shown to the caller, for example the task's id."""

    def __init__(self, message: str, metadata: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.metadata = metadata or {}


class TaskNotFound(A2AError, NotFound):
    """No such task, or not one of this caller: both look the same."""


class TaskNotCancelable(A2AError, Conflict):
    pass


class PushNotificationNotSupported(A2AError, BadRequest):
    pass


class UnsupportedOperation(A2AError, BadRequest):
    pass


class ContentTypeNotSupported(A2AError, BadRequest):
    pass


class InvalidAgentResponse(A2AError, AgentError):
    """An agent, ours or a remote one, answered what A2A does not allow."""


class ExtendedAgentCardNotConfigured(A2AError, Unavailable):
    pass


class ExtensionSupportRequired(A2AError, BadRequest):
    pass


class VersionNotSupported(A2AError, BadRequest):
    pass


class ParseFailed(A2AError, BadRequest):
    """The body is not JSON."""


class InvalidRequest(A2AError, BadRequest):
    """JSON, but not a request."""


class MethodNotFound(A2AError, NotFound):
    pass


class InvalidParams(A2AError, BadRequest):
    """A request with wrong members; its row is that of any BadRequest."""

    def __init__(self, violations: Iterable[Violation], metadata: dict[str, str] | None = None) -> None:
        self.violations = list(violations)
        super().__init__("; ".join(f"{v.field} {v.description}".strip() for v in self.violations), metadata)
        self.field = self.violations[0].field if self.violations else ""


class RemoteFailed(A2AError, AgentError):
    """A remote agent answered with an error that has no better name. `code` is its JSON-RPC code or HTTP status, or 0."""

    def __init__(self, message: str, metadata: dict[str, str] | None = None, code: int = 0) -> None:
        super().__init__(message, metadata)
        self.code = code


class _Row(NamedTuple):
    now: Status
    before: Status


def _row(jsonrpc: int, http: int, grpc: str, reason: str, http_1_0_0: int = 0, grpc_1_0_0: str = "") -> _Row:
    return _Row(Status(http, jsonrpc, grpc, reason), Status(http_1_0_0 or http, jsonrpc, grpc_1_0_0 or grpc, reason))


_PRECONDITION, _ARGUMENT, _NONE = "FAILED_PRECONDITION", "INVALID_ARGUMENT", "UNIMPLEMENTED"

TABLE: dict[type[A2AError], _Row] = {
    TaskNotFound: _row(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    TaskNotCancelable: _row(-32002, 400, _PRECONDITION, "TASK_NOT_CANCELABLE", http_1_0_0=409),
    PushNotificationNotSupported: _row(-32003, 400, _PRECONDITION, "PUSH_NOTIFICATION_NOT_SUPPORTED", grpc_1_0_0=_NONE),
    UnsupportedOperation: _row(-32004, 400, _PRECONDITION, "UNSUPPORTED_OPERATION", grpc_1_0_0=_NONE),
    ContentTypeNotSupported: _row(-32005, 400, _ARGUMENT, "CONTENT_TYPE_NOT_SUPPORTED", http_1_0_0=415),
    InvalidAgentResponse: _row(-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE", http_1_0_0=502),
    ExtendedAgentCardNotConfigured: _row(-32007, 400, _PRECONDITION, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    ExtensionSupportRequired: _row(-32008, 400, _PRECONDITION, "EXTENSION_SUPPORT_REQUIRED"),
    VersionNotSupported: _row(-32009, 400, _PRECONDITION, "VERSION_NOT_SUPPORTED", grpc_1_0_0=_NONE),
    ParseFailed: _row(-32700, 400, _ARGUMENT, "PARSE_ERROR"),
    InvalidRequest: _row(-32600, 400, _ARGUMENT, "INVALID_REQUEST"),
    MethodNotFound: _row(-32601, 404, _NONE, "METHOD_NOT_FOUND"),
}
"""The rows that A2A and JSON-RPC add to `errors.STATUS`."""

_BY_CODE = {rows.now.jsonrpc: kind for kind, rows in TABLE.items()}
_BY_REASON = {rows.now.reason: kind for kind, rows in TABLE.items()}
_GENERAL: dict[str, type[PolyportError]] = {
    kind.kind: kind for kind in (BadRequest, Unauthenticated, Forbidden, NotFound, TooLarge, LimitExceeded, Unavailable)
}


def row(error: BaseException, codes: str = CODES[0]) -> Status:
    """What `error` is called on each wire, by the table of spec version `codes`."""
    rows = TABLE.get(type(error)) if isinstance(error, A2AError) else None
    if rows is not None:
        return rows.before if codes == "1.0.0" else rows.now
    return error.status if isinstance(error, PolyportError) else STATUS["internal"]


def text(error: BaseException) -> str:
    """What a caller may read about `error`."""
    return str(describe(error)["message"])


def details(error: BaseException) -> list[dict[str, Any]]:
    """The typed details: always an ErrorInfo; a BadRequest with field violations for wrong requests."""
    metadata = error.metadata if isinstance(error, A2AError) else {}
    found: list[dict[str, Any]] = [
        {"@type": ERROR_INFO, "reason": row(error).reason, "domain": DOMAIN, "metadata": metadata}
    ]
    if isinstance(error, InvalidParams):
        violations = error.violations
    elif isinstance(error, BadRequest) and error.field:
        violations = [Violation(error.field, str(error))]
    else:
        return found
    found.append({"@type": BAD_REQUEST, "fieldViolations": [v._asdict() for v in violations]})
    return found


def jsonrpc_error(error: BaseException) -> dict[str, Any]:
    """The `error` member of a JSON-RPC response."""
    return {"code": row(error).jsonrpc, "message": text(error), "data": details(error)}


def rest_error(error: BaseException, codes: str = CODES[0]) -> tuple[int, dict[str, Any]]:
    """HTTP status and body of the REST binding."""
    found = row(error, codes)
    body = {"code": found.http, "status": found.grpc, "message": text(error), "details": details(error)}
    return found.http, {"error": body}


def remote_error(message: str, found: object = None, *, code: int = 0, http: int = 0, grpc: str = "") -> PolyportError:
    """The exception for an error of a remote agent: by its reason, else its JSON-RPC code, else its HTTP status or gRPC name.

    `found` is the array of details as it came (anything else is ignored).
    """
    message = message or "the remote agent answered with an error and no text"
    info = _detail(found, ERROR_INFO)
    metadata = {k: v for k, v in _dict(info.get("metadata")).items() if isinstance(v, str)}
    violations = _violations(found)
    kind = _BY_REASON.get(str(info.get("reason"))) or _BY_CODE.get(code)
    if kind is not None:
        return kind(message, metadata)
    if violations:
        return InvalidParams(violations, metadata)
    for name, status in STATUS.items():
        general = _GENERAL.get(name)
        if general is not None and (status.jsonrpc == code == -32602 or status.http == http or status.grpc == grpc):
            return general(message)
    return RemoteFailed(message, metadata, code or http)


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _detail(found: object, kind: str) -> dict[str, Any]:
    for item in cast("list[object]", found) if isinstance(found, list) else []:
        if _dict(item).get("@type") == kind:
            return _dict(item)
    return {}


def _violations(found: object) -> list[Violation]:
    listed = _detail(found, BAD_REQUEST).get("fieldViolations")
    items = [_dict(item) for item in cast("list[object]", listed)] if isinstance(listed, list) else []
    return [Violation(str(v.get("field", "")), str(v.get("description", ""))) for v in items]
