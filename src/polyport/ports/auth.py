"""The ports of identity: who is calling, and what may they do. Implemented in `auth/` and by users.

Asked by the guard and the host in front of every protocol, in this order: authenticate, decode, authorize, storage (spec
rest 3). A protocol never decides about a caller by itself.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from polyport.data.auth import Caller, Credentials


class Authenticator(Protocol):
    """Finds the caller of a request."""

    @property
    def challenge(self) -> str:
        """The WWW-Authenticate header of a 401, "" is "Bearer"."""
        ...

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        """The caller. None and Unauthenticated are a 401, Forbidden a 403; any other error is a 500 that says nothing but
        `authentication failed` (spec rest 3.3)."""
        ...


@runtime_checkable
class KeyHeaders(Protocol):
    """What an Authenticator has besides when callers may send their credential in a header of its own."""

    @property
    def key_headers(self) -> Sequence[str]:
        """Names of headers that hold nothing but a credential, for those who are told how to call."""
        ...


class Authorizer(Protocol):
    """Says no by raising Forbidden. All three are asked before any storage is touched (spec rest 3.4). Of an app `use` is
    always asked first, so the other two need not say again what it says."""

    async def act_as(self, caller: Caller, user: str, app: str) -> None:
        """Whether the caller may read and write what belongs to this user of an app, and run agents as that user."""
        ...

    async def use(self, caller: Caller, app: str) -> None:
        """Whether the caller may know of this app and call it."""
        ...

    async def administer(self, caller: Caller, app: str) -> None:
        """Whether the caller may use what belongs to no single user: evaluation files, traces of everybody, dead letters.
        `app` is "" for the whole server."""
        ...


class Auth(NamedTuple):
    """Identity in front of a server."""

    authenticator: Authenticator
    authorizer: Authorizer
