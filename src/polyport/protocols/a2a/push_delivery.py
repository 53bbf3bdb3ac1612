"""Sending one push notification: the request, what its answer means, and when to try again (spec a2a 1.10).

Used by the outbox. Redirects are followed on the same host only, and no address is connected to that was not checked
(`agents.a2a_http`). Never logs a secret.
"""

import asyncio
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime

import anyio

from polyport.agents.a2a_http import Answer, HttpClient, Outgoing
from polyport.errors import BadRequest, Forbidden, PolyportError
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.seams import Seams
from polyport.wire.a2a import TaskPushNotificationConfig

MEDIA = "application/a2a+json"
TOKEN_HEADERS = ("A2A-Notification-Token", "X-A2A-Notification-Token")
"""The specification names no header for the token; receivers look for one of these."""
AGAIN = frozenset({408, 425, 429})
"""Client errors that may be over soon."""
MAX_ANSWER = 64 * 1024


Again = Callable[[float], Awaitable[TaskPushNotificationConfig]]


class GaveUp(Exception):
    """A notification that will not be tried again; the text says why."""


class Lost(Exception):
    """A receiver that is not to be told any more, or not from here."""


class Delivery:
    """See the module. One for all receivers: `at_once` bounds what is on its way."""

    def __init__(self, settings: PushSettings, http: HttpClient, seams: Seams) -> None:
        self._settings = settings
        self._http = http
        self._seams = seams
        self._room = asyncio.Semaphore(settings.at_once)
        self._bell = asyncio.Event()

    async def send(self, config: TaskPushNotificationConfig, again: Again, body: bytes) -> None:
        """Return when the receiver has it. GaveUp; and what `again` raises, which is asked before a wait with its seconds, and
        after one with 0, for the configuration of the moment."""
        settings, reason = self._settings, ""
        for attempt in range(settings.attempts):
            waits = self._room.locked()
            async with self._room:
                if waits:  # longer, perhaps, than the receiver is ours
                    config = await again(0.0)
                reason, wait_s = await self._try(config, body)
            if not reason:
                return
            if attempt + 1 < settings.attempts:
                backoff = min(settings.backoff_s * 2.0**attempt, settings.backoff_max_s)
                wait_s = max(backoff * (0.5 + self._seams.chance() / 2), wait_s)
                await again(wait_s)
                await anyio.sleep(wait_s)
                config = await again(0.0)
        raise GaveUp(f"{reason} ({settings.attempts} attempts)")

    async def _try(self, config: TaskPushNotificationConfig, body: bytes) -> tuple[str, float]:
        """What went wrong, "" if nothing, and how long the receiver wants to be left alone. GaveUp for what stays wrong."""
        request = Outgoing(
            method="POST",
            url=config.url,
            headers=headers_of(config),
            body=body,
            timeout_s=self._settings.timeout_s,
            public_only=not self._settings.allow_private,
        )
        try:
            answer = await self._http.send(request, MAX_ANSWER)
        except (Forbidden, BadRequest) as error:
            raise GaveUp(str(error)) from None
        except PolyportError as error:
            return str(error), 0.0
        if 200 <= answer.status < 300:
            return "", 0.0
        reason = f"it answered {answer.status}"
        if answer.status < 500 and answer.status not in AGAIN:
            raise GaveUp(reason)
        return reason, min(self._asked_wait(answer), self._settings.backoff_max_s)

    def _asked_wait(self, answer: Answer) -> float:
        """Retry-After in seconds, 0 for none."""
        text = answer.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit() and len(text) < 9:
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - self._seams.clock()) if text else 0.0
        except ValueError:
            return 0.0

    def tell(self) -> None:
        """Somebody has nothing more to send."""
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def done(self) -> None:
        """Wait for the next `tell`."""
        await self._bell.wait()


def headers_of(config: TaskPushNotificationConfig) -> dict[str, str]:
    """The headers of a notification (T058)."""
    found = {"Content-Type": MEDIA}
    said = config.authentication
    if said is not None and said.credentials:
        found["Authorization"] = f"{said.scheme} {said.credentials}"
    if config.token:
        found |= dict.fromkeys(TOKEN_HEADERS, config.token)
    return found
