"""Authenticators and authorizers by themselves: what they take, and everything that they must not take (spec rest 3.2, 3.4)."""

import base64
import hmac
import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from joserfc import jwk
from joserfc.jws import JWSRegistry

from polyport.auth.authorize import Open, Role, Roles, Strict
from polyport.auth.combine import AnyOf, FunctionAuth
from polyport.auth.header import HeaderAuth
from polyport.auth.jwks import FRESH_S, GAP_S, STALE_S
from polyport.auth.jwt import KEEP_S, JwtAuth, google_iap, google_oidc
from polyport.auth.keys import LOOK_EVERY_S, ApiKey, ApiKeyAuth, new_key
from polyport.data.auth import Caller, Credentials
from polyport.errors import AuthenticationFailed, ConfigError, Forbidden, Unauthenticated
from polyport.ports.auth import Authenticator, Authorizer
from support.identity import Clock, Issuer, carrying, credentials


async def refused(authenticator: Authenticator, given: Credentials) -> bool:
    """Whether it is a 401."""
    try:
        return await authenticator.authenticate(given) is None
    except Unauthenticated:
        return True


async def user_of(authenticator: Authenticator, given: Credentials) -> str:
    caller = await authenticator.authenticate(given)
    assert caller is not None
    return caller.user


# ---- the header of a proxy


async def test_rest_76_the_header_counts_once_and_from_a_named_proxy_only():
    auth = HeaderAuth("X-User", ["10.0.0.0/8", "2001:db8::/32"])
    for peer in ("10.1.2.3", "2001:db8::7", "::ffff:10.0.0.1"):
        assert await user_of(auth, credentials(peer, x_user="alice")) == "alice"
    for peer in ("11.0.0.1", "::1", "", "localhost", "10.0.0.1.evil.test", "::ffff:11.0.0.1"):
        assert await refused(auth, credentials(peer, x_user="alice")), peer
    for values in (["alice", "alice"], ["alice", "bob"], [""], ["  "], ["alice,bob"], ["alice, "], ["x" * 257], []):
        assert await refused(auth, credentials("10.0.0.1", x_user=values)), values


async def test_a_header_is_taken_as_it_is_but_for_its_prefix():
    auth = HeaderAuth("X-User", ["10.0.0.1"], prefix="accounts.google.com:", roles_header="X-Roles")
    given = credentials("10.0.0.1", x_user="accounts.google.com:Zoë@example.test", x_roles="admin, users")
    caller = await auth.authenticate(given)
    assert caller == Caller("Zoë@example.test", roles=frozenset({"admin", "users"}))
    for value in ("Zoe@example.test", "accounts.google.com:", "Accounts.google.com:a"):
        assert await refused(auth, credentials("10.0.0.1", x_user=value)), value
    assert await refused(auth, Credentials([(b"x-user", b"accounts.google.com:\xff")], "10.0.0.1"))
    twice = credentials("10.0.0.1", x_user="accounts.google.com:a", x_roles=["admin", "users"])
    assert await refused(auth, twice), "which roles are meant?"


@pytest.mark.parametrize("proxies", [[], "10.0.0.1", ["10.0.0.1/8"], ["proxy.test"], [""]])
def test_proxies_have_to_be_addresses(proxies: Any):
    with pytest.raises(ConfigError):
        HeaderAuth("X-User", proxies)


# ---- keys


async def test_a_key_is_known_in_either_header_and_nothing_else_is():
    key, kept = new_key("alice", ["admin"])
    auth = ApiKeyAuth(keys=[kept])
    assert key not in kept.line and kept.hash.startswith("sha256:")
    alice = Caller("alice", roles=frozenset({"admin"}))
    assert await auth.authenticate(carrying(key)) == alice
    assert await auth.authenticate(credentials(x_api_key=key)) == alice
    assert await auth.authenticate(credentials(authorization=f"bearer {key}")) == alice
    wrong: list[dict[str, Any]] = [
        {"authorization": f"Basic {key}"},
        {"authorization": key},
        {"authorization": f"Bearer {key}", "x_api_key": key},
        {"authorization": [f"Bearer {key}", f"Bearer {key}"]},
        {"x_api_key": [key, key]},
        {"x_api_key": kept.hash},
        {"x_api_key": kept.hash.removeprefix("sha256:")},
        {"x_api_key": key[:-1]},
        {"x_api_key": ""},
        {"x_api_key": "k" * 100_000},
        {"authorization": "Bearer " + "k" * 100_000},
        {"authorization": "Bearer"},
        {},
    ]
    for headers in wrong:
        assert await refused(auth, credentials(**headers)), headers
    assert await refused(ApiKeyAuth(keys=[]), carrying(key))


