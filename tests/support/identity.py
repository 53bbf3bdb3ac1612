"""For stories of identity: callers with keys, addresses of one's choice, a clock, and an issuer of tokens that may fail."""

import time
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from aiohttp import web
from joserfc import jwk, jwt
from joserfc.jws import JWSRegistry

from polyport.auth.keys import ApiKey, ApiKeyAuth, new_key
from polyport.data.auth import Credentials
from polyport.seams import Seams


class Clock:
    """A clock that stands until it is moved; `seams` reads it."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now

    @property
    def seams(self) -> Seams:
        return Seams(clock=self)


class Keyed:
    """API keys by user: `auth` knows them, `headers(user)` has the key of one."""

    def __init__(self, **roles: list[str]) -> None:
        made = {user: new_key(user, of) for user, of in roles.items()}
        self.keys = {user: key for user, (key, _) in made.items()}
        self.kept: list[ApiKey] = [kept for _, kept in made.values()]
        self.auth = ApiKeyAuth(keys=self.kept)

    def headers(self, user: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[user]}"} if user else {}


def from_peers(asgi: Any) -> Any:
    """The app, for clients whose address is what their header x-test-peer says."""

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        peer = dict(scope.get("headers", [])).get(b"x-test-peer")
        await asgi({**scope, "client": (peer.decode(), 1)} if peer is not None else scope, receive, send)

    return app


def credentials(peer: str = "127.0.0.1", **headers: str | list[str]) -> Credentials:
    """Headers by name, underscores for dashes; several values are several headers."""
    pairs: list[tuple[bytes, bytes]] = []
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            pairs.append((name.replace("_", "-").encode(), value.encode()))
    return Credentials(pairs, peer)


def carrying(token: str) -> Credentials:
    return credentials(authorization=f"Bearer {token}")


@dataclass
class Issuer:
    """An issuer of tokens. `claims` are those of a good token, `key` signs; `asked` counts what was fetched, by path; `down`
    answers everything with 503. While `held` is set an answer waits for it, and `arrived` tells that a question is there."""

    clock: Clock = field(default_factory=Clock)
    url: str = "https://issuer.test"
    key: Any = field(default_factory=lambda: jwk.generate_key("EC", "P-256", {"kid": "k1"}))
    public: list[Any] = field(default_factory=list[Any])
    asked: dict[str, int] = field(default_factory=dict[str, int])
    down: bool = False
    discovery: dict[str, Any] = field(default_factory=dict[str, Any])
    held: anyio.Event | None = None
    arrived: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.public = self.public or [self.key]

    @property
    def jwks(self) -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in self.public]}

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(self.clock.now)
        good = {"iss": self.url, "aud": "polyport", "sub": "alice", "iat": now, "exp": now + 600}
        return {name: value for name, value in {**good, **more}.items() if value is not None}

    def token(self, key: Any = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token; a claim that is None is left out."""
        key = key or self.key
        head = {"alg": "ES256", "kid": key.kid, **(header or {})}
        registry = JWSRegistry(algorithms=[head["alg"]], strict_check_header=False)
        return jwt.encode(
            {k: v for k, v in head.items() if v is not None}, self.claims(**claims), key, registry=registry
        )

    def rotated(self, kid: str) -> None:
        """A new key takes the place of the old one."""
        self.key = jwk.generate_key("EC", "P-256", {"kid": kid})
        self.public = [self.key]

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator["Issuer"]:
        """The same, on a port of loopback."""
        served = replace(self)

        async def answer(request: web.Request) -> web.StreamResponse:
            served.asked[request.path] = served.asked.get(request.path, 0) + 1
            served.arrived.set()
            if served.held is not None:
                await served.held.wait()
            if served.down:
                return web.Response(status=503)
            if request.path == "/keys":
                return web.json_response(served.jwks)
            found = {"issuer": served.url, "jwks_uri": f"{served.url}/keys", **served.discovery}
            return web.json_response(found)

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert runner.addresses
        served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield served
        finally:
            await runner.cleanup()
