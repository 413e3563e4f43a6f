"""Connection ids go round a circle of 2**32 and still know which of two is the newer."""

from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.core.serial import SERIAL_MODULUS, is_newer, next_serial

HALF = SERIAL_MODULUS // 2
SERIALS = st.one_of(
    st.integers(0, SERIAL_MODULUS - 1), st.sampled_from([0, 1, HALF - 1, HALF, HALF + 1, SERIAL_MODULUS - 1])
)
STEPS = st.one_of(st.integers(1, HALF - 1), st.sampled_from([1, 2, HALF - 1]))


def test_after_the_last_serial_comes_zero() -> None:
    assert next_serial(SERIAL_MODULUS - 1) == 0
    assert is_newer(0, SERIAL_MODULUS - 1)
    assert not is_newer(SERIAL_MODULUS - 1, 0)


@given(serial=SERIALS)
def test_the_next_serial_is_newer_and_stays_in_32_bits(serial: int) -> None:
    following = next_serial(serial)
    assert 0 <= following < SERIAL_MODULUS
    assert is_newer(following, serial)


@given(serial=SERIALS)
def test_a_serial_is_not_newer_than_itself(serial: int) -> None:
    assert not is_newer(serial, serial)


@given(serial=SERIALS, steps=STEPS)
def test_whatever_lies_less_than_half_the_circle_ahead_is_newer(serial: int, steps: int) -> None:
    ahead = (serial + steps) % SERIAL_MODULUS
    assert is_newer(ahead, serial)
    assert not is_newer(serial, ahead)


@given(serial=SERIALS)
def test_of_two_opposite_serials_neither_is_newer(serial: int) -> None:
    opposite = (serial + HALF) % SERIAL_MODULUS
    assert not is_newer(opposite, serial)
    assert not is_newer(serial, opposite)
