"""JwtAuth: callers by signed tokens of an issuer (OpenID Connect and other JWTs), and presets for Google's (spec rest 3.2).

Given to an App. A token is verified by public keys only; the signature, issuer, audience and times count, in that order of
cost. What was verified is kept for a while by the hash of the token. Tokens are never logged.
"""

import base64
import hashlib
import math
import warnings
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from polyport.auth.jwks import Keys, tools
from polyport.auth.read import bearer, claim_at, names_in, sane_user
from polyport.codec import check_depth
from polyport.data.auth import Caller, Credentials
from polyport.errors import BadRequest, ConfigError, Forbidden, Unauthenticated
from polyport.seams import REAL, Seams

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)
"""Signatures by public keys. A shared secret or no signature is never one of them."""
KEPT = 4096
"""How many verified tokens are kept."""
KEEP_S = 300.0
"""How long: a key that the issuer has withdrawn must not live on in them."""
INVALID = 'Bearer error="invalid_token"'


@dataclass(kw_only=True)
class JwtAuth:
    """Takes `Authorization: Bearer TOKEN` of one issuer.

    - `issuer` is `iss`, exactly; several are spellings of the same one. `audience` is what `aud` must name (one of several).
    - `jwks` has the public keys: a URL, a JWK Set, or the path of a file; without it OpenID Connect discovery finds them.
    - `user_claim` names the user (`sub`, `email`), `roles_claim` the roles: a list or a text with spaces; a path with dots
      leads into objects, as `realm_access.roles`.
    - `leeway_s` is how far clocks may be apart.
    - `required` are claims with the values that they must have (else 401); `allowed_users` who may come in (else 403).
    - `header` is another header that holds the token.

    ConfigError says what cannot be. When the keys cannot be had, and no kept one fits: 500 `authentication failed`.
    """

    issuer: str | Sequence[str]
    audience: str | Sequence[str]
    jwks: str | Path | Mapping[str, Any] | None = None
    algorithms: Sequence[str] = ALGORITHMS
    user_claim: str = "sub"
    roles_claim: str = "roles"
    leeway_s: float = 60.0
    required: Mapping[str, Any] = field(default_factory=dict[str, Any])
    allowed_users: Collection[str] | None = None
    header: str = "authorization"
    seams: Seams = REAL

    def __post_init__(self) -> None:
        self._issuers = _texts(self.issuer, "issuer")
        self._audiences = _texts(self.audience, "audience")
        bad = [name for name in self.algorithms if name not in ALGORITHMS]
        if bad or not self.algorithms:
            raise ConfigError(f"algorithms must be some of {', '.join(ALGORITHMS)}, not {', '.join(bad) or 'none'}")
        tools()
        self._keys = Keys(self.jwks, self._issuers[0], self.seams)
        self._kept: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    @property
    def challenge(self) -> str:
        return INVALID if self.header == "authorization" else ""

    @property
    def key_headers(self) -> tuple[str, ...]:
        """See ports.auth."""
        return () if self.header == "authorization" else (self.header,)

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        """See ports.auth."""
        token = bearer(credentials, self.header.lower())
        if token is None:
            raise Unauthenticated("unauthorized", "Bearer")
        name = hashlib.sha256(token.encode()).digest()
        kept = self._kept.get(name)
        if kept is not None and self.seams.clock() < kept[1]:
            self._kept.move_to_end(name)
            return kept[0]
        claims = await self._verified(token)
        ends = self._check(claims)
        caller = self._caller(claims)
        self._kept[name] = caller, min(ends, self.seams.clock() + KEEP_S)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return caller

    async def _verified(self, token: str) -> dict[str, Any]:
        """The claims of a token whose signature is right."""
        parts = token.split(".")
        header = _object(parts[0]) if len(parts) == 3 else None
        alg, kid = (header.get("alg"), header.get("kid", "")) if header is not None else (None, "")
        if header is None or alg not in self.algorithms or "crit" in header or not isinstance(kid, str):
            raise Unauthenticated("unauthorized: the token is no JWT that is taken here", INVALID)
        jws, errors = tools().jws, tools().errors
        for key in await self._keys.find(kid, str(alg)):
            registry = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
            try:
                with warnings.catch_warnings(action="ignore"):  # EdDSA has a new name, which few issuers use
                    jws.deserialize_compact(token, key.public, registry=registry)
            except errors:
                continue
            claims = _object(parts[1])
            if claims is not None:
                return claims
        raise Unauthenticated("unauthorized: the signature of the token is not one of a key of the issuer", INVALID)

    def _check(self, claims: Mapping[str, Any]) -> float:
        """When the token ends, in epoch seconds with the leeway. Unauthenticated for what is wrong about its claims."""
        if claims.get("iss") not in self._issuers:
            raise Unauthenticated("unauthorized: the token is of another issuer", INVALID)
        said: Any = claims.get("aud")
        audiences = cast("list[Any]", said) if isinstance(said, list) else [said]
        if not any(audience in self._audiences for audience in audiences if isinstance(audience, str)):
            raise Unauthenticated("unauthorized: the token is for another audience", INVALID)
        now = self.seams.clock()
        ends = _time(claims, "exp")
        if ends is None or now >= ends + self.leeway_s:
            raise Unauthenticated("unauthorized: the token has expired", INVALID)
        begins = _time(claims, "nbf")
        if begins is not None and now < begins - self.leeway_s:
            raise Unauthenticated("unauthorized: the token is not valid yet", INVALID)
        for name, value in self.required.items():
            found = claim_at(claims, name)
            if found != value or type(found) is not type(value):
                raise Unauthenticated(f"unauthorized: the claim {name} of the token is not as required", INVALID)
        return ends + self.leeway_s

    def _caller(self, claims: dict[str, Any]) -> Caller:
        user = sane_user(claim_at(claims, self.user_claim))
        if self.allowed_users is not None and user not in self.allowed_users:
            raise Forbidden("forbidden: this user is not in the list of those who may come in")
        return Caller(user, claims, names_in(claim_at(claims, self.roles_claim)))


