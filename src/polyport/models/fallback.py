"""Fallback: several models that stand in for each other when a provider fails (FR-083).

Made by users; the engine asks it like any model. It changes to the next model only before the first piece of an answer was
handed on, and never for an error that is the request's own fault. It talks to no server itself.
"""

import logging
from collections.abc import Callable

from msgspec import structs

from polyport.data.model import ModelRequest, ModelResponse
from polyport.errors import ConfigError, ModelError
from polyport.models.registry import resolve
from polyport.models.retry import Pieces, brief, provider_fault
from polyport.ports.live import LiveModel, live_model
from polyport.ports.model import Model, OnPartial
from polyport.seams import REAL, Seams

log = logging.getLogger("polyport.models")


class Fallback:
    """The first of `models` (objects or names) that answers, in this order.

    A model that failed comes last for `cooldown_s` seconds, or for as long as its provider asked by Retry-After.
    `next_for(error)` says for which errors the next one is asked, by default those that are the provider's fault.

    The `headers` and `extra` of a request are made for one provider and may hold a key: only the first model gets them, unless
    `share_extras`. The answer's `model_version` names who answered.
    """

    def __init__(
        self,
        *models: Model | str,
        cooldown_s: float = 30.0,
        next_for: Callable[[Exception], bool] = provider_fault,
        share_extras: bool = False,
        seams: Seams = REAL,
    ) -> None:
        if not models:
            raise ConfigError("Fallback needs at least one model: Fallback(first, second)")
        if cooldown_s < 0:
            raise ConfigError("cooldown_s of a Fallback is a number of seconds, at least 0")
        self._models = tuple(resolve(m) if isinstance(m, str) else m for m in models)
        self._cooldown_s = cooldown_s
        self._next_for = next_for
        self._share_extras = share_extras
        self._seams = seams
        self._failed: dict[int, tuple[float, float]] = {}
        """Which models failed: since when, and for how many seconds they come last."""

    @property
    def name(self) -> str:
        """The name of the first model."""
        return self._models[0].name

    @property
    def schema_with_tools(self) -> bool:
        """Whether all models can do it, for any of them may have to."""
        return all(m.schema_with_tools for m in self._models)

    @property
    def live(self) -> LiveModel | None:
        """What holds live sessions, see `ports.live.live_model`: the first model, if it can. None stands in for it there."""
        return live_model(self._models[0])

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        """The first answer that comes. When several models failed, ModelError with the name and the error of each."""
        pieces = Pieces(on_partial) if on_partial is not None else None
        errors: dict[int, Exception] = {}
        for index in self._order():
            model = self._models[index]
            if errors:
                log.warning("trying model %s: %s", model.name, self._story(errors))
            try:
                answer = await model.generate(self._asked(request, index), pieces)
            except Exception as error:
                errors[index] = error
                if self._next_for(error):
                    self._cool(index, error)
                    if pieces is None or not pieces.started:
                        continue
                if len(errors) == 1:
                    raise
                break
            self._failed.pop(index, None)
            return answer if answer.model_version else structs.replace(answer, model_version=model.name)
        raise self._failure(errors)

    async def aclose(self) -> None:
        """Close every model, also when one of them fails to; then raise the first error."""
        problem: Exception | None = None
        for model in self._models:
            try:
                await model.aclose()
            except Exception as error:  # noqa: BLE001  the others have connections, too
                problem = problem or error
        if problem is not None:
            raise problem

    def _order(self) -> list[int]:
        """The models that may be well, then those that failed lately: they are better than nothing."""
        return sorted(range(len(self._models)), key=self._is_cooling)

    def _is_cooling(self, index: int) -> bool:
        since, length_s = self._failed.get(index, (0.0, 0.0))
        return 0 <= self._seams.clock() - since < length_s  # a clock that was set back ends it

    def _cool(self, index: int, error: Exception) -> None:
        asked = error.retry_after_s if isinstance(error, ModelError) else None
        self._failed[index] = (self._seams.clock(), max(self._cooldown_s, asked or 0.0))

    def _asked(self, request: ModelRequest, index: int) -> ModelRequest:
        """The request as this model is to see it: with its own name."""
        if index == 0:
            return request
        asked = structs.replace(request, model=self._models[index].name)
        if not self._share_extras and (request.config.headers or request.config.extra):
            asked.config = structs.replace(request.config, headers={}, extra={})
        return asked

    def _story(self, errors: dict[int, Exception]) -> str:
        return "; ".join(f"{self._models[i].name}: {brief(error)}" for i, error in errors.items())

    def _failure(self, errors: dict[int, Exception]) -> Exception:
        """One error for all; its status is that of the last, its Retry-After the shortest."""
        last = list(errors.values())[-1]
        if len(errors) == 1:
            return last
        known = [e for e in errors.values() if isinstance(e, ModelError)]
        waits = [e.retry_after_s for e in known if e.retry_after_s is not None]
        return ModelError(
            f"none of the models answered: {self._story(errors)}",
            http_status=last.http_status if isinstance(last, ModelError) else 0,
            code=last.code if isinstance(last, ModelError) else "",
            retry_after_s=min(waits, default=None),
        )
