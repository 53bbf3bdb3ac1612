"""The settings of push notifications. Chosen by the app; apart from `push`, which needs an HTTP client. Holds values only."""

from msgspec import Struct
from msgspec.structs import asdict

from polyport.errors import ConfigError


class PushSettings(Struct, frozen=True, kw_only=True):
    """Where notifications may go, and how hard it is tried. ConfigError for what makes no sense."""

    allow_http: bool = False
    """Whether a receiver may be without TLS."""
    allow_private: bool = False
    """Whether receivers may be in this network: loopback, private and link-local addresses."""
    show_secrets_to_anonymous: bool = False
    """Whether callers without an identity, who cannot be told apart, see tokens and credentials of configurations."""

    timeout_s: float = 15.0
    """How long a receiver may take for one notification."""
    attempts: int = 6
    """How often one notification is tried."""
    backoff_s: float = 1.0
    """The wait after the first failure; it doubles with each further one."""
    backoff_max_s: float = 60.0
    at_once: int = 64
    """How many notifications are on their way at one time. Beside them, a quarter as many are tried again."""
    waiting: int = 10_000
    """How many may wait for one receiver; the oldest are given up."""
    configs_per_task: int = 16
    dead_letters: int = 1000
    """How many that were given up are kept to be looked at."""
    look_s: float = 1.0
    """How often it is looked for receivers that no process tells, where configurations last."""
    drain_s: float = 5.0
    """How long is waited at the end for those that are on their way."""
    url_chars: int = 2048
    """The longest URL, token and credentials."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, bool) and (value < 0 or (value == 0 and name not in _MAY_BE_ZERO)):
                raise ConfigError(f"A2A push settings: {name} is {value}; it must be above zero")


_MAY_BE_ZERO = frozenset({"drain_s", "dead_letters", "backoff_s"})