async def test_keys_of_a_file_come_and_go_while_it_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    clock, file = Clock(), tmp_path / "keys.yaml"
    (alices, alice), (bobs, bob) = new_key("alice"), new_key("bob")
    file.write_text(alice.line)
    auth = ApiKeyAuth(file, seams=clock.seams)

    async def known() -> list[bool]:
        clock.now += LOOK_EVERY_S
        return [not await refused(auth, carrying(key)) for key in (alices, bobs)]

    assert await known() == [True, False]
    file.write_text(f"{alice.line}\n{bob.line}\n")
    assert await known() == [True, True]
    file.write_text(json.dumps([{"hash": bob.hash, "user": "bob"}]))  # JSON is YAML, too
    assert await known() == [False, True], "a key that was withdrawn"
    file.write_text(f"- hash: {alices}\n  user: alice\n")
    assert await known() == [False, True], "a broken file changes nothing"
    assert "never the key itself" in caplog.text and alices not in caplog.text
    file.unlink()
    assert await known() == [False, True]
    file.write_text(f"{alice.line}\n")
    clock.now -= 7200
    assert await known() == [True, False], "the clock was set back"
    file.write_text("[]")
    os.utime(file, (1, 1))
    assert await known() == [False, False]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- {", "line"),
        ("keys: 1", "a list"),
        ("- user: alice", "hash"),
        ("- {hash: abc, user: alice}", "sha256:"),
        ("- {pp_abc: alice}", "a key itself"),
        (f"- {{hash: 'sha256:{'a' * 64}', user: ''}}", "user"),
        (f"- {{hash: 'sha256:{'a' * 64}', user: a, rolls: [x]}}", "rolls"),
        (f"- &a {{hash: 'sha256:{'a' * 64}', user: a}}\n- *a", "twice"),
    ],
)
def test_a_wrong_file_of_keys_says_where_and_shows_no_key(tmp_path: Path, text: str, told: str):
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        ApiKeyAuth(tmp_path / "keys.yaml")
    assert "abc" not in str(caught.value)


def test_keys_have_one_home(tmp_path: Path):
    with pytest.raises(ConfigError):
        ApiKeyAuth()
    with pytest.raises(ConfigError):
        ApiKeyAuth(tmp_path, keys=[])
    with pytest.raises(ConfigError):
        new_key("")
    assert ApiKey(hash="x", user="y").roles == []


# ---- tokens


def jwt(of: Issuer, **settings: Any) -> JwtAuth:
    named = {"issuer": of.url, "audience": "polyport", "jwks": of.jwks, "seams": of.clock.seams}
    return JwtAuth(**{**named, **settings})


@pytest.mark.parametrize(
    ("kind", "size", "alg"),
    [("RSA", 2048, "RS256"), ("RSA", 2048, "PS256"), ("EC", "P-256", "ES256"), ("OKP", "Ed25519", "Ed25519")],
)
async def test_a_good_token_names_its_caller(kind: Any, size: Any, alg: str):
    issuer = Issuer(key=jwk.generate_key(kind, size, {"kid": "k1"}))
    token = issuer.token(header={"alg": alg}, aud=["other", "polyport"], roles=["admin"], email="a@example.test")
    caller = await jwt(issuer).authenticate(carrying(token))
    assert caller is not None and (caller.user, caller.roles) == ("alice", {"admin"})
    assert caller.claims["email"] == "a@example.test"


