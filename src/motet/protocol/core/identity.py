"""Who a member is: a name for people, a host and port for the network, and a random incarnation for the protocols.

A process that restarts at the same host and port draws a new incarnation and so is a new member. Equality, hash and
order compare the incarnation first, because it alone distinguishes two runs of one process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, total_ordering
from ipaddress import ip_address
from random import Random
from typing import NamedTuple

from motet.errors import ConfigError

INCARNATION_BITS = 64
MOST_TEXT_BYTES = 255  # The wire format has one byte for the length of a name or a host.
NOBODY = 0  # Never drawn as an incarnation. As a destination it means every receiver.


class Endpoint(NamedTuple):
    """An address for datagrams, whichever incarnation is running there."""

    host: str
    port: int

    def __str__(self) -> str:
        """The form that `parse_endpoint` accepts."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(written: str, name: str = "endpoint") -> Endpoint:
    """Parse `host:port`; an IPv6 address must stand in brackets."""
    host, colon, port = written.strip().rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if is_bracketed else host
    is_port = port.isdecimal() and len(port) <= 5 and int(port) <= 0xFFFF
    if not colon or not bare or not is_port or (":" in bare and not is_bracketed):
        raise ConfigError(
            f"{name} = {written[:80]!r} is no endpoint; "
            f"allowed is HOST:PORT with a port of 0 to 65535, for example 127.0.0.1:7800 or [::1]:7800"
        )
    return Endpoint(bare, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name other than localhost counts as reachable by others."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Address:
    """One incarnation of one process."""

    name: str
    host: str
    port: int
    incarnation: int
    endpoint: Endpoint = field(init=False, repr=False)  # Built once, because every datagram needs it.

    def __post_init__(self) -> None:
        object.__setattr__(self, "endpoint", Endpoint(self.host, self.port))
        if not self.name:
            raise ConfigError("an address needs a name; any short text that people will recognise in a log")
        if max(len(self.name.encode()), len(self.host.encode())) > MOST_TEXT_BYTES:
            raise ConfigError(
                f"name {self.name[:20]!r}... or its host is too long; allowed are {MOST_TEXT_BYTES} bytes"
            )
        if not 0 <= self.port <= 0xFFFF:
            raise ConfigError(f"port {self.port} is not a UDP port; allowed are 0 to 65535")
        if not 0 < self.incarnation < 1 << INCARNATION_BITS:
            raise ConfigError(f"incarnation {self.incarnation} is not in 1 to 2**64 - 1; draw one with Address.draw")

    @staticmethod
    def draw(name: str, host: str, port: int, rng: Random) -> Address:
        """A new incarnation of the process at `host`:`port`."""
        return address_of(name, host, port, rng.getrandbits(INCARNATION_BITS) or 1)

    def __hash__(self) -> int:
        return self.incarnation

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Address):
            return NotImplemented
        return self is other or (
            self.incarnation == other.incarnation
            and self.port == other.port
            and self.name == other.name
            and self.host == other.host
        )

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Address):
            return NotImplemented
        return self._key() < other._key()

    def _key(self) -> tuple[int, str, str, int]:
        return (self.incarnation, self.name, self.host, self.port)

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation >> 48:04x}"


@lru_cache(maxsize=4096)
def address_of(name: str, host: str, port: int, incarnation: int) -> Address:
    """The address as a shared object, however often it is decoded: dictionaries compare by identity before equality."""
    return Address(name, host, port, incarnation)
