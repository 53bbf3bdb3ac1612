"""Who is calling: what an authenticator reads of a request, and the caller it finds.

Made by `auth/` behind the guard of the server, read by authorizers and by every protocol. Holds values only.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct


class Caller(Struct, frozen=True):
    """`user` is "" for an anonymous caller; `roles` are what it may do beyond its own sessions; `claims` is what the
    authenticator knows about it."""

    user: str = ""
    claims: dict[str, Any] = {}
    roles: frozenset[str] = frozenset()


ANONYMOUS = Caller()


class Credentials(NamedTuple):
    """What an authenticator may look at: all headers (gRPC metadata) in order, names in lower case, and the address of the
    peer, "" where it has none."""

    headers: Sequence[tuple[bytes, bytes]]
    peer: str = ""

    def values(self, name: str) -> list[str]:
        """All values of a header, one for each time it was sent."""
        key = name.lower().encode("latin-1")
        return [value.decode("latin-1") for found, value in self.headers if found == key]