async def test_claims_of_other_names_and_deeper_ones():
    issuer = Issuer()
    auth = jwt(issuer, user_claim="preferred_username", roles_claim="realm_access.roles")
    token = issuer.token(preferred_username="al", realm_access={"roles": ["a", 1, "b"]})
    caller = await auth.authenticate(carrying(token))
    assert caller is not None and (caller.user, caller.roles) == ("al", {"a", "b"})
    caller = await jwt(issuer, roles_claim="scope").authenticate(carrying(issuer.token(scope="read write")))
    assert caller is not None and caller.roles == {"read", "write"}


NOW = int(Clock().now)
WRONG_CLAIMS: list[dict[str, Any]] = [
    {"iss": "https://issuer.test/"},
    {"iss": None},
    {"iss": ["https://issuer.test"]},
    {"aud": "other"},
    {"aud": None},
    {"aud": []},
    {"aud": [["polyport"]]},
    {"aud": {"polyport": 1}},
    {"exp": None},
    {"exp": "soon"},
    {"exp": True},
    {"exp": NOW - 61},
    {"nbf": NOW + 300},
    {"nbf": "now"},
    {"sub": None},
    {"sub": ""},
    {"sub": 7},
    {"sub": "x" * 300},
    {"sub": "a\nb"},
]


@pytest.mark.parametrize("claims", WRONG_CLAIMS, ids=[json.dumps(c)[:40] for c in WRONG_CLAIMS])
async def test_a_token_with_wrong_claims_is_refused(claims: dict[str, Any]):
    issuer = Issuer()
    issuer.clock.now = NOW
    assert await refused(jwt(issuer), carrying(issuer.token(**claims)))


async def test_clocks_may_differ_by_the_leeway():
    issuer = Issuer()
    now = int(issuer.clock.now)
    assert await user_of(jwt(issuer), carrying(issuer.token(exp=now - 50, nbf=now + 50)))
    assert await refused(jwt(issuer, leeway_s=0), carrying(issuer.token(exp=now - 50)))


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_a_signature_must_be_by_a_public_key_of_the_issuer():
    issuer = Issuer()
    auth, good = jwt(issuer), issuer.token()
    head, body, signature = good.split(".")
    other = jwk.generate_key("EC", "P-256", {"kid": "k1"})
    confused = f"{part({'alg': 'HS256', 'kid': 'k1'})}.{body}"
    mac = hmac.digest(issuer.key.as_pem(private=False), confused.encode(), "sha256")
    wrong = [
        issuer.token(other),
        f"{part({'alg': 'none'})}.{body}.",
        f"{part({'alg': 'none', 'kid': 'k1'})}.{body}.{signature}",
        f"{part({'alg': 'None', 'kid': 'k1'})}.{body}.",
        f"{confused}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}",
        f"{head}.{part(issuer.claims(sub='root'))}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{good}.x",
        "x",
        "..",
        f"{part([1])}.{body}.{signature}",
        f"{part({'alg': ['ES256'], 'kid': 'k1'})}.{body}.{signature}",
        f"{part({'alg': 'ES256', 'kid': 1})}.{body}.{signature}",
        issuer.token(header={"kid": "k2"}),
        issuer.token(jwk.generate_key("RSA", 2048, {"kid": "k1"}), {"alg": "RS256"}),
    ]
    for token in wrong:
        assert await refused(auth, carrying(token)), token
    assert await user_of(auth, carrying(good)) == "alice"
    assert await user_of(auth, carrying(issuer.token(header={"kid": None}))) == "alice", "any key that fits"
    assert await refused(jwt(issuer, algorithms=["RS256"]), carrying(good)), "not allowed here"


async def test_a_critical_header_that_nobody_knows_is_refused():
    issuer = Issuer()
    signed = JWSRegistry.algorithms["ES256"]

    def token(**header: Any) -> str:
        text = f"{part({'alg': 'ES256', 'kid': 'k1', **header})}.{part(issuer.claims())}"
        return f"{text}.{base64.urlsafe_b64encode(signed.sign(text.encode(), issuer.key)).rstrip(b'=').decode()}"

    assert await user_of(jwt(issuer), carrying(token(typ="at+jwt", other=1))) == "alice"
    assert await refused(jwt(issuer), carrying(token(crit=["other"], other=1)))
    assert await refused(jwt(issuer), carrying(token(crit=[])))


