"""Serial numbers for connection ids: 32 bits that wrap around and still know which of two is the newer one.

One is newer than another when it lies less than half the circle ahead of it, so the order holds as long as no more
than 2**31 connections are opened while an old datagram is still on its way.
"""

from __future__ import annotations

SERIAL_MODULUS = 1 << 32
_HALF = SERIAL_MODULUS >> 1


def next_serial(serial: int) -> int:
    return (serial + 1) % SERIAL_MODULUS


def is_newer(serial: int, other: int) -> bool:
    return 0 < (serial - other) % SERIAL_MODULUS < _HALF
