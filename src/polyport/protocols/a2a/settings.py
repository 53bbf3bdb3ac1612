"""The settings of an A2A server: what it admits and keeps, how its agents' answers look, and the hooks of whoever runs it.

Chosen by the app, read by the handler and the executor. Holds values only. A hook may be sync (it runs in a worker thread) or
async.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from polyport.data.content import Part
from polyport.data.run import RunRequest
from polyport.errors import AgentError, ConfigError
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.projection import Output, ToA2aPart, to_a2a_part
from polyport.wire.a2a import Message, SendMessageRequest
from polyport.wire.a2a import Part as A2aPart

FromA2aPart = Callable[[Message, A2aPart], Part | None]
"""`(message, part)` -> what the agent gets; None drops the part. BadRequest refuses the message."""

DAY_S = 86_400.0


class TaskRejected(AgentError):
    """Raised by `before_execute`: the agent does not want this message, and the task becomes REJECTED."""


class Execution:
    """One message about to be carried out, for hooks. `run` is what will be started; `before_execute` may set another one."""

    __slots__ = ("call", "context_id", "request", "run", "task_id")

    def __init__(
        self, call: CallContext, request: SendMessageRequest, task_id: str, context_id: str, run: RunRequest
    ) -> None:
        self.call = call
        self.request = request
        self.task_id = task_id
        self.context_id = context_id
        self.run = run

    @property
    def message(self) -> Message:
        return self.request.message


@dataclass(frozen=True, kw_only=True)
class ExecutorConfig:
    """How an agent's run becomes a task (spec a2a 3).

    - `before_execute(execution)` may change `execution.run`, or refuse by an error (TaskRejected for REJECTED, else FAILED).
    - `after_event(execution, event, update)` gives another update, or None for the same; an error fails the task.
    - `after_execute(execution, status, error)` gives another NewStatus, or None for the same; an error fails the task.
    - `message_reply(call, request)` gives a Message instead of a task, or None for a task.
    - `cleanup(call, task, session)` after a task was canceled that was waiting for an answer.
    - `user_id(call, context_id)` names the user of the session; the caller, else `A2A_USER_<contextId>`, without it.
    """

    output: Output = "artifact-per-event"
    """google-adk's client stores nothing of an artifact that is not closed, so of an "artifact-per-run" it keeps no answer."""
    streaming: bool = True
    """Whether tokens are streamed, where somebody may be looking."""
    to_a2a_part: ToA2aPart = to_a2a_part
    from_a2a_part: FromA2aPart | None = None
    before_execute: Callable[..., Any] | None = None
    after_event: Callable[..., Any] | None = None
    after_execute: Callable[..., Any] | None = None
    message_reply: Callable[..., Any] | None = None
    cleanup: Callable[..., Any] | None = None
    user_id: Callable[[CallContext, str], str] | None = None


class A2aSettings(Struct, frozen=True, kw_only=True):
    """What a handler admits, and how long it keeps what. ConfigError when one makes no sense."""

    streaming: bool = True
    """The capability: off, both stream methods are unsupported."""
    versions: tuple[str, ...] = ("1.0", "0.3")
    strict_version: bool = False
    """Whether a call without A2A-Version is one of version 0.3, as the spec says; else it is taken as it comes."""
    required_extensions: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    """Further extensions that are activated when a caller asks for them."""
    tenants: Collection[str] | None = None
    """The tenants there are; None admits any."""
    input_modes: tuple[str, ...] = ()
    """Media types that messages may have; empty does not check. `acceptedOutputModes` has no effect."""
    cancel_twice: bool = True
    """Whether cancelling a canceled task gives the task; else it is TaskNotCancelable."""
    resume: bool = True
    """Whether tasks of a process that died go on; else they fail."""

    queued_messages: int = 8
    """Messages that may wait for a task that is being worked on; more is LimitExceeded."""
    feed_items: int = 10_000
    """How many frames a reader of a stream may be behind."""
    dedup_window_s: float = 600.0
    """How long a message that comes again with the same id is known."""
    cancel_wait_s: float = 5.0
    """How long CancelTask waits for the work to have stopped; it is told to at once."""
    retention_s: float = 7 * DAY_S
    """How long a task that has ended is kept."""
    abandoned_s: float = 30 * DAY_S
    """How long a task that waits for its caller is kept."""
    sweep_every_s: float = 60.0
    """How often old tasks are looked for, at most."""
    id_chars: int = 512
    """The longest contextId and messageId of a caller."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not isinstance(value, bool) and value < (name in _COUNTS):
                raise ConfigError(
                    f"A2A settings: {name} is {value}; it must be {'above zero' if name in _COUNTS else '0 or more'}"
                )


_COUNTS = frozenset({"feed_items", "id_chars"})