async def test_secrets_and_encryption_keys_in_a_set_are_no_keys():
    issuer = Issuer()
    secret = jwk.generate_key("oct", 256, {"kid": "s"})
    both = {"keys": [secret.as_dict(private=True), {"kty": "EC"}, "x", *issuer.jwks["keys"]]}
    assert await user_of(jwt(issuer, jwks=both), carrying(issuer.token())) == "alice"
    assert await refused(jwt(issuer, jwks=both), carrying(issuer.token(secret, {"alg": "HS256"})))
    for keys in ({"keys": [secret.as_dict(private=True)]}, {"keys": [{**issuer.jwks["keys"][0], "use": "enc"}]}, {}):
        with pytest.raises(ConfigError, match="no public key"):
            jwt(issuer, jwks=keys)


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithms": ["none"]},
        {"algorithms": ["HS256"]},
        {"algorithms": []},
        {"issuer": ""},
        {"audience": ""},
        {"audience": []},
        {"jwks": "http://issuer.test/keys"},
        {"jwks": "ftp://127.0.0.1/keys"},
        {"jwks": "/nowhere/jwks.json"},
        {"jwks": None, "issuer": "http://issuer.test"},
    ],
)
def test_settings_that_would_trust_anybody_are_refused(settings: dict[str, Any]):
    with pytest.raises(ConfigError):
        jwt(Issuer(), **settings)


async def test_required_claims_and_the_list_of_users():
    issuer = Issuer()
    auth = jwt(issuer, user_claim="email", required={"email_verified": True}, allowed_users={"a@example.test"})
    good = {"email": "a@example.test", "email_verified": True}
    assert await user_of(auth, carrying(issuer.token(**good))) == "a@example.test"
    for claims in ({**good, "email_verified": "true"}, {**good, "email_verified": 1}, {"email": "a@example.test"}):
        assert await refused(auth, carrying(issuer.token(**claims))), claims
    with pytest.raises(Forbidden):
        await auth.authenticate(carrying(issuer.token(**{**good, "email": "b@example.test"})))


async def test_googles_presets_look_where_google_says():
    oidc, iap = google_oidc("me", ["a@example.test"]), google_iap("me")
    assert oidc.required == {"email_verified": True} and "accounts.google.com" in oidc.issuer
    assert await refused(iap, carrying("x.y.z")), "it looks at its own header only"
    assert await refused(iap, credentials(x_goog_iap_jwt_assertion=["a.b.c", "a.b.c"]))


# ---- keys of an issuer, fetched


async def test_discovery_finds_the_keys_and_asks_once():
    async with Issuer().serving() as issuer:
        auth = jwt(issuer, jwks=None)
        assert await user_of(auth, carrying(issuer.token())) == "alice"
        assert await user_of(auth, carrying(issuer.token(sub="bob"))) == "bob"
        assert issuer.asked == {"/.well-known/openid-configuration": 1, "/keys": 1}


async def test_a_new_key_is_fetched_when_it_is_used_but_not_more_often_than_may_be():
    async with Issuer().serving() as issuer:
        auth = jwt(issuer, jwks=f"{issuer.url}/keys")
        old = issuer.token()
        assert await user_of(auth, carrying(old)) == "alice"
        issuer.rotated("k2")
        assert await refused(auth, carrying(issuer.token())), "a moment after the last fetch"
        for n in range(20):
            assert await refused(auth, carrying(issuer.token(header={"kid": f"made-up-{n}"})))
        assert issuer.asked == {"/keys": 1}
        issuer.clock.now += GAP_S
        assert await user_of(auth, carrying(issuer.token())) == "alice"
        assert issuer.asked == {"/keys": 2}
        issuer.clock.now += KEEP_S
        assert await refused(auth, carrying(old)), "what was verified does not outlive its key for long"
        issuer.clock.now -= 2 * KEEP_S
        issuer.rotated("k3")
        assert await user_of(auth, carrying(issuer.token())) == "alice", "the clock was set back"


