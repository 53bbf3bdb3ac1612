"""Checks of A2A requests and service parameters that need no state (spec a2a 1.1, 1.6, 1.7, 1.9).

Called by the A2A handler and bindings right after reading. `check` raises one InvalidParams that lists all violations, each
with the camelCase path of the member. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from polyport.errors import BadRequest
from polyport.wire import a2a
from polyport.wire.a2a_errors import InvalidParams, VersionNotSupported, Violation

T = TypeVar("T")
MAX_PAGE_SIZE = 100
PARTS = "text, raw, url and data"


def message_violations(message: a2a.Message, where: str = "message") -> list[Violation]:
    """What is wrong with a message from a client (T020, T021)."""
    if message == a2a.NO_MESSAGE:
        return [Violation(where, "is required")]
    found: list[Violation] = []
    if not message.message_id:
        found.append(Violation(f"{where}.messageId", "is required"))
    if message.role is a2a.Role.UNSPECIFIED:
        found.append(Violation(f"{where}.role", "is required"))
    elif message.role is not a2a.Role.USER:
        found.append(Violation(f"{where}.role", "must be ROLE_USER in a message from a client"))
    if not message.parts:
        found.append(Violation(f"{where}.parts", "must have at least one part"))
    for index, part in enumerate(message.parts):
        kinds = part.kinds
        if len(kinds) != 1:
            had = f"has {' and '.join(kinds)}, but may have" if kinds else "must have"
            found.append(Violation(f"{where}.parts[{index}]", f"{had} exactly one of {PARTS}"))
    return found


def push_violations(config: a2a.TaskPushNotificationConfig, where: str = "") -> list[Violation]:
    """What is wrong with a push configuration in itself; the URL's target is checked elsewhere."""
    found: list[Violation] = []
    if not config.url:
        found.append(Violation(f"{where}url", "is required"))
    if config.authentication is not None and not config.authentication.scheme:
        found.append(Violation(f"{where}authentication.scheme", "is required"))
    return found


def violations(request: Any) -> list[Violation]:
    """What is wrong with any request of A2A; empty when all is well."""
    found: list[Violation] = []
    match request:
        case a2a.SendMessageRequest():
            found += message_violations(request.message)
            found += _not_negative(request.configuration.history_length, "configuration.historyLength")
            config = request.configuration.task_push_notification_config
            if config is not None:
                found += push_violations(config, "configuration.taskPushNotificationConfig.")
        case a2a.GetTaskRequest():
            found += _required(request.id, "id") + _not_negative(request.history_length, "historyLength")
        case a2a.CancelTaskRequest() | a2a.SubscribeToTaskRequest():
            found += _required(request.id, "id")
        case a2a.ListTasksRequest():
            found += _list_violations(request)
        case a2a.TaskPushNotificationConfig():
            found += _required(request.task_id, "taskId") + push_violations(request)
        case a2a.GetTaskPushNotificationConfigRequest() | a2a.DeleteTaskPushNotificationConfigRequest():
            found += _required(request.task_id, "taskId") + _required(request.id, "id")
        case a2a.ListTaskPushNotificationConfigsRequest():
            found += _required(request.task_id, "taskId") + _not_negative(request.page_size, "pageSize")
        case _:
            pass
    return found


def check(request: T) -> T:
    """The request, or InvalidParams with all its violations."""
    found = violations(request)
    if found:
        raise InvalidParams(found)
    return request


def _list_violations(request: a2a.ListTasksRequest) -> list[Violation]:
    found = _not_negative(request.history_length, "historyLength")
    if request.page_size is not None and not 1 <= request.page_size <= MAX_PAGE_SIZE:
        found.append(Violation("pageSize", f"must be 1 to {MAX_PAGE_SIZE}, got {request.page_size}"))
    if request.status_timestamp_after:
        try:
            a2a.read_time(request.status_timestamp_after, "statusTimestampAfter")
        except BadRequest as error:
            found.append(Violation("statusTimestampAfter", str(error).removeprefix("statusTimestampAfter ")))
    return found


def _required(value: str, name: str) -> list[Violation]:
    return [] if value else [Violation(name, "is required")]


def _not_negative(value: int | None, name: str) -> list[Violation]:
    return [Violation(name, f"must not be negative, got {value}")] if value is not None and value < 0 else []


def media_type(part: a2a.Part) -> str:
    """The media type of a part, lower case and without parameters: text is text/plain and data application/json when it
    does not say; "" for a file that does not say."""
    said = part.media_type.partition(";")[0].strip().lower()
    if said:
        return said
    return "text/plain" if part.text is not None else "" if part.kinds != ["data"] else "application/json"


def accepts(modes: Iterable[str], kind: str) -> bool:
    """Whether one of the media types or ranges (`image/*`, `*/*`, `text`) covers `kind`; all cover an unknown kind ""."""
    for mode in modes:
        mode = mode.partition(";")[0].strip().lower()
        if not kind or mode in (kind, "*/*", "*") or kind.startswith(mode.removesuffix("*").rstrip("/") + "/"):
            return True
    return not kind


def refused(message: a2a.Message, modes: Sequence[str]) -> list[str]:
    """The media types in `message` that none of `modes` accepts (T022)."""
    return [kind for kind in map(media_type, message.parts) if not accepts(modes, kind)]


def read_version(text: str | None) -> str:
    """The value of A2A-Version as Major.Minor; a patch part is ignored; nothing means "0.3". VersionNotSupported for what is no
    version; whether the version is served is the handler's matter."""
    text = (text or "").strip()
    if not text:
        return "0.3"
    numbers = text.split(".")
    if len(numbers) not in (2, 3) or not all(n.isascii() and n.isdigit() and len(n) < 6 for n in numbers):
        raise VersionNotSupported(f"A2A-Version must be Major.Minor such as 1.0, got {text[:40]!r}")
    return f"{int(numbers[0])}.{int(numbers[1])}"


def read_extensions(values: Iterable[str]) -> list[str]:
    """The URIs in the values of all A2A-Extensions headers, in order, each once."""
    found = (uri.strip() for value in values for uri in value.split(","))
    return list(dict.fromkeys(uri for uri in found if uri))
