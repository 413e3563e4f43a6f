"""Durations as a person writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import ConfigError
from motet.protocol.core.units import (
    MICROSECOND,
    MILLISECOND,
    SECOND,
    format_ns,
    parse_duration,
    parse_size,
    spell_duration,
    spell_size,
)


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 us"),
        (35 * MICROSECOND, "35 us"),
        (MILLISECOND - 1, "999 us"),
        (MILLISECOND, "1.0 ms"),
        (20 * MILLISECOND, "20.0 ms"),
        (499_940_000, "499.9 ms"),
        (SECOND, "1.000 s"),
        (1_500 * MILLISECOND, "1.500 s"),
        (60 * SECOND, "60.000 s"),
        (-20 * MILLISECOND, "-20.0 ms"),
        (-2 * SECOND, "-2.000 s"),
    ],
)
def test_a_duration_reads_as_a_person_writes_it(duration_ns: int, text: str) -> None:
    assert format_ns(duration_ns) == text


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0),
        ("0s", 0),
        ("7ns", 7),
        ("35us", 35 * MICROSECOND),
        ("250ms", 250 * MILLISECOND),
        (" 250 ms ", 250 * MILLISECOND),
        ("1.5s", 1_500 * MILLISECOND),
        ("2min", 120 * SECOND),
        ("1h", 3_600 * SECOND),
        ("7d", 7 * 86_400 * SECOND),
    ],
)
def test_a_duration_is_read_as_a_person_writes_it(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("60000", 60_000), ("64KiB", 65_536), ("1.5 MB", 1_500_000), ("2GiB", 2 << 30), ("1TB", 10**12)],
)
def test_a_size_is_read_as_a_person_writes_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "5", "ms", "-1s", "1.s", "1 year", "1e3s", "0.5ns", "٣s", "9" * 5_000])
def test_what_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_duration(text, "probe")
    assert str(caught.value) == (
        f"probe = {text[:30]!r} cannot be read; "
        "allowed is a number with a unit (ns, us, ms, s, min, h, d), for example 250ms"
    )


@pytest.mark.parametrize("text", ["", "-5", "64kb", "0.3", "1.0001kB", "12 parsecs"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_size(text, "frame_bytes")
    assert str(caught.value).startswith(f"frame_bytes = {text!r} cannot be read; allowed is a number of bytes, or one")


@given(st.integers(0, 1 << 62))
def test_what_is_spelled_reads_back(value: int) -> None:
    assert parse_duration(spell_duration(value)) == value
    assert parse_size(spell_size(value)) == value


def test_spelled_as_short_as_it_is_exact() -> None:
    assert [spell_duration(ns) for ns in (0, 1_500 * MILLISECOND, 60 * SECOND, 90 * SECOND)] == [
        *("0", "1500ms", "1min", "90s")
    ]
    assert [spell_size(size) for size in (0, 60_000, 64 << 10, 3 << 30)] == ["0", "60000B", "64KiB", "3GiB"]
