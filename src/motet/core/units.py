"""Time is an integer number of nanoseconds everywhere below the application."""

from __future__ import annotations

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000


def format_ns(duration_ns: int) -> str:
    """A duration the way a person writes it: `1.500 s`, `20.0 ms`, `35 us`."""
    if abs(duration_ns) >= SECOND:
        return f"{duration_ns / SECOND:.3f} s"
    if abs(duration_ns) >= MILLISECOND:
        return f"{duration_ns / MILLISECOND:.1f} ms"
    return f"{duration_ns // MICROSECOND} us"
