"""The certificate and private key of the gRPC server, read from PEM files and checked: of wrong ones gRPC says only that it
cannot listen.

Called by the gRPC server when it starts, and by the command line before anything listens. Never tells what is in a key.
"""

import ssl
from pathlib import Path

from polyport.errors import ConfigError


def read_pair(certificate: str | Path, key: str | Path) -> tuple[bytes, bytes]:
    """What the files of a certificate (with its chain) and its private key hold. ConfigError for files that cannot be read, for
    a key with a password, and for two that do not belong together."""
    try:
        private, public = Path(key).read_bytes(), Path(certificate).read_bytes()
    except OSError as error:
        raise ConfigError(f"grpc_tls: cannot read {error.filename}: {error.strerror}") from None

    def locked() -> str:
        raise ConfigError(f"grpc_tls: the key in {key} has a password; gRPC needs one without")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, locked)
    except (OSError, ValueError) as error:
        why = f" ({error.reason})" if isinstance(error, ssl.SSLError) and error.reason else ""
        raise ConfigError(
            f"grpc_tls: {certificate} and {key} must be a certificate and its private key, both in PEM{why}"
        ) from None
    return public, private
