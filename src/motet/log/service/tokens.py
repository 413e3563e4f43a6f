"""Access control of a service: a shared token in each call and TLS; without a token it serves loopback only."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pyarrow import flight

from motet.errors import ConfigError, TokenError
from motet.protocol.core.identity import Endpoint, is_loopback

LEAST_TOKEN_BYTES = 16  # off loopback: shorter ones can be guessed by trying
HEADER = "authorization"
SCHEME = "Bearer "


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate chain and private key of a service, both PEM."""

    cert: bytes
    key: bytes

    def __post_init__(self) -> None:
        if b"-----BEGIN CERTIFICATE" not in self.cert or b"-----BEGIN" not in self.key:
            raise ConfigError("TLS needs a certificate and a private key in PEM (they begin with -----BEGIN ...)")

    @classmethod
    def load(cls, cert: str | Path, key: str | Path) -> Tls:
        return cls(read_pem(cert), read_pem(key))


def read_pem(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}); name a PEM file that this user may read") from error


def location_of(endpoint: Endpoint, *, has_tls: bool) -> flight.Location:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    make = flight.Location.for_grpc_tls if has_tls else flight.Location.for_grpc_tcp
    return make(host, endpoint.port)


def check_token(token: str | None, host: str) -> None:
    """Raise ConfigError for a service that anybody on the network could use."""
    if token is None:
        if not is_loopback(host):
            raise ConfigError(
                f"a service at {host} is open to the network and needs a token; give token=... "
                "(for example from secrets.token_urlsafe()), or bind to 127.0.0.1"
            )
        return
    if not token.isascii() or not token.isprintable() or not token.strip() or " " in token:
        raise ConfigError("a token is printable ASCII without blanks, for example from secrets.token_urlsafe()")
    if len(token) < LEAST_TOKEN_BYTES and not is_loopback(host):
        raise ConfigError(
            f"a token of {len(token)} characters can be guessed; off loopback at least {LEAST_TOKEN_BYTES} are needed"
        )


class TokenCheck:
    """Compares in constant time, so that timing reveals nothing about the token, not even its length."""

    def __init__(self, token: str) -> None:
        self._digest = sha256(token.encode()).digest()

    def check(self, headers: Mapping[str, Sequence[str | bytes]]) -> None:
        """Check the headers of one call; their names are case-insensitive."""
        given = next((values[0] for name, values in headers.items() if name.lower() == HEADER and values), None)
        if given is None:
            raise TokenError("this service needs a token; send it with each call as 'authorization: Bearer TOKEN'")
        raw = given if isinstance(given, bytes) else given.encode()
        scheme, token = raw[: len(SCHEME)], raw[len(SCHEME) :]
        is_right = hmac.compare_digest(sha256(token).digest(), self._digest)
        if not is_right or scheme.lower() != SCHEME.lower().encode():
            raise TokenError("the token is not the one that this service was started with")


def headers_of(token: str | None) -> list[tuple[bytes, bytes]]:
    """The headers that a client adds to each call."""
    return [] if token is None else [(HEADER.encode(), (SCHEME + token).encode())]
