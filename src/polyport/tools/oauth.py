"""OAuth 2 credentials of tools: client credentials, and authorization code with the user's consent.

Given to toolsets as `auth=`. One object shared by several toolsets asks for consent, and exchanges a code, once (FR-199).
Tokens are kept per user in memory (or a store of yours), never in session state or events.
"""

import base64
import hashlib
import hmac
import json
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio

from polyport.errors import BadRequest, ConfigError, PolyportError, Unauthenticated
from polyport.ports.agent import ReadContext
from polyport.seams import REAL, Seams
from polyport.tools.credentials import Credential, PostForm, Proof, bearer
from polyport.tools.json_schema import is_map
from polyport.tools.oauth_tokens import Endpoint, Token, Tokens, TokenStore

REQUEST_CREDENTIAL = "adk_request_credential"
"""The reserved name of the call that asks a user to sign in (spec core 3.11)."""


@dataclass(kw_only=True, eq=False)
class OAuth(Credential):
    """What both ways have in common. `way` is how the client signs in: "basic", "post", or "none" for a public client.

    `store` keeps the tokens somewhere else than in memory. `extra` is added to every form, such as `{"audience": "..."}`.
    """

    token_url: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    way: Any = "basic"
    extra: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    store: TokenStore | None = None
    seams: Seams = field(default=REAL, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.scopes, str):
            self.scopes = tuple(self.scopes.split())
        if self.way not in ("basic", "post", "none"):
            raise ConfigError(f"an OAuth client signs in by way of basic, post or none; not {self.way!r}")
        endpoint = Endpoint(
            url=self.token_url,
            client_id=self.client_id,
            client_secret=self.client_secret,
            way=self.way,
            extra=self.extra,
        )
        self.tokens = Tokens(endpoint, self.store, self.seams)

    @property
    def key(self) -> str:
        """Names this client: the same for every object with the same settings."""
        text = "\0".join((self.token_url, self.client_id, *self.scopes))
        return f"oauth2_{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def _scope(self) -> dict[str, str]:
        return {"scope": " ".join(self.scopes)} if self.scopes else {}


@dataclass(kw_only=True, eq=False)
class ClientCredentials(OAuth):
    """The application signs in as itself: one token for all users, got when it is first needed."""

    async def proof(self, ctx: ReadContext, post: PostForm) -> Proof:
        async def grant() -> Token:
            return await self.tokens.exchange({"grant_type": "client_credentials", **self._scope()}, post)

        return bearer((await self.tokens.get(self.key, post, grant)).access)

    async def refused(self, ctx: ReadContext, proof: Proof) -> bool:
        return await self.tokens.distrust(self.key, _access(proof))


class ConsentNeeded(Unauthenticated):
    """The user has to sign in first, at `auth_uri`.

    Calls that wait for the same `key` wait for the same answer. `config` is the `authConfig` that ADK clients know; it holds no
    secret.
    """

    def __init__(self, auth_uri: str, key: str, config: dict[str, Any]) -> None:
        super().__init__(f"the user has to sign in first, at {auth_uri}")
        self.auth_uri = auth_uri
        self.key = key
        self.config = config

    def call_args(self, function_call_id: str) -> dict[str, Any]:
        """The arguments of the REQUEST_CREDENTIAL call for a call that waits."""
        return {"functionCallId": function_call_id, "authConfig": self.config}


@dataclass(frozen=True, kw_only=True)
class Consent:
    """A user's answer: where the sign-in page sent the browser, taken apart."""

    state: str = field(default="", repr=False)
    code: str = field(default="", repr=False)
    error: str = ""
    redirect_uri: str = ""


