"""What may be set about triggers: retries, webhooks with a secret, schedules. Checked when an app is put together.

Read by `mount`, `deliveries` and `timetable`. Holds values only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from polyport.errors import ConfigError
from polyport.wire.webhook_sign import signing_key


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How often a run that failed for a passing reason goes on, and after how many seconds; how many deliveries are carried
    out at once, and how many may wait. ConfigError for what makes no sense."""

    max_retries: int = 3
    base_delay_s: float = 1.0
    max_delay_s: float = 10.0
    max_concurrent_runs: int = 100
    max_queued: int = 1000

    def __post_init__(self) -> None:
        for name in ("max_retries", "max_delay_s", "max_concurrent_runs"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"triggers: {name} is {getattr(self, name)}; it must be above zero")
        for name in ("base_delay_s", "max_queued"):
            if getattr(self, name) < 0:
                raise ConfigError(f"triggers: {name} is {getattr(self, name)}; it must not be below zero")

    @property
    def longest_s(self) -> float:
        """More than any delay takes."""
        return self.max_delay_s * 1.5

    def delay(self, retries: int, chance: float) -> float:
        """Seconds until the next attempt, after so many retries; `chance` in [0, 1) spreads them (spec rest 7.5)."""
        wait = min(self.base_delay_s * 2.0 ** min(retries, 64), self.max_delay_s)
        return wait * (1 + chance / 2)


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A webhook whose messages are signed, and which therefore needs no other authentication.

    `secret` is the one that its sender signs with, or several while it is being replaced: `whsec_` and base64, or text.
    `scheme` is "standard" (Standard Webhooks) or "github" (X-Hub-Signature-256).
    """

    secret: str | Sequence[str] = field(repr=False)
    scheme: Literal["standard", "github"] = "standard"

    def __post_init__(self) -> None:
        if self.scheme not in ("standard", "github"):
            raise ConfigError(f"triggers: the scheme of a webhook is {self.scheme!r}; it must be standard or github")
        if not self.keys():
            raise ConfigError("triggers: a webhook needs a secret")

    def keys(self) -> list[bytes]:
        """The keys of its secrets."""
        secrets = [self.secret] if isinstance(self.secret, str) else self.secret
        return [signing_key(secret) for secret in secrets]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """An agent that is asked at certain times.

    `cron` has five fields (minute, hour, day, month, day of week) as in crontab, `timezone` is a name such as `Europe/Rome`.
    `app` is the first app without it. `name` tells schedules apart, also those of several processes: each time is carried out
    once. Each run has a session of its own.
    """

    name: str
    cron: str
    message: str
    app: str = ""
    user: str = "schedule"
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        for name in ("name", "message", "user"):
            if not getattr(self, name):
                raise ConfigError(f"triggers: schedule {self.name!r} needs a {name}")
        self.zone()
        self.next(datetime(2026, 1, 1, tzinfo=self.zone()))

    def zone(self) -> tzinfo:
        try:
            return ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigError(
                f"triggers: schedule {self.name!r} has the time zone {self.timezone!r}, which this machine does not know; "
                "use a name such as Europe/Rome (where no zone is known: pip install tzdata)"
            ) from None

    def next(self, after: datetime) -> datetime:
        """The first time after `after`, which is in the schedule's zone. ConfigError for an expression that names none."""
        try:
            from cronsim import CronSim, CronSimError  # an optional dependency
        except ModuleNotFoundError:
            raise ConfigError("schedules need the package cronsim: pip install 'polyport[triggers]'") from None
        try:
            if len(self.cron.split()) != 5:
                raise CronSimError("it must have five fields")
            return next(CronSim(self.cron, after))
        except (CronSimError, StopIteration) as error:
            why = f": {error}" if str(error) else ""
            raise ConfigError(f"triggers: schedule {self.name!r} has the times {self.cron!r}{why}") from None
