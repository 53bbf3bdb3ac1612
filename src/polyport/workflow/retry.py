"""How often a node is tried, and how long is waited in between (spec core 4.5). Data; the scheduler waits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyport.errors import ConfigError

RetryOn = Callable[[Exception], object] | Sequence[type[Exception]]


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """`max_attempts` counts the first try. The n-th wait is `initial_s * factor ** (n - 1)`, at most `max_s` seconds, more or
    less by the ratio `jitter`. `retry_on`, exceptions or a predicate, says after which errors; all by default. An input that
    does not fit is never tried again."""

    max_attempts: int = 5
    initial_s: float = 1.0
    max_s: float = 60.0
    factor: float = 2.0
    jitter: float = 1.0
    retry_on: RetryOn | None = None

    def __post_init__(self) -> None:
        if self.initial_s < 0 or self.max_s < 0 or not 0 <= self.jitter <= 1:
            raise ConfigError("a RetryPolicy needs initial_s and max_s of 0 or more, and a jitter from 0 to 1")

    def again(self, attempt: int, error: Exception) -> bool:
        """Whether the node is tried again after its n-th attempt failed."""
        if attempt >= self.max_attempts:
            return False
        if self.retry_on is None:
            return True
        if isinstance(self.retry_on, type):
            return isinstance(error, self.retry_on)
        if callable(self.retry_on):
            return bool(self.retry_on(error))
        return any(isinstance(error, kind) for kind in self.retry_on)

    def wait_s(self, attempt: int, chance: float) -> float:
        """Seconds before the attempt after the n-th one; `chance` is in [0, 1)."""
        factor = self.factor if self.factor > 0 else 1.0
        try:
            base = min(self.initial_s * factor ** (attempt - 1), self.max_s)
        except OverflowError:
            base = self.max_s
        return max(0.0, base * (1 + self.jitter * (2 * chance - 1)))
