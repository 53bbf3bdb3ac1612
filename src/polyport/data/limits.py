"""Limits: every number that keeps a caller from using up the server, in one frozen Struct with units in the names.

Chosen by the App (or the command line), read by the host, by every protocol and by the run coordinator. Holds values only.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from polyport.errors import ConfigError

MIB = 1024 * 1024


class Limits(Struct, frozen=True, kw_only=True):
    """The settings of DESIGN section 5. ConfigError when one makes no sense."""

    # ---- bytes from outside
    body_bytes: int = 10 * MIB
    """The largest body of an HTTP request; more is 413."""
    live_message_bytes: int = 16 * MIB
    """The largest message on a live connection; more closes it with 1009."""
    live_queue_bytes: int = 16 * MIB
    """How much of what a live client said may wait for the model; above it no more is read from the client.
    And how much of what is said to it may wait until it reads."""
    json_depth: int = 64
    """How deep JSON from outside may nest."""
    query_fields: int = 100
    """How many fields a query string may have."""

    # ---- streams
    sse_timeout_s: float = 120.0
    """How long one event stream may last. 0 means the default of 120 s, below 0 means no limit (spec rest 59)."""
    heartbeat_s: float = 15.0
    """The longest silence on an event stream before a comment is sent; 0 sends none."""
    feed_items: int = 100_000
    """How many published events of one run are kept; a follower that is further behind is dropped."""
    keep_ended: int = 256
    """How many ended runs keep their feed for late followers."""
    keep_ended_items: int = 20_000
    """How many events the feeds of ended runs may hold together."""

    # ---- one caller: its user, or its address while it is anonymous; 0 is no limit. Public routes do not count
    caller_requests_per_s: float = 0.0
    """Requests of one caller per second, over time; more is 429."""
    caller_burst: int = 20
    """How many requests of one caller may come at once before that counts."""
    caller_requests: int = 0
    """Requests of one caller at one time, streams and live connections among them; more is 429."""
    user_runs: int = 0
    """Runs as one user at one time, over all its sessions and apps; more is 429."""

    # ---- runs
    max_runs: int = 4096
    """Runs at one time, over all sessions; more is 429."""
    on_busy: Literal["queue", "reject", "interrupt"] = "queue"
    """What a message to a session with an active run does: wait its turn, be refused (409), or stop the active run and take
    its place."""
    max_takeovers: int = 3
    """How many processes a run may outlive, one after the other, before it is given up (only in a cluster)."""
    queue_length: int = 32
    """Messages that may wait for one busy session; more is 429."""
    queue_wait_s: float = 120.0
    """How long a message waits for a busy session before it is 409."""
    run_timeout_s: float = 600.0
    """The wall clock of one run."""
    max_llm_calls: int = 100
    """Model calls of one run, over the whole tree of agents."""
    history_window: int | None = None
    """How many of the newest events go into prompts; None is all."""
    max_live_sessions: int = 256
    """Live connections at one time; more is 503."""
    live_timeout_s: float = 7200.0
    """The wall clock of one live session; 0 is no limit."""
    live_stall_s: float = 30.0
    """How long a live client's message may wait for the model before the session is closed."""
    shutdown_s: float = 10.0
    """How long runs may take to end after the server was told to stop."""

    def __post_init__(self) -> None:
        if self.on_busy not in ("queue", "reject", "interrupt"):
            raise ConfigError(f"limits: on_busy is {self.on_busy!r}; it must be queue, reject or interrupt")
        for name, value in asdict(self).items():
            if name in ("sse_timeout_s", "on_busy") or value is None:
                continue
            if not value >= 0 or (value == 0 and name not in _MAY_BE_ZERO):  # NaN is neither
                raise ConfigError(f"limits: {name} is {value}; it must be above zero")

    @property
    def sse_deadline_s(self) -> float | None:
        """Seconds that an event stream may last, None for no limit."""
        if self.sse_timeout_s < 0:
            return None
        return self.sse_timeout_s or 120.0


_MAY_BE_ZERO = frozenset(
    {
        "heartbeat_s",
        "queue_length",
        "queue_wait_s",
        "shutdown_s",
        "keep_ended",
        "keep_ended_items",
        "live_timeout_s",
        "caller_requests_per_s",
        "caller_requests",
        "user_runs",
    }
)