def google_oidc(audience: str | Sequence[str], allowed_users: Collection[str], seams: Seams = REAL) -> JwtAuth:
    """ID tokens of Google accounts, users by their e-mail address, which must be verified; only those of the list."""
    return JwtAuth(
        issuer=("https://accounts.google.com", "accounts.google.com"),
        audience=audience,
        jwks="https://www.googleapis.com/oauth2/v3/certs",
        algorithms=("RS256",),
        user_claim="email",
        required={"email_verified": True},
        allowed_users=allowed_users,
        seams=seams,
    )


def google_iap(audience: str | Sequence[str], seams: Seams = REAL) -> JwtAuth:
    """What Google's Identity-Aware Proxy says in its signed header, users by their e-mail address. (Its other headers are
    not signed: `HeaderAuth("X-Goog-Authenticated-User-Email", [...], prefix="accounts.google.com:")`.)"""
    return JwtAuth(
        issuer="https://cloud.google.com/iap",
        audience=audience,
        jwks="https://www.gstatic.com/iap/verify/public_key-jwk",
        algorithms=("ES256",),
        user_claim="email",
        header="x-goog-iap-jwt-assertion",
        seams=seams,
    )


def _texts(given: str | Sequence[str], name: str) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(given)
    if not found or not all(found):
        raise ConfigError(f"JwtAuth needs an {name}")
    return found


def _object(part: str) -> dict[str, Any] | None:
    """The JSON object in a part of a token, None for anything else."""
    try:
        body = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        check_depth(body)
        found = msgspec.json.decode(body)
    except (ValueError, BadRequest):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Epoch seconds, None without the claim. Unauthenticated for what is no time."""
    value: Any = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Unauthenticated(f"unauthorized: {name} of the token is no time", INVALID)
    return float(value)
