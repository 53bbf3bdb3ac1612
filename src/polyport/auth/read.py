"""What authenticators share: one bearer token out of the headers, a user id that is fit to be one, names out of claims.

Called by the authenticators beside it. Never logs what it reads.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from polyport.data.auth import Credentials
from polyport.errors import Unauthenticated

MAX_TOKEN = 16 * 1024
"""Characters; no token is looked at that is longer."""
MAX_USER = 256
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def one_value(credentials: Credentials, name: str) -> str | None:
    """The value of a header, None without it. Unauthenticated when it was sent twice: which one a proxy in front has looked at
    cannot be known (spec rest 76)."""
    values = credentials.values(name)
    if len(values) > 1:
        raise Unauthenticated(f"unauthorized: the header {name} was sent {len(values)} times")
    return values[0] if values else None


def bearer(credentials: Credentials, header: str = "authorization") -> str | None:
    """The token of `Authorization: Bearer TOKEN` (of another header the whole value), None without one. Unauthenticated for
    several and for what cannot be a token."""
    value = one_value(credentials, header)
    if value is None:
        return None
    if header == "authorization":
        scheme, _, value = value.partition(" ")
        if scheme.lower() != "bearer":
            return None
    token = value.strip()
    if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
        raise Unauthenticated("unauthorized: the token is malformed")
    return token


def sane_user(user: Any) -> str:
    """A user id as it was given, 1 to 256 characters of text. Unauthenticated for anything else: no anonymous caller comes
    out of a credential."""
    if not isinstance(user, str) or not user.strip() or len(user) > MAX_USER or _CONTROL.search(user):
        raise Unauthenticated("unauthorized: the credential names no user")
    return user


def claim_at(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by a path with dots (`realm_access.roles`) if no claim has that name; None without it."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = cast("Mapping[str, Any]", found).get(name)
    return found


def names_in(value: Any) -> frozenset[str]:
    """The names of a claim such as roles or scope: a list of texts, or one text with spaces between."""
    if isinstance(value, str):
        return frozenset(value.split())
    items = cast("list[Any]", value) if isinstance(value, list | tuple) else []
    return frozenset(item for item in items if isinstance(item, str) and item)
