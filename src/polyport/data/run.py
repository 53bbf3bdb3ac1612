"""What starts a run, how it is to run, and how it ended."""

from typing import Any, Literal

from msgspec import Struct

from polyport.data.content import Content
from polyport.data.live import LiveConfig
from polyport.data.session import SessionKey

Ending = Literal["done", "paused", "escalated", "ended"]
"""How an agent's turn ended: by itself; waiting for somebody outside; with `escalate`; with the whole run told to end."""


class RunConfig(Struct, frozen=True, kw_only=True):
    """Settings of one run. `streaming` asks for partial events. `max_llm_calls` counts over the whole tree of agents. None
    is what the app's Limits say."""

    streaming: bool = False
    save_input_blobs: bool = False
    yield_user_message: bool = False
    max_llm_calls: int | None = None
    timeout_s: float | None = None
    history_window: int | None = None
    """How many of the newest events go into prompts."""
    metadata: dict[str, Any] = {}
    live: LiveConfig | None = None
    """Makes the run a live session: it begins without a message, and takes what `Run.tell` brings until `Run.hang_up`."""


class RunRequest(Struct, frozen=True, kw_only=True):
    """A wish to run an agent. Without `message`, `invocation_id` names a run to go on with."""

    key: SessionKey
    message: Content | None = None
    invocation_id: str = ""
    state_delta: dict[str, Any] = {}
    config: RunConfig = RunConfig()
    create_session: bool = False


class RunOutcome(Struct, frozen=True, kw_only=True):
    """How a run ended. `error` is set for "failed"; `reason` says why for "cancelled"."""

    status: Literal["finished", "paused", "failed", "cancelled"]
    error: Exception | None = None
    reason: str = ""
