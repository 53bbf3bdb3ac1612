"""Retrying: a model that is asked again when its provider fails; and which failures are the provider's.

Made by users, for models of their own that do not retry by themselves (those of this package do, see `models/http`). Never
starts over once a piece of an answer was handed on, and never waits for a cancelled run.
"""

import logging
from collections.abc import Awaitable, Callable

import anyio

from polyport.data.model import ModelRequest, ModelResponse
from polyport.errors import ConfigError, ModelError
from polyport.models.registry import resolve
from polyport.ports.live import LiveModel, live_model
from polyport.ports.model import Model, OnPartial
from polyport.seams import REAL, Seams

log = logging.getLogger("polyport.models")

_BUSY = frozenset({408, 409, 425, 429})
"""Refusals below 500 that are about the moment, not about the request."""
_OURS = ("invalid", "auth", "permission", "not_found", "billing", "too_large", "context_length", "unsupported")
"""Words in the codes of refusals that another try would meet again."""


def provider_fault(error: Exception) -> bool:
    """Whether another try, or another provider, may do better: the server was down, overloaded or broke off.

    Not so for a request that was refused for what it is: a 400, a wrong key, an unknown model."""
    if not isinstance(error, ModelError):
        return False
    if error.http_status:
        return error.http_status >= 500 or error.http_status in _BUSY
    return not any(word in error.code.lower() for word in _OURS)


class Pieces:
    """Hands on the pieces of an answer, and knows whether there was one."""

    __slots__ = ("_on_partial", "started")

    def __init__(self, on_partial: OnPartial) -> None:
        self._on_partial = on_partial
        self.started = False

    async def __call__(self, piece: ModelResponse) -> None:
        self.started = True
        await self._on_partial(piece)


class Retrying:
    """`model` (or the name of one), asked at most `attempts` times.

    Waits `base_s * 2**n` seconds between, jittered, at most `max_wait_s`; a Retry-After above that is not waited for: the error
    comes at once (FR-083). `again(error)` says which errors are tried again, by default those that are the provider's fault.
    """

    def __init__(
        self,
        model: Model | str,
        attempts: int = 3,
        *,
        base_s: float = 0.5,
        max_wait_s: float = 20.0,
        again: Callable[[Exception], bool] = provider_fault,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        seams: Seams = REAL,
    ) -> None:
        if attempts < 1 or base_s < 0 or max_wait_s < 0:
            raise ConfigError("Retrying needs attempts of at least 1, and base_s and max_wait_s of at least 0 seconds")
        self._model = resolve(model) if isinstance(model, str) else model
        self._attempts = attempts
        self._base_s = base_s
        self._max_wait_s = max_wait_s
        self._again = again
        self._sleep = sleep
        self._seams = seams

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def schema_with_tools(self) -> bool:
        return self._model.schema_with_tools

    @property
    def live(self) -> LiveModel | None:
        """What holds live sessions, see `ports.live.live_model`. The engine connects again by itself when that fails."""
        return live_model(self._model)

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        """The first answer that comes. Raises the last error."""
        pieces = Pieces(on_partial) if on_partial is not None else None
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._model.generate(request, pieces)
            except Exception as error:
                wait = None if pieces is not None and pieces.started else self._wait(error, attempt)
                if wait is None:
                    raise
                log.warning("model %s failed (%s); attempt %d follows", self.name, brief(error), attempt + 1)
            await self._sleep(wait)

    async def aclose(self) -> None:
        await self._model.aclose()

    def _wait(self, error: Exception, attempt: int) -> float | None:
        """Seconds until the next attempt; None to give up."""
        if attempt >= self._attempts or not self._again(error):
            return None
        asked = error.retry_after_s if isinstance(error, ModelError) else None
        if asked is not None:
            return asked if asked <= self._max_wait_s else None
        return min(self._base_s * 2.0 ** (attempt - 1), self._max_wait_s) * (0.5 + self._seams.chance() / 2)


def brief(error: Exception) -> str:
    """An error for a log line or another error: of one that is not ours only the type, for its text may hold secrets."""
    return " ".join(str(error).split())[:300] if isinstance(error, ModelError) else type(error).__name__
