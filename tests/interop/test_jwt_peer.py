"""Tokens and keys that PyJWT and cryptography make, as issuers do, are taken by JwtAuth; tokens of strangers are not."""

import json
import time
from typing import Any

import jwt as pyjwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from polyport.auth.jwt import ALGORITHMS, JwtAuth
from polyport.errors import Unauthenticated
from support.identity import carrying

CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def pair(alg: str, kid: str) -> tuple[Any, dict[str, Any]]:
    """A private key for an algorithm, and its public half as a JWK."""
    if alg in CURVES:
        private: Any = ec.generate_private_key(CURVES[alg])
    elif alg == "EdDSA":
        private = ed25519.Ed25519PrivateKey.generate()
    else:
        private = rsa.generate_private_key(65537, 2048)
    algorithm: Any = pyjwt.get_algorithm_by_name(alg)
    jwk = algorithm.to_jwk(private.public_key())
    return private, {**(json.loads(jwk) if isinstance(jwk, str) else jwk), "kid": kid, "use": "sig", "alg": alg}


@pytest.mark.parametrize("alg", [name for name in ALGORITHMS if name != "Ed25519"])
async def test_every_algorithm_that_is_allowed(alg: str):
    private, jwk = pair(alg, "k")
    stranger, _ = pair(alg, "k")
    auth = JwtAuth(issuer="https://i.test", audience="me", jwks={"keys": [jwk]})
    claims = {"iss": "https://i.test", "aud": ["me"], "sub": "alice", "exp": int(time.time()) + 60}
    caller = await auth.authenticate(carrying(pyjwt.encode(claims, private, alg, {"kid": "k"})))
    assert caller is not None and caller.user == "alice"
    with pytest.raises(Unauthenticated):
        await auth.authenticate(carrying(pyjwt.encode(claims, stranger, alg, {"kid": "k"})))
    with pytest.raises(Unauthenticated):
        await auth.authenticate(carrying(pyjwt.encode(claims, "s" * 64, "HS256", {"kid": "k"})))
    with pytest.raises(Unauthenticated):
        await auth.authenticate(carrying(pyjwt.encode(claims, None, "none", {"kid": "k"})))
