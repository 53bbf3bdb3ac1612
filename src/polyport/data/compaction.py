"""CompactionConfig: when the older part of a session is replaced by a summary in prompts, and who writes it (spec core 3.12).

Chosen by the user, checked here and by the App against every agent, read by `engine/compaction`. Holds values only.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.errors import ConfigError

Summariser = Callable[[Sequence[Event], Content | None], Awaitable[Content | None]]
"""`(events, summary of what was before them)` -> one Content that stands for both, or None for "leave it as it is"."""

_PAIRS = (("token_threshold", "event_retention_size"), ("compaction_interval", "overlap_size"))


class CompactionConfig(Struct, frozen=True, kw_only=True):
    """`CompactionConfig(token_threshold=50_000, event_retention_size=20)` by size, `CompactionConfig(compaction_interval=10,
    overlap_size=1)` by number of invocations, or both; the size is looked at first.

    A pair is set together. ConfigError names the field that is wrong.
    """

    token_threshold: int | None = None
    """Summarise when the newest prompt had this many tokens or more."""
    event_retention_size: int | None = None
    """How many of the newest events are then left as they are."""
    compaction_interval: int | None = None
    """Summarise after so many invocations since the last summary."""
    overlap_size: int | None = None
    """How many invocations before those are told to the summariser once more."""

    summariser: Summariser | None = None
    """Writes the summaries. Without one the model below is asked, once for each summary."""
    model: str = ""
    """The name of the model that writes them; "" is that of the root agent. For a model object give
    `summariser=LlmSummariser(model)`."""
    summary_tokens: int = 4096
    """How long a summary of the model may be, its thinking included."""
    part_chars: int = 20_000
    """How much of one text, of one call's arguments or of one result the model is told; the middle of a longer one is left
    out, and the model is told so."""
    timeout_s: float = 30.0
    """How long writing one summary may take. The next message on the session waits for it."""

    def __post_init__(self) -> None:
        for first, second in _PAIRS:
            if (getattr(self, first) is None) != (getattr(self, second) is None):
                missing = second if getattr(self, second) is None else first
                raise ConfigError(f"compaction: {first} and {second} are set together; {missing} is missing")
        if self.token_threshold is None and self.compaction_interval is None:
            raise ConfigError(
                "compaction: set token_threshold and event_retention_size, or compaction_interval and overlap_size"
            )
        for name in ("token_threshold", "compaction_interval", "summary_tokens", "part_chars"):
            self._check_count(name, 1)
        for name in ("event_retention_size", "overlap_size"):
            self._check_count(name, 0)
        if not self.timeout_s > 0:
            raise ConfigError(f"compaction: timeout_s is {self.timeout_s}; it must be above zero")
        if self.summariser is not None and not callable(self.summariser):  # pyright: ignore[reportUnnecessaryComparison]  user code is not checked
            raise ConfigError("compaction: summariser must be an async function (events, previous_summary) -> Content")
        if self.summariser is not None and self.model:
            raise ConfigError("compaction: model is set beside summariser, which does not use it; set one of them")

    def _check_count(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"compaction: {name} is {value!r}; it must be a whole number, {least} or more")
