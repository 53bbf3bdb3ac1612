"""The error tree of Polyport, and the one table that says what each kind is called on every wire.

Raised by every floor; turned into a status by the protocols only. Nothing here knows a protocol's bytes.

    PolyportError
     +-- BadRequest        the caller sent something wrong (names the field)
     +-- Unauthenticated   no or bad credentials
     +-- AuthenticationFailed  the provider of identities is at fault
     +-- Forbidden         known caller, not allowed
     +-- NotFound          session, app, run, artifact, task
     +-- Conflict          exists already, busy, or a stale version
     |    +-- Superseded   a newer run took the session over; this run ends
     +-- TooLarge          over a size limit
     +-- LimitExceeded     over a count or rate limit
     +-- Unavailable       a part that is needed is not configured or down
     +-- TimedOut          a wall clock limit passed
     +-- RunCancelled      somebody stopped the run; says why
     +-- ModelError        the model's provider failed (carries its status and code)
     +-- AgentError        an agent, tool or plugin of the user is wrong at run time
     +-- ConfigError       wrong set-up, found at start: says what to change
"""

from typing import Any, NamedTuple, cast


class Status(NamedTuple):
    """What one kind of error is called on each wire. `reason` is the A2A ErrorInfo reason."""

    http: int
    jsonrpc: int
    grpc: str
    reason: str


STATUS: dict[str, Status] = {
    "bad_request": Status(400, -32602, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "unauthenticated": Status(401, -32600, "UNAUTHENTICATED", "UNAUTHENTICATED"),
    "forbidden": Status(403, -32600, "PERMISSION_DENIED", "PERMISSION_DENIED"),
    "not_found": Status(404, -32001, "NOT_FOUND", "TASK_NOT_FOUND"),
    "conflict": Status(409, -32600, "ABORTED", "CONFLICT"),
    "superseded": Status(409, -32600, "ABORTED", "SUPERSEDED"),
    "too_large": Status(413, -32600, "RESOURCE_EXHAUSTED", "TOO_LARGE"),
    "limit_exceeded": Status(429, -32603, "RESOURCE_EXHAUSTED", "LIMIT_EXCEEDED"),
    "unavailable": Status(503, -32603, "UNAVAILABLE", "UNAVAILABLE"),
    "timeout": Status(504, -32603, "DEADLINE_EXCEEDED", "TIMEOUT"),
    "cancelled": Status(409, -32603, "CANCELLED", "CANCELLED"),
    "model": Status(500, -32603, "INTERNAL", "MODEL_ERROR"),
    "agent": Status(500, -32603, "INTERNAL", "AGENT_ERROR"),
    "config": Status(500, -32603, "FAILED_PRECONDITION", "CONFIG_ERROR"),
    "internal": Status(500, -32603, "INTERNAL", "INTERNAL"),
}
"""kind -> its name on each wire. The only such table."""


class PolyportError(Exception):
    """Root of all errors that Polyport raises on purpose. `str(error)` is safe to show to a caller."""

    kind = "internal"

    @property
    def status(self) -> Status:
        """The row of STATUS for this kind."""
        return STATUS[self.kind]


class BadRequest(PolyportError):
    """The caller sent something wrong; `field` is the path of the wrong field, or empty."""

    kind = "bad_request"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Unauthenticated(PolyportError):
    """No or bad credentials; `challenge` is the WWW-Authenticate header to answer with, "" is Bearer."""

    kind = "unauthenticated"

    def __init__(self, message: str, challenge: str = "") -> None:
        super().__init__(message)
        self.challenge = challenge


class AuthenticationFailed(PolyportError):
    """The provider of identities is down or wrong; nobody can say who is calling."""


class Forbidden(PolyportError):
    kind = "forbidden"


class NotFound(PolyportError):
    kind = "not_found"


class Conflict(PolyportError):
    kind = "conflict"


class Superseded(Conflict):
    """A newer run owns the session now (its fence is higher); the older run must stop."""

    kind = "superseded"


class TooLarge(PolyportError):
    kind = "too_large"


class LimitExceeded(PolyportError):
    """Over a count or rate limit; `retry_after_s` is when to try again, if known."""

    kind = "limit_exceeded"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(PolyportError):
    kind = "unavailable"


class TimedOut(PolyportError):
    kind = "timeout"


class RunCancelled(PolyportError):
    """The run was stopped; the message is the reason."""

    kind = "cancelled"


class ModelError(PolyportError):
    """The model's provider failed or answered nonsense.

    `http_status` is the provider's status (0 when there was none); `code` is the provider's own word, such as
    RESOURCE_EXHAUSTED; `retry_after_s` is what the provider asked for.
    """

    kind = "model"

    def __init__(
        self, message: str, *, http_status: int = 0, code: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code
        self.retry_after_s = retry_after_s


class AgentError(PolyportError):
    """An agent, tool, callback or plugin did something that cannot be carried out."""

    kind = "agent"


class ConfigError(PolyportError):
    """Wrong set-up, found before anything runs. The message says what to set."""

    kind = "config"


def unwrap(error: BaseException) -> BaseException:
    """The one error inside a group of one (task groups wrap what they raise), else `error` itself."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        if len(group.exceptions) != 1:
            return group
        error = group.exceptions[0]
    return error


def describe(error: BaseException) -> dict[str, Any]:
    """`{"code", "message"}` for a caller. An error that is not ours is named by its type only, for its text may hold
    secrets or paths; the log has the rest."""
    if isinstance(error, ModelError):
        code = error.code or (f"HTTP_{error.http_status}" if error.http_status else "MODEL_ERROR")
        return {"code": code, "message": str(error)}
    if isinstance(error, PolyportError):
        return {"code": error.status.reason, "message": str(error)}
    return {"code": "INTERNAL", "message": f"internal error ({type(error).__name__}); the server's log has the details"}