@dataclass(kw_only=True, eq=False)
class AuthorizationCode(OAuth):
    """The user signs in and consents: one token for each user.

    Without a token, a call raises ConsentNeeded with the address of the sign-in page. The answer is given to `answer`. State
    and PKCE verifier are derived from a key and checked, not kept: any worker that has `signing_key` (the client secret
    unless given) can take the answer.
    """

    authorization_url: str
    redirect_uri: str = ""
    consent_timeout_s: float = 3600.0
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """Added to the address of the sign-in page, such as `{"access_type": "offline"}`."""
    signing_key: str = field(default="", repr=False)
    max_answers: int = 10_000
    """Answers that are remembered, so that none is used twice."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if urlsplit(self.authorization_url).scheme not in ("http", "https"):
            raise ConfigError(f"the sign-in page {self.authorization_url!r:.200} is no http(s) URL")
        self._key = (self.signing_key or self.client_secret).encode() or os.urandom(32)
        self._answered: OrderedDict[str, Unauthenticated | None] = OrderedDict()

    def owner(self, app: str, user: str) -> str:
        return "\0".join((self.key, app, user))

    async def proof(self, ctx: ReadContext, post: PostForm) -> Proof:
        owner = self.owner(ctx.app_name, ctx.user_id)

        async def grant() -> Token:
            raise self.request(owner)

        return bearer((await self.tokens.get(owner, post, grant)).access)

    async def refused(self, ctx: ReadContext, proof: Proof) -> bool:
        return await self.tokens.distrust(self.owner(ctx.app_name, ctx.user_id), _access(proof))

    # ---- asking

    def request(self, owner: str) -> ConsentNeeded:
        """A new request for the owner's consent."""
        nonce = _text(os.urandom(12) + int(self.seams.clock()).to_bytes(6, "big"))
        state = f"{nonce}.{self._sign('state', nonce, owner)}"
        challenge = hashlib.sha256(self._sign("pkce", state, owner).encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            **self._scope(),
            "state": state,
            "code_challenge": _text(challenge),
            "code_challenge_method": "S256",
            **({"redirect_uri": self.redirect_uri} if self.redirect_uri else {}),
            **self.parameters,
        }
        between = "&" if urlsplit(self.authorization_url).query else "?"
        uri = f"{self.authorization_url}{between}{urlencode(query)}"
        oauth2 = {"clientId": self.client_id, "authUri": uri, "state": state}
        if self.redirect_uri:
            oauth2["redirectUri"] = self.redirect_uri
        flow = {
            "authorizationUrl": self.authorization_url,
            "tokenUrl": self.token_url,
            "scopes": dict.fromkeys(self.scopes, ""),
        }
        config = {
            "authScheme": {"type": "oauth2", "flows": {"authorizationCode": flow}},
            "rawAuthCredential": {"authType": "oauth2", "oauth2": {"clientId": self.client_id}},
            "exchangedAuthCredential": {"authType": "oauth2", "oauth2": oauth2},
            "credentialKey": self.key,
        }
        return ConsentNeeded(uri, self.key, config)

    def _sign(self, what: str, *texts: str) -> str:
        return _text(hmac.new(self._key, "\0".join((what, *texts)).encode(), hashlib.sha256).digest())

    # ---- being answered

    async def answer(self, app: str, user: str, response: Any, post: PostForm) -> bool:
        """Take a user's answer: exchange its code for a token, once. False when it answers no request of ours to this user.

        `response` is the address that the browser was sent to, or the response of the request's call. The same answer given
        again does nothing, or raises what it raised. Unauthenticated when the user or the token endpoint refused, or the answer
        came too late.
        """
        consent = read_consent(response)
        owner = self.owner(app, user)
        if not self._is_ours(consent, owner):
            return False
        async with self.tokens.turn(owner):
            if consent.state in self._answered:
                problem = self._answered[consent.state]
                if problem is not None:
                    raise Unauthenticated(str(problem))
                return True
            with anyio.CancelScope(shield=True):  # a code that was sent cannot be sent again
                await self._exchange(consent, owner, post)
        return True

    async def _exchange(self, consent: Consent, owner: str, post: PostForm) -> None:
        problem: Unauthenticated | None = None
        try:
            if consent.error:
                raise Unauthenticated(f"the user did not sign in ({consent.error:.80})")
            form = {
                "grant_type": "authorization_code",
                "code": consent.code,
                "code_verifier": self._sign("pkce", consent.state, owner),
            }
            if consent.redirect_uri or self.redirect_uri:
                form["redirect_uri"] = consent.redirect_uri or self.redirect_uri
            token = await self.tokens.exchange(form, post, {consent.code})
            await self.tokens.store.save(owner, token)
        except PolyportError as error:
            problem = Unauthenticated(f"signing in did not work: {error}")
        self._answered[consent.state] = problem
        while len(self._answered) > self.max_answers:
            self._answered.popitem(last=False)
        if problem is not None:
            raise problem

    def _is_ours(self, consent: Consent, owner: str) -> bool:
        """Whether an answer is to a request of ours to this owner. Unauthenticated if it comes too late or has no code."""
        nonce, _, mark = consent.state.partition(".")
        if not hmac.compare_digest(mark.encode(), self._sign("state", nonce, owner).encode()):
            return False
        asked_at = int.from_bytes(_bytes(nonce)[-6:], "big")
        if self.seams.clock() - asked_at > self.consent_timeout_s:
            raise Unauthenticated("the answer to the request to sign in came too late; ask again")
        if not consent.code and not consent.error:
            raise Unauthenticated("the answer to the request to sign in has no code")
        return True


def read_consent(response: Any) -> Consent:
    """The answer of a client: the address that the browser was sent to; or an AuthConfig or its credential, in camelCase or
    snake_case, whole or as JSON text under `response`, as ADK's clients send them. BadRequest if it is none of them."""
    if isinstance(response, str) and response.lstrip().startswith("{"):
        try:
            response = json.loads(response)
        except ValueError:
            raise BadRequest("the answer to the request to sign in is no JSON") from None
    if isinstance(response, str):
        return _from_uri(response, "")
    found: dict[str, Any] = response if is_map(response) else {}
    if found.keys() == {"response"}:
        return read_consent(found["response"])
    for names in (("authConfig", "auth_config"), ("exchangedAuthCredential", "exchanged_auth_credential"), ("oauth2",)):
        inner = _member(found, *names)
        found = inner if is_map(inner) else found
    redirect = _member(found, "redirectUri", "redirect_uri")
    redirect = redirect if isinstance(redirect, str) else ""
    uri = _member(found, "authResponseUri", "auth_response_uri")
    if isinstance(uri, str) and uri:
        return _from_uri(uri, redirect)
    code, state = _member(found, "authCode", "auth_code"), _member(found, "state")
    if isinstance(code, str) and code and isinstance(state, str):
        return Consent(state=state, code=code, redirect_uri=redirect)
    raise BadRequest("the answer to the request to sign in has neither authResponseUri nor authCode and state")


def _from_uri(uri: str, redirect: str) -> Consent:
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise BadRequest("the answer to the request to sign in is no URL") from None
    query = {name: values[0] for name, values in parse_qs(parts.query or parts.fragment).items()}
    return Consent(
        state=query.get("state", ""), code=query.get("code", ""), error=query.get("error", ""), redirect_uri=redirect
    )


def _member(found: Mapping[str, Any], *names: str) -> Any:
    return next((found[name] for name in names if found.get(name) is not None), None)


def _access(proof: Proof) -> str:
    return proof.headers.get("Authorization", "").partition(" ")[2]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
