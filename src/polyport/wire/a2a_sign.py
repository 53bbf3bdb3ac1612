"""Signatures of agent cards: the canonical payload and its JWS (spec a2a 1.3).

Used by the card routes (sign), by clients with trusted keys (verify) and by the command that makes a key. Keys are JWKs,
private or public, as plain dicts with `kid`. The packages joserfc and rfc8785 are imported on first use. Never fetches a key.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import structs

from polyport.codec import MAX_DEPTH, encode
from polyport.errors import BadRequest, ConfigError
from polyport.wire import a2a
from polyport.wire.a2a_card import AgentCard, AgentCardSignature
from polyport.wire.a2a_errors import InvalidAgentResponse

Jwk = Mapping[str, Any]
ALGORITHMS = (
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
)
"""The public key algorithms that are trusted; neither "none" nor shared secrets."""
MAX_CARD_BYTES = 4 * 1024 * 1024
"""No signature over a larger payload is looked at."""
_DEFAULTS = {
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("EC", "P-521"): "ES512",
    ("OKP", "Ed25519"): "Ed25519",
}


class _Tools(NamedTuple):
    jws: Any
    jwk: Any
    jcs: Any
    errors: tuple[type[Exception], ...]
    anything: Any
    """Of a header parameter that we do not use, so that its value does not matter (a2a-sdk writes `jku: null`)."""


def _tools() -> _Tools:
    try:
        import rfc8785
        from joserfc import errors, jwk, jws, registry
    except ImportError:
        raise ConfigError("signed agent cards need two packages more: pip install joserfc rfc8785") from None
    wrong = (errors.JoseError, rfc8785.CanonicalizationError, ValueError, TypeError, KeyError)
    return _Tools(jws, jwk, rfc8785, wrong, registry.HeaderParameter("unused", lambda value: None))


def canonical(card: AgentCard) -> bytes:
    """The payload that is signed: RFC 8785 text of the card without its signatures. Required members are there, optional ones
    if they were set (an explicit false stays), others unless they are empty.

    ConfigError for numbers that JSON cannot carry exactly.
    """
    return _canonical(msgspec.json.decode(encode(structs.replace(card, signatures=[]))))


def _canonical(plain: Any) -> bytes:
    tools = _tools()
    try:
        return tools.jcs.dumps(plain)
    except (*tools.errors, RecursionError) as error:
        raise ConfigError(f"the agent card has no canonical form: {error}") from None


def new_key(kid: str, alg: str = "ES256") -> dict[str, Any]:
    """A new private key as a JWK. ConfigError for an algorithm that is not one of ES256, ES384, ES512, Ed25519."""
    made = next(((kty, crv) for (kty, crv), name in _DEFAULTS.items() if name == alg), None)
    if made is None:
        raise ConfigError(f"no key is made for {alg!r}: use one of {', '.join(_DEFAULTS.values())}")
    key = _tools().jwk.generate_key(*made, {"kid": kid, "use": "sig", "alg": alg})
    return cast("dict[str, Any]", key.as_dict(private=True))


def public_keys(keys: Iterable[Jwk]) -> dict[str, Any]:
    """The JWK Set to publish: the public half of each key."""
    jwk = _tools().jwk
    return {"keys": [jwk.import_key(dict(key)).as_dict(private=False) for key in keys]}


def sign(card: AgentCard, keys: Sequence[Jwk], jku: str = "") -> AgentCard:
    """`card` with one signature per key in place of those it had. `jku` is where the public keys are, if anywhere.

    ConfigError for a key without kid, without its private half, or of an algorithm that is not in ALGORITHMS.
    """
    payload = canonical(card)
    return structs.replace(card, signatures=[_sign(payload, key, jku) for key in keys])


def _sign(payload: bytes, key: Jwk, jku: str) -> AgentCardSignature:
    kid, alg = key.get("kid"), _algorithm(key)
    if not kid or alg not in ALGORITHMS:
        raise ConfigError(f"a key to sign agent cards needs a kid and an alg of {', '.join(ALGORITHMS)}")
    tools = _tools()
    header = {"alg": alg, "kid": kid, "typ": "JOSE"} | ({"jku": jku} if jku else {})
    try:
        private = tools.jwk.import_key(dict(key))
        made = tools.jws.serialize_json({"protected": header}, payload, private, algorithms=[alg])
    except tools.errors as error:
        raise ConfigError(f"the key {kid!r} cannot sign agent cards: {type(error).__name__}") from None
    return AgentCardSignature(protected=made["protected"], signature=made["signature"])


def _algorithm(key: Jwk) -> str:
    said = key.get("alg")
    if isinstance(said, str):
        return said
    return "RS256" if key.get("kty") == "RSA" else _DEFAULTS.get((str(key.get("kty")), str(key.get("crv"))), "")


def verify(plain: dict[str, Any], keys: Iterable[Jwk]) -> str:
    """The kid of the trusted key that signed the card `plain`, the JSON as it was received.

    InvalidAgentResponse when there is no signature, or none by one of `keys` is right. A signature is tried over the payload
    that we would sign, over the received JSON (it may have members that we do not know), and over that without any
    empty member (which is what a2a-sdk signs).
    """
    trusted = {str(key["kid"]): key for key in keys if key.get("kid")}
    try:
        card = a2a.read_plain(plain, AgentCard)
    except BadRequest as error:
        raise InvalidAgentResponse(f"the agent card cannot be read: {error}") from None
    if not card.signatures:
        raise InvalidAgentResponse("the agent card is not signed")
    payloads = list(_payloads(plain, card))
    for signature in card.signatures:
        header = _header(signature.protected)
        key = trusted.get(str(header.get("kid")))
        if key is not None and any(_right(signature, header, payload, key) for payload in payloads):
            return str(header["kid"])
    raise InvalidAgentResponse("no signature of the agent card is right and by a trusted key")


def _payloads(plain: dict[str, Any], card: AgentCard) -> Iterator[bytes]:
    bare = {name: value for name, value in plain.items() if name != "signatures"}
    for make in (lambda: canonical(card), lambda: _canonical(bare), lambda: _canonical(_without_empty(bare))):
        try:
            yield make()
        except (ConfigError, RecursionError):
            continue  # a card that has no canonical form in this way is not signed in this way


def _without_empty(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        members = {k: _without_empty(v, depth + 1) for k, v in cast("dict[str, Any]", value).items()}
        return {k: v for k, v in members.items() if v is not None and v != "" and v != [] and v != {}}
    if isinstance(value, list):
        items = [_without_empty(item, depth + 1) for item in cast("list[Any]", value)]
        return [item for item in items if item is not None and item != "" and item != [] and item != {}]
    return value


def _header(protected: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(protected + "=" * (-len(protected) % 4)))
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _right(signature: AgentCardSignature, header: dict[str, Any], payload: bytes, key: Jwk) -> bool:
    alg = header.get("alg")
    if (
        "crit" in header
        or alg not in ALGORITHMS
        or ("alg" in key and key["alg"] != alg and {key["alg"], alg} != {"EdDSA", "Ed25519"})
    ):
        return False
    tools = _tools()
    registry = tools.jws.JWSRegistry({"jku": tools.anything}, [alg], strict_check_header=False)
    registry.max_payload_length = MAX_CARD_BYTES
    text = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
    whole = {"payload": text, "protected": signature.protected, "signature": signature.signature}
    try:
        public = tools.jwk.import_key({name: value for name, value in key.items() if name != "alg"})
        tools.jws.deserialize_json(whole, public, registry=registry)
    except tools.errors:
        return False
    return True
