"""Event: one thing that happened in a session, in the stored JSON of spec core 1.4 and 1.5.

Made by agents, made true by the engine's commit, kept by stores, spelled by protocols. Immutable, but for its
`actions` while a tool or callback fills them.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from polyport.codec import Data
from polyport.data.content import Content, FunctionCall, FunctionResponse
from polyport.data.model import ModelResponse


class ToolConfirmation(Data, frozen=True, kw_only=True, omit_defaults=False):
    """A request for a human's yes, or the answer to it. All three members are always written."""

    hint: str = ""
    confirmed: bool = False
    payload: Any = None


class Compaction(Data, frozen=True, kw_only=True):
    """A summary that stands for the events between two times (float epoch seconds) in prompts."""

    start_timestamp: float
    end_timestamp: float
    compacted_content: Content


class EventActions(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Side effects that come true with the event. A delta of None is absent in JSON, an empty one is `{}`."""

    state_delta: dict[str, Any] | None = None
    artifact_delta: dict[str, int] | None = None
    requested_tool_confirmations: dict[str, ToolConfirmation] = {}
    skip_summarization: bool = False
    transfer_to_agent: str = ""
    escalate: bool = False
    end_invocation: bool = False
    compaction: Compaction | None = None


def new_actions() -> EventActions:
    """Actions of a new event: both deltas allocated and empty (spec core 1.4)."""
    return EventActions(state_delta={}, artifact_delta={})


NO_ACTIONS = new_actions()
"""The actions of all partial events, which never come true. Never to be filled."""


UNPUBLISHED = "polyport:unpublished"
"""The key of `custom_metadata` that marks an event which is stored, but not shown to those who watch its run."""


class RequestInput(Data, frozen=True, kw_only=True):
    """A workflow node asks a human."""

    interrupt_id: str = ""
    message: str = ""
    response_schema: dict[str, Any] | None = None
    payload: Any = None


class NodeInfo(Data, frozen=True, kw_only=True):
    path: str = ""
    message_as_output: bool = False
    output_for: list[str] = []


def _text() -> str:
    return ""  # an own factory, so that the field is written even when it is empty


class Event(ModelResponse, frozen=True, kw_only=True):
    """See spec core 1.4: what a model's response has (content, usage, errors, ...) lies flat beside the event's own members.
    `timestamp` is aware UTC with microseconds, or None when unset."""

    id: str = field(default_factory=_text)
    timestamp: datetime | None = field(default_factory=lambda: None)
    invocation_id: str = field(default_factory=_text)
    author: str = field(default_factory=_text)
    branch: str = ""
    actions: EventActions = field(default_factory=new_actions)
    long_running_tool_ids: list[str] = []
    isolation_scope: str = ""
    routes: list[str] = []
    requested_input: RequestInput | None = None
    output: Any = None
    node_info: NodeInfo | None = None

    @property
    def text(self) -> str:
        """The text of the content without thoughts, or ""."""
        return self.content.text if self.content is not None else ""

    @property
    def calls(self) -> list[FunctionCall]:
        return self.content.calls if self.content is not None else []

    @property
    def responses(self) -> list[FunctionResponse]:
        return self.content.responses if self.content is not None else []

    @property
    def unpublished(self) -> bool:
        return self.custom_metadata is not None and UNPUBLISHED in self.custom_metadata

    @property
    def final(self) -> bool:
        """Whether this ends the agent's turn (spec core 1.4, "Final response rule")."""
        if self.actions.skip_summarization or self.long_running_tool_ids:
            return True
        if self.partial:
            return False
        parts = self.content.parts if self.content is not None else []
        if any(p.function_call is not None or p.function_response is not None for p in parts):
            return False
        return not (parts and parts[-1].code_execution_result is not None)
