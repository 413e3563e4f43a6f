"""Authorizes requests to the admin interface.

Three things are checked, each against its own attack:

- the token, compared in constant time: anybody who can reach the port;
- the Host header, on loopback: a web page whose name was made to point to 127.0.0.1 (DNS rebinding);
- Origin, Sec-Fetch-Site and the content type of a POST: a web page of another site that posts here (CSRF).

Reading needs less than operating: `read_token` is derived from the token and permits reading only. Members present it
to one another, and a metrics collector should get it, too.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from motet.protocol.core.identity import is_loopback

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    status: HTTPStatus
    text: str


@dataclass(frozen=True, slots=True)
class Authorizer:
    host: str  # what the server is bound to
    token: str | None = None
    hosts: frozenset[str] = frozenset()  # further names under which a reverse proxy publishes this server

    def refuse_read(self, headers: Mapping[str, str]) -> AccessRefusal | None:
        """On loopback every local user may read; beyond loopback a token is required."""
        refusal = self.refuse_host(headers)
        if refusal is None and not is_loopback(self.host):
            refusal = self._refuse_token(headers, may_only_read=True)
        return refusal

    def refuse_write(self, headers: Mapping[str, str]) -> AccessRefusal | None:
        return self.refuse_host(headers) or self._refuse_origin(headers) or self._refuse_token(headers)

    def refuse_host(self, headers: Mapping[str, str]) -> AccessRefusal | None:
        """Beyond loopback a token is required, which no foreign web page has, so the Host header does not matter."""
        if not is_loopback(self.host) and self.token is not None:
            return None
        name = host_name(headers.get("Host", ""))
        if name in LOOPBACK_NAMES or name == self.host or name in self.hosts:
            return None
        if not is_loopback(self.host) and is_address(name):
            return None  # DNS rebinding needs a name; an address cannot be rebound
        return AccessRefusal(
            HTTPStatus.FORBIDDEN,
            f"this member does not answer to the host name {name[:100]!r}; a reverse proxy must pass "
            "`Host: localhost`, or the name must be among the admin server's `hosts`",
        )

    def _refuse_origin(self, headers: Mapping[str, str]) -> AccessRefusal | None:
        """A browser sends the origin of a page, and asks before it sends JSON to another site."""
        if headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return AccessRefusal(HTTPStatus.FORBIDDEN, "a page of another site may not operate this member")
        origin = headers.get("Origin")
        if origin is not None:
            asked = headers.get("Host", "")
            named = authority_of(origin)
            if named is None or (named != asked.lower() and host_name(named) not in self.hosts):
                return AccessRefusal(
                    HTTPStatus.FORBIDDEN,
                    f"the requesting page comes from {origin[:100]!r}, which is not this server; behind a reverse "
                    "proxy, name its host among the admin server's `hosts`",
                )
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            return AccessRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON, with Content-Type: application/json")
        return None

    def _refuse_token(self, headers: Mapping[str, str], *, may_only_read: bool = False) -> AccessRefusal | None:
        if self.token is None:
            return None
        scheme, _, shown = headers.get("Authorization", "").partition(" ")
        good = [self.token, read_token(self.token)] if may_only_read else [self.token]
        if scheme.lower() == "bearer" and any(same(shown.strip(), token) for token in good):
            return None
        said = "the token is wrong" if shown else "a token is needed"
        return AccessRefusal(
            HTTPStatus.UNAUTHORIZED,
            f"{said}; send `Authorization: Bearer TOKEN` (`motet probe --token`, or MOTET_TOKEN)",
        )


def read_token(token: str) -> str:
    """A token that permits reading only; the original token cannot be derived from it."""
    return hmac.new(token.encode(), b"motet admin: reading", hashlib.sha256).hexdigest()


def same(shown: str, token: str) -> bool:
    """Compare in constant time. A token is ASCII, so any other header value differs from it."""
    return hmac.compare_digest(shown.encode("utf-8", "replace"), token.encode())


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_name(authority: str) -> str:
    """`Example.org:80` -> `example.org`, `[::1]:80` -> `::1`."""
    text = authority.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def authority_of(origin: str) -> str | None:
    """The host and port that an Origin header names; None for `null` and for what is no origin."""
    try:
        parts = urlsplit(origin.strip().lower())
    except ValueError:
        return None
    return parts.netloc if parts.scheme in ("http", "https") and parts.netloc else None
