"""Authenticators made of others' parts: a function of the user's own, and several authenticators one after the other.

Given to an App. Both keep to the port: see `ports.auth`.
"""

import inspect
from collections.abc import Awaitable, Callable

import anyio.to_thread

from polyport.auth.read import sane_user
from polyport.data.auth import Caller, Credentials
from polyport.errors import ConfigError, Unauthenticated
from polyport.ports.auth import Authenticator, KeyHeaders

Found = Caller | str | None
Function = Callable[[Credentials], Found | Awaitable[Found]]


class FunctionAuth:
    """Asks `function(credentials)` for the Caller or its user id; None is a 401. A sync function runs in a worker thread.
    Without a function everybody is refused (spec rest 3.2)."""

    def __init__(self, function: Function | None, challenge: str = "Bearer") -> None:
        self.challenge = challenge
        self._function = function

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        """See ports.auth."""
        if self._function is None:
            return None
        if inspect.iscoroutinefunction(self._function):
            found = self._function(credentials)
        else:
            found = await anyio.to_thread.run_sync(self._function, credentials)
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, Caller | None):
            return found
        if isinstance(found, str):
            return Caller(sane_user(found))
        raise TypeError(
            f"the function of FunctionAuth must give a Caller, its user id or None, not a {type(found).__name__}"
        )


class AnyOf:
    """The first of several authenticators that knows the caller. One that cannot say (its provider is down) does not stop the
    next one; if none knows the caller, that failure counts. ConfigError for none."""

    def __init__(self, *authenticators: Authenticator) -> None:
        if not authenticators:
            raise ConfigError("AnyOf needs at least one authenticator")
        self._all = authenticators

    @property
    def challenge(self) -> str:
        """All their challenges."""
        return ", ".join(dict.fromkeys(a.challenge or "Bearer" for a in self._all))

    @property
    def key_headers(self) -> tuple[str, ...]:
        """All their headers."""
        return tuple(dict.fromkeys(name for a in self._all if isinstance(a, KeyHeaders) for name in a.key_headers))

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        """See ports.auth."""
        refused: Exception | None = None
        for authenticator in self._all:
            try:
                caller = await authenticator.authenticate(credentials)
            except Unauthenticated as error:
                refused = refused or error
            except Exception as error:  # noqa: BLE001  raised below, unless another one knows the caller
                refused = error if refused is None or isinstance(refused, Unauthenticated) else refused
            else:
                if caller is not None:
                    return caller
        if isinstance(refused, Unauthenticated):
            raise Unauthenticated("unauthorized", self.challenge)
        if refused is not None:
            raise refused
        return None