async def test_many_callers_at_once_cost_the_issuer_one_question():
    async with Issuer().serving() as issuer:
        auth = jwt(issuer, jwks=f"{issuer.url}/keys")
        found: list[str] = []

        async def ask(n: int) -> None:
            found.append(await user_of(auth, carrying(issuer.token(sub=f"u{n}"))))

        async with anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(ask, n)
        assert len(found) == 20 and issuer.asked == {"/keys": 1}


async def test_a_caller_that_leaves_while_keys_are_fetched_keeps_nobody_out():
    async with Issuer().serving() as issuer:
        auth = jwt(issuer, jwks=f"{issuer.url}/keys")
        issuer.held = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(auth.authenticate, carrying(issuer.token()))
            await issuer.arrived.wait()
            group.cancel_scope.cancel()
        issuer.held.set()
        assert await user_of(auth, carrying(issuer.token())) == "alice"


async def test_rest_77_an_issuer_that_is_down_is_its_own_failure_unless_a_kept_key_does(
    caplog: pytest.LogCaptureFixture,
):
    async with Issuer().serving() as issuer:
        auth = jwt(issuer, jwks=f"{issuer.url}/keys")
        issuer.down = True
        with pytest.raises(AuthenticationFailed, match=r"^authentication failed$"):
            await auth.authenticate(carrying(issuer.token()))
        assert "status 503" in caplog.text
        issuer.down = False
        with pytest.raises(AuthenticationFailed):
            await auth.authenticate(carrying(issuer.token()))  # not asked again yet
        issuer.clock.now += GAP_S
        assert await user_of(auth, carrying(issuer.token())) == "alice"
        issuer.down = True
        issuer.clock.now += FRESH_S + 1
        assert await user_of(auth, carrying(issuer.token())) == "alice", "the kept key does"
        with pytest.raises(AuthenticationFailed):
            await auth.authenticate(carrying(issuer.token(header={"kid": "k2"})))
        issuer.clock.now += STALE_S
        with pytest.raises(AuthenticationFailed):
            await auth.authenticate(carrying(issuer.token()))


@pytest.mark.parametrize(
    "told", [{"issuer": "https://evil.test"}, {"jwks_uri": "http://evil.test/keys"}, {"jwks_uri": 7}]
)
async def test_discovery_of_another_issuer_or_without_tls_is_not_believed(told: dict[str, Any]):
    async with Issuer(discovery=told).serving() as issuer:
        with pytest.raises(AuthenticationFailed):
            await jwt(issuer, jwks=None).authenticate(carrying(issuer.token()))
        assert "/keys" not in issuer.asked


async def test_a_token_that_was_verified_is_not_verified_again_but_expires():
    async with Issuer().serving() as issuer:
        auth = jwt(issuer, jwks=f"{issuer.url}/keys", leeway_s=0)
        token = issuer.token(exp=int(issuer.clock.now) + 30)
        assert await user_of(auth, carrying(token)) == "alice"
        assert await user_of(auth, carrying(token)) == "alice"
        issuer.clock.now += 31
        assert await refused(auth, carrying(token))


# ---- functions, and several


async def test_a_function_of_ones_own_sync_or_async_gives_a_caller_or_a_name():
    def sync(given: Credentials) -> str | None:
        return next(iter(given.values("x-user")), None)

    async def named(given: Credentials) -> Caller | None:
        return Caller("alice", {"by": "me"}) if given.values("x-user") else None

    for function in (sync, named):
        assert await user_of(FunctionAuth(function), credentials(x_user="alice")) == "alice"
        assert await FunctionAuth(function).authenticate(credentials()) is None
    assert await FunctionAuth(None).authenticate(credentials(x_user="alice")) is None
    assert await refused(FunctionAuth(sync), credentials(x_user="")), "an empty name is nobody's"
    wrong: Any = lambda given: {"user": "alice"}  # noqa: E731
    with pytest.raises(TypeError, match="not a dict"):
        await FunctionAuth(wrong).authenticate(credentials())


class Down:
    challenge = "Down"

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        raise OSError("no route to the provider")


