"""Durations as a person writes them."""

import pytest

from motet.core.units import MICROSECOND, MILLISECOND, SECOND, format_ns


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
