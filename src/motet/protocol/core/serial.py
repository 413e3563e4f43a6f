"""Serial number arithmetic (RFC 1982) for connection ids: 32 bits that wrap around and remain comparable.

A serial is newer than another when it is less than half the range ahead of it. The order holds as long as fewer than
2**31 connections are opened while an old datagram is still in flight.
"""

from __future__ import annotations

SERIAL_MODULUS = 1 << 32
_HALF = SERIAL_MODULUS >> 1


def next_serial(serial: int) -> int:
    return (serial + 1) % SERIAL_MODULUS


def is_newer(serial: int, other: int) -> bool:
    return 0 < (serial - other) % SERIAL_MODULUS < _HALF
