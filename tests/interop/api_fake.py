"""A strict REST API and a strict OAuth server on loopback, for tests of tools from OpenAPI documents.

The API answers only what a test scripted, by method and exact raw path, and keeps every request as it came over the wire. The
OAuth server knows RFC 6749 and PKCE: a code is valid once, a refresh with `scope` is refused, clients must sign in as agreed.
"""

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import anyio
from aiohttp import web


@dataclass
class Seen:
    """A request as it came: `target` is the raw path with its raw query."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def fields(self) -> list[tuple[str, str]]:
        return parse_qsl(self.query, keep_blank_values=True)

    def header(self, name: str) -> str | None:
        """The value of a header that came at most once."""
        found = [v for k, v in self.headers if k.lower() == name.lower()]
        assert len(found) <= 1, f"{name} came {len(found)} times"
        return found[0] if found else None

    def json(self) -> Any:
        assert self.header("content-type") == "application/json"
        return json.loads(self.body)


@dataclass
class Reply:
    """With `hang` the answer never ends, after the body."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False


def as_json(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(json.dumps(value).encode(), status, {"content-type": "application/json", **headers})


def as_text(text: str, media: str = "text/plain; charset=utf-8", status: int = 200) -> Reply:
    return Reply(text.encode(), status, {"content-type": media})


Scripted = Reply | Callable[[Seen], Reply]


@dataclass
class FakeApi:
    """`on` scripts what a method and raw path answer, each time; anything else that comes fails the test at its end."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    script: dict[str, Scripted] = field(default_factory=dict)
    default: Scripted | None = None

    def on(self, where: str, reply: Scripted) -> None:
        self.script[where] = reply

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = [(k.decode(), v.decode()) for k, v in request.raw_headers]
        seen = Seen(request.method, request.raw_path, headers, await request.read())
        self.seen.append(seen)
        reply = self.script.get(f"{seen.method} {seen.path}", self.default)
        if reply is None:
            self.unexpected.append(f"{seen.method} {seen.path}")
            return web.Response(status=500, text="not scripted")
        if callable(reply):
            reply = reply(seen)
        if reply.hang:
            response = web.StreamResponse(status=reply.status, headers=reply.headers)
            if reply.body:
                await response.prepare(request)
                await response.write(reply.body)
            await anyio.sleep_forever()
        return web.Response(body=reply.body, status=reply.status, headers=reply.headers)

    @property
    def last(self) -> Seen:
        return self.seen[-1]


@asynccontextmanager
async def serving(handle: Any) -> AsyncIterator[str]:
    """A server with one handler for everything; its URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def fake_api(default: Scripted | None = None) -> AsyncIterator[FakeApi]:
    api = FakeApi(default=default)
    async with serving(api.handle) as url:
        api.url = url
        yield api
    assert not api.unexpected, f"requests that the test did not script: {api.unexpected}"


# ---- OAuth


class Denied(Exception):
    """A token request that RFC 6749 refuses."""

    def __init__(self, code: str, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.code = code
        self.status = status


@dataclass
class FakeOAuth:
    """A token endpoint. `sign_in(auth_uri)` plays the user who consents, and gives the address of the browser after that."""

    client_id: str = "client-1"
    client_secret: str = "s3cr3t+client/secret"
    way: str = "basic"
    lifetime: int | None = 3600
    refreshes: bool = True
    rotates: bool = True
    url: str = ""
    forms: list[dict[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    valid: set[str] = field(default_factory=set)
    refresh_tokens: set[str] = field(default_factory=set)
    broken: bool = False
    gate: anyio.Event | None = None
    arrived: anyio.Event = field(default_factory=anyio.Event)
    issued: int = 0

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def sign_in(self, auth_uri: str, redirect_uri: str = "", error: str = "") -> str:
        query = {k: v[0] for k, v in parse_qs(urlsplit(auth_uri).query).items()}
        assert query["response_type"] == "code" and query["client_id"] == self.client_id
        assert query["code_challenge_method"] == "S256" and len(query["code_challenge"]) == 43
        redirect = query.get("redirect_uri", redirect_uri)
        if error:
            return f"{redirect}?error={error}&state={query['state']}"
        code = f"code-{len(self.codes) + 1}-of-the-user"
        self.codes[code] = {**query, "redirect_uri": redirect}
        return f"{redirect}?code={code}&state={query['state']}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        pairs = parse_qsl((await request.read()).decode(), keep_blank_values=True)
        form = dict(pairs)
        self.forms.append(form)
        if self.broken:
            return web.Response(status=502, text="bad gateway")
        try:
            if len(form) != len(pairs):
                raise Denied("invalid_request", "a parameter came twice")
            if request.path != "/token" or request.content_type != "application/x-www-form-urlencoded":
                raise Denied("invalid_request", "not a form to the token endpoint")
            self._client(request, form)
            return web.json_response(self._grant(form))
        except Denied as error:
            self.refused.append(error.code)
            body = {"error": error.code, "error_description": f"{error} (you sent {form})"}
            return web.json_response(body, status=error.status)

    def _client(self, request: web.Request, form: dict[str, str]) -> None:
        given = request.headers.get("authorization", "")
        if self.way == "basic":
            user, _, password = base64.b64decode(given.removeprefix("Basic ")).decode().partition(":")
            known = (unquote(user), unquote(password))
            if "client_secret" in form or known != (self.client_id, self.client_secret):
                raise Denied("invalid_client", "wrong client", 401)
        elif given or form.get("client_id") != self.client_id:
            raise Denied("invalid_client", "wrong client", 401)
        elif form.get("client_secret", "") != (self.client_secret if self.way == "post" else ""):
            raise Denied("invalid_client", "wrong client secret", 401)

    def _grant(self, form: dict[str, str]) -> dict[str, Any]:
        kind = form.get("grant_type")
        if kind == "client_credentials":
            return self._issue(refresh=False)
        if kind == "refresh_token":
            if "scope" in form:
                raise Denied("invalid_scope", "scope is not allowed here")
            if form.get("refresh_token") not in self.refresh_tokens:
                raise Denied("invalid_grant", "unknown refresh token")
            if self.rotates:
                self.refresh_tokens.discard(form["refresh_token"])
            return self._issue(refresh=self.rotates)
        if kind != "authorization_code":
            raise Denied("unsupported_grant_type", "unknown grant")
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None:
            raise Denied("invalid_grant", "the code is not valid (any more)")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            raise Denied("invalid_grant", "wrong code verifier")
        if form.get("redirect_uri", "") != asked["redirect_uri"]:
            raise Denied("invalid_grant", "wrong redirect_uri")
        return self._issue(refresh=self.refreshes)

    def _issue(self, *, refresh: bool) -> dict[str, Any]:
        self.issued += 1
        token = f"access-token-{self.issued}"
        self.valid = {token}
        out: dict[str, Any] = {"access_token": token, "token_type": "bearer"}
        if self.lifetime is not None:
            out["expires_in"] = self.lifetime
        if refresh:
            out["refresh_token"] = f"refresh-token-{self.issued}"
            self.refresh_tokens.add(out["refresh_token"])
        return out


@asynccontextmanager
async def fake_oauth(**fields: Any) -> AsyncIterator[FakeOAuth]:
    oauth = FakeOAuth(**fields)
    async with serving(oauth.handle) as url:
        oauth.url = url
        yield oauth
