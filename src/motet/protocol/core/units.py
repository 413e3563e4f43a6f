"""Time is an integer number of nanoseconds everywhere below the application; people write `250ms` and `64KiB`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from motet.errors import ConfigError

NANOSECOND = 1
MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

DURATIONS = {"ns": 1, "us": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "min": MINUTE, "h": HOUR, "d": DAY}
BINARY_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZES = {**BINARY_SIZES, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

_MOST_DIGITS = 30
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)


def format_ns(duration_ns: int) -> str:
    """A duration the way a person reads it: `1.500 s`, `20.0 ms`, `35 us`."""
    if abs(duration_ns) >= SECOND:
        return f"{duration_ns / SECOND:.3f} s"
    if abs(duration_ns) >= MILLISECOND:
        return f"{duration_ns / MILLISECOND:.1f} ms"
    return f"{duration_ns // MICROSECOND} us"


def parse_duration(text: str, name: str = "duration") -> int:
    """Nanoseconds, from text such as `250ms`, `1.5s` or `2min`; a bare 0 needs no unit."""
    forms = "a number with a unit (ns, us, ms, s, min, h, d), for example 250ms"
    return _parse(text, name, DURATIONS, forms)


def parse_size(text: str, name: str = "size") -> int:
    """Bytes, from text such as `64KiB`, `1.5MB` or `60000`."""
    forms = "a number of bytes, or one with a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), for example 64KiB"
    return _parse(text, name, {"": 1, **SIZES}, forms)


def spell_duration(duration_ns: int) -> str:
    """The exact duration, in the form that `parse_duration` accepts."""
    return _spell(duration_ns, DURATIONS)


def spell_size(size_bytes: int) -> str:
    """The exact size, in the form that `parse_size` accepts."""
    return _spell(size_bytes, BINARY_SIZES)


def _parse(text: str, name: str, units: Mapping[str, int], forms: str) -> int:
    found = _QUANTITY.fullmatch(text.strip()) if len(text) <= _MOST_DIGITS else None
    if found and not found[2] and not Fraction(found[1]):
        return 0
    value = Fraction(found[1]) * units[found[2]] if found and found[2] in units else None
    if value is None or value.denominator != 1:
        raise ConfigError(f"{name} = {text[:_MOST_DIGITS]!r} cannot be read; allowed is {forms}")
    return int(value)


def _spell(value: int, units: Mapping[str, int]) -> str:
    largest = max((unit for unit, factor in units.items() if value % factor == 0), key=units.__getitem__)
    return f"{value // units[largest]}{largest}" if value else "0"