async def test_any_of_several_takes_the_first_that_knows_the_caller():
    key, kept = new_key("keyed")
    keys, header = ApiKeyAuth(keys=[kept]), HeaderAuth("X-User", ["127.0.0.1"])
    both = AnyOf(keys, header)
    assert await user_of(both, carrying(key)) == "keyed"
    assert await user_of(both, credentials(x_user="named")) == "named"
    assert await refused(both, credentials())
    assert await refused(both, carrying("wrong"))
    assert await user_of(AnyOf(Down(), header), credentials(x_user="named")) == "named"
    with pytest.raises(OSError, match="no route"):
        await AnyOf(keys, Down(), header).authenticate(credentials())
    assert AnyOf(keys, Down()).challenge == "Bearer, Down"
    with pytest.raises(ConfigError):
        AnyOf()


# ---- what a caller may do


async def may(authorizer: Authorizer, caller: Caller, *asked: str) -> bool:
    try:
        match asked:
            case ("act", user, app):
                await authorizer.act_as(caller, user, app)
            case ("use", app):
                await authorizer.use(caller, app)
            case _:
                await authorizer.administer(caller, asked[-1] if len(asked) > 1 else "")
    except Forbidden as error:
        assert str(error).startswith("forbidden: ")
        return False
    return True


ALICE, ROOT = Caller("alice"), Caller("root", roles=frozenset({"admin"}))


async def test_rest_80_strict_is_exact():
    for user in ("Alice", "alice ", "", "bob", "ALICE"):
        assert not await may(Strict(), ALICE, "act", user, "a")
        assert not user or not await may(Strict(), Caller(), "act", user, "a"), "an anonymous caller"
    assert await may(Strict(), ALICE, "act", "alice", "a")
    assert await may(Strict(), Caller(), "act", "", "a")
    assert await may(Strict(), ROOT, "act", "bob", "a")
    assert await may(Strict(), ROOT, "administer")
    assert not await may(Strict(), ALICE, "administer")
    assert not await may(Strict(admin_roles=("boss",)), ROOT, "act", "bob", "a")
    assert not await may(Strict(admin_roles="boss"), Caller("b", roles=frozenset({"b"})), "act", "x", "a")


async def test_open_refuses_nothing():
    assert await may(Open(), Caller(), "act", "bob", "a")
    assert await may(Open(), Caller(), "use", "a")
    assert await may(Open(), Caller(), "administer")


async def test_roles_say_who_may_act_as_whom_use_what_and_administer():
    roles = Roles(
        [
            Role(name="*", apps=("help",)),
            Role(name="support", apps=("help", "shop-*"), act_as=("customer-?", "x[1]")),
            Role(name="owner", apps=("shop-a",), administer=True),
            Role(name="admin", act_as=("*",), administer=True),
        ]
    )
    sue = Caller("sue", roles=frozenset({"support", "unknown"}))
    own = Caller("own", roles=frozenset({"owner"}))
    assert await may(roles, ALICE, "use", "help") and await may(roles, ALICE, "act", "alice", "help")
    assert not await may(roles, ALICE, "use", "shop-a") and not await may(roles, ALICE, "act", "alice", "shop-a")
    assert await may(roles, sue, "use", "shop-a") and await may(roles, sue, "act", "customer-1", "shop-b")
    assert await may(roles, sue, "act", "x[1]", "help") and not await may(roles, sue, "act", "x1", "help")
    assert not await may(roles, sue, "act", "customer-12", "shop-b") and not await may(
        roles, sue, "act", "alice", "help"
    )
    assert not await may(roles, sue, "act", "customer-1", "bank") and not await may(roles, sue, "administer", "help")
    assert await may(roles, own, "administer", "shop-a")
    assert not await may(roles, own, "administer") and not await may(roles, own, "administer", "shop-b")
    assert not await may(roles, own, "act", "alice", "shop-a")
    assert await may(roles, ROOT, "administer") and await may(roles, ROOT, "act", "alice", "bank")
    for wrong in ([Role(name="a"), Role(name="a")], [Role(name="a", apps="*")]):  # pyright: ignore
        with pytest.raises(ConfigError):
            Roles(wrong)
