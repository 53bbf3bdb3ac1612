"""The public keys of an issuer of tokens: given, in a file, or fetched and kept, and fetched again when they change.

Used by `jwt`. Keys of other kinds than signing keys, and shared secrets, are never taken. A fetch is never longer than
FETCH_S, never more often than GAP_S (unless its caller left), and never more than one at a time, whatever callers send.
"""

import ipaddress
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import anyio
import msgspec

from polyport.errors import AuthenticationFailed, ConfigError
from polyport.seams import Seams

log = logging.getLogger("polyport.auth")

FETCH_S = 5.0
GAP_S = 10.0
"""Between two fetches, at least: what an unknown key id may cost the issuer."""
FRESH_S = 3600.0
"""How long keys are used before they are asked for again."""
STALE_S = 24 * 3600.0
"""How long keys are used when the issuer cannot be reached: after that a key that it has withdrawn must be dead."""
MAX_BYTES = 1024 * 1024
MAX_KEYS = 100

KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The kind of key behind each family of algorithms; there is none for HS and none for none."""


class Key(NamedTuple):
    """One public key, imported; `kid` and `alg` are "" where the issuer said none."""

    kid: str
    kind: str
    alg: str
    public: Any

    def fits(self, kid: str, alg: str) -> bool:
        """Whether a token of this key id ("" for none) and algorithm can be signed by it."""
        said = {self.alg, alg}
        return (
            (not kid or kid == self.kid)
            and self.kind == KINDS.get(alg[:2])
            and (not self.alg or self.alg == alg or said == {"EdDSA", "Ed25519"})
        )


class Keys:
    """`source` is a JWK Set, the path of a file with one, or its URL; None asks the issuer by OpenID Connect discovery.
    ConfigError for what cannot be read, and for URLs that are neither https nor loopback."""

    def __init__(self, source: str | Path | Mapping[str, Any] | None, issuer: str, seams: Seams) -> None:
        self._issuer = issuer
        self._seams = seams
        self._url = ""
        self._keys: list[Key] = []
        self._fetched = self._tried = -float("inf")
        self._failed = False
        self._lock = anyio.Lock()
        self._remote = source is None or (isinstance(source, str) and "://" in source)
        if source is None:
            check_url(issuer, "the issuer, without jwks=,")
        elif isinstance(source, str) and self._remote:
            self._url = check_url(source, "jwks")
        else:
            self._keys = _read(source if isinstance(source, Mapping) else _file(Path(source)))
            if not self._keys:
                raise ConfigError("jwks has no public key that tokens can be signed with")

    async def find(self, kid: str, alg: str) -> Sequence[Key]:
        """The keys that may have signed such a token, none if there is none. AuthenticationFailed when there is none and the
        issuer could not be asked."""
        if not self._remote:
            return self._fitting(kid, alg)
        age = abs(self._seams.clock() - self._fetched)
        if age > STALE_S:
            self._keys = []
        if age > FRESH_S and not (self._keys and self._lock.statistics().locked):
            await self._refresh()
        found = self._fitting(kid, alg)
        if not found:
            await self._refresh()
            found = self._fitting(kid, alg)
        if not found and self._failed:
            raise AuthenticationFailed("authentication failed")
        return found

    def _fitting(self, kid: str, alg: str) -> list[Key]:
        return [key for key in self._keys if key.fits(kid, alg)]

    async def _refresh(self) -> None:
        """Fetch the keys, unless somebody did a moment ago. A failure is logged and noted."""
        async with self._lock:
            now, before = self._seams.clock(), self._tried
            if abs(now - before) < GAP_S:  # a clock that was set back is no reason to wait
                return
            self._tried = now
            try:
                if not self._url:
                    self._url = await self._discover()
                self._keys = _read(await fetch(self._url))
                self._failed, self._fetched = False, now
            except Exception as error:  # noqa: BLE001  whatever an issuer does wrong, the keys that are there stay
                self._failed = True
                log.error("the keys of %s cannot be had: %s: %s", self._issuer, type(error).__name__, error)
            except BaseException:
                self._tried = before  # broken off because the caller left, so the next one may ask
                raise

    async def _discover(self) -> str:
        found = await fetch(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self._issuer:
            raise AuthenticationFailed(f"its discovery document is that of {str(found.get('issuer'))[:200]!r}")
        return check_url(str(found.get("jwks_uri")), "its jwks_uri")


def check_url(url: str, what: str) -> str:
    """The URL. ConfigError unless it is https, or http on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and parts.hostname and _is_loopback(parts.hostname):
        return url
    raise ConfigError(f"{what} must be an https URL (http on this machine only), not {url[:200]!r}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def fetch(url: str) -> dict[str, Any]:
    """The JSON object at a URL. Redirects are not followed. Raises what went wrong."""
    import aiohttp  # an HTTP client costs a third of a cold start, and keys of a file need none

    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=FETCH_S)) as session,
        session.get(url, allow_redirects=False, headers={"accept": "application/json"}) as response,
    ):
        if response.status != 200:
            raise AuthenticationFailed(f"{url} answers with status {response.status}")
        body = b""
        async for chunk in response.content.iter_chunked(65536):
            body += chunk
            if len(body) > MAX_BYTES:
                raise AuthenticationFailed(f"{url} answers with more than {MAX_BYTES} bytes")
    return msgspec.json.decode(body, type=dict[str, Any])


def _file(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, ValueError) as error:
        raise ConfigError(f"the keys in {path} cannot be read: {error}") from None


def _read(jwks: Mapping[str, Any]) -> list[Key]:
    """The public signing keys of a JWK Set; what else is in there is left out."""
    jwk, errors = tools().jwk, tools().errors
    raw: Any = jwks.get("keys")
    found: list[Key] = []
    for item in cast("list[Any]", raw)[:MAX_KEYS] if isinstance(raw, list) else []:
        if not isinstance(item, dict):
            continue
        key = cast("dict[str, Any]", item)
        kind, alg, kid = key.get("kty"), key.get("alg", ""), key.get("kid", "")
        usable = isinstance(kind, str) and kind in KINDS.values() and isinstance(alg, str)
        if not usable or key.get("use", "sig") != "sig":
            continue
        try:
            public = jwk.import_key({name: value for name, value in key.items() if name not in ("alg", "key_ops")})
        except errors:
            continue
        found.append(Key(kid if isinstance(kid, str) else "", str(kind), str(alg), public))
    return found


class Tools(NamedTuple):
    """What is used of joserfc."""

    jwk: Any
    jws: Any
    errors: tuple[type[Exception], ...]


def tools() -> Tools:
    """ConfigError without the package."""
    try:
        from joserfc import errors, jwk, jws
    except ImportError:
        raise ConfigError("verifying tokens needs the package joserfc: pip install 'polyport[auth]'") from None
    return Tools(jwk, jws, (errors.JoseError, ValueError, TypeError, KeyError))
