"""Signatures of webhooks: Standard Webhooks, and the X-Hub-Signature-256 of GitHub and others.

Used by `protocols/triggers`. Both are HMAC-SHA256 over the raw body; the first also covers the id and the time of the message,
so that it cannot be sent again later. All comparisons take the same time for any guess. Pure: the time is handed in.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable

from polyport.errors import ConfigError, Unauthenticated

TOLERANCE_S = 300.0
"""How far the time of a message may be from ours."""
_PREFIX = "whsec_"
Header = Callable[[str], str]


def signing_key(secret: str) -> bytes:
    """The key that a secret stands for: base64 after `whsec_`, else its own bytes. ConfigError for one that is too short to
    keep anybody out."""
    if secret.startswith(_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError("the secret of a webhook starts with whsec_, but what follows is not base64") from None
    else:
        key = secret.encode()
    if len(key) < 16:
        raise ConfigError("the secret of a webhook needs at least 16 bytes")
    return key


def check_standard(keys: Iterable[bytes], header: Header, body: bytes, now: float) -> None:
    """Unauthenticated unless one of the keys signed this message, not long ago."""
    id, time, given = header("webhook-id"), header("webhook-timestamp"), header("webhook-signature")
    if not (id and time and given):
        raise Unauthenticated("the headers webhook-id, webhook-timestamp and webhook-signature are required")
    if not (time.isascii() and time.isdigit() and len(time) < 16) or abs(now - int(time)) > TOLERANCE_S:
        raise Unauthenticated(f"webhook-timestamp is more than {TOLERANCE_S:g} s from the time of this server")
    signed = f"{id}.{time}.".encode("latin-1") + body
    signatures = [one.removeprefix("v1,") for one in given.split(" ") if one.startswith("v1,")]
    right = [base64.b64encode(_mac(key, signed)).decode() for key in keys]
    _one_of(signatures, right)


def check_hub(keys: Iterable[bytes], header: Header, body: bytes) -> None:
    """Unauthenticated unless one of the keys signed this body."""
    given = header("x-hub-signature-256")
    if not given:
        raise Unauthenticated("the header X-Hub-Signature-256 is required")
    _one_of([given.removeprefix("sha256=")], [_mac(key, body).hex() for key in keys])


def _mac(key: bytes, signed: bytes) -> bytes:
    return hmac.new(key, signed, hashlib.sha256).digest()


def _one_of(given: Iterable[str], right: list[str]) -> None:
    pairs = [(one.encode("latin-1", "replace"), other.encode()) for one in given for other in right]
    if not any(hmac.compare_digest(one, other) for one, other in pairs):
        raise Unauthenticated("the signature is not that of this webhook's secret over this body")
