"""Who a member is: a restart at the same host and port is somebody else."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import ConfigError
from motet.protocol.core.identity import Address

ADDRESSES = st.builds(
    Address, st.sampled_from(["a", "b"]), st.sampled_from(["h1", "h2"]), st.integers(1, 2), st.integers(1, 3)
)
HIGHEST_INCARNATION = 2**64 - 1


class _DrawsZero(Random):
    def getrandbits(self, k: int, /) -> int:
        return 0


def test_the_same_four_parts_are_the_same_member() -> None:
    one, other = Address("a", "host", 7800, 42), Address("a", "host", 7800, 42)
    assert one == other
    assert hash(one) == hash(other)


def test_a_restarted_process_is_a_new_member() -> None:
    before, after = Address("a", "host", 7800, 1), Address("a", "host", 7800, 2)
    assert before != after
    assert len({before, after}) == 2


@pytest.mark.parametrize(
    "other", [Address("b", "host", 7800, 1), Address("a", "other", 7800, 1), Address("a", "host", 7801, 1)]
)
def test_two_that_drew_the_same_incarnation_are_still_told_apart(other: Address) -> None:
    assert Address("a", "host", 7800, 1) != other


def test_an_address_equals_nothing_else() -> None:
    anything: object = "a#0000"
    assert Address("a", "host", 7800, 1) != anything


@given(one=ADDRESSES, other=ADDRESSES)
def test_exactly_one_of_less_equal_greater_holds(one: Address, other: Address) -> None:
    assert [one < other, one == other, one > other].count(True) == 1
    assert (one <= other) is (not one > other)


@given(addresses=st.lists(ADDRESSES))
def test_everyone_sorts_members_the_same_way(addresses: list[Address]) -> None:
    ordered = sorted(addresses)
    assert ordered == sorted(Random(0).sample(addresses, len(addresses)))
    incarnations = [address.incarnation for address in ordered]
    assert incarnations == sorted(incarnations)


@given(seed=st.integers(0, 1 << 32))
def test_the_same_generator_draws_the_same_incarnation_and_then_another(seed: int) -> None:
    rng = Random(seed)
    first, second = Address.draw("a", "host", 1, rng), Address.draw("a", "host", 1, rng)
    assert first == Address.draw("a", "host", 1, Random(seed))
    assert first != second


def test_the_incarnation_that_means_nobody_is_never_drawn() -> None:
    assert Address.draw("a", "host", 1, _DrawsZero()).incarnation == 1


@pytest.mark.parametrize("port", [0, 65_535])
@pytest.mark.parametrize("incarnation", [1, HIGHEST_INCARNATION])
def test_the_limits_themselves_are_allowed(port: int, incarnation: int) -> None:
    address = Address("a", "host", port, incarnation)
    assert (address.port, address.incarnation) == (port, incarnation)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_bad_port_is_named(port: int) -> None:
    with pytest.raises(ConfigError, match=rf"port {port} is not a UDP port; allowed are 0 to 65535"):
        Address("a", "host", port, 1)


@pytest.mark.parametrize("incarnation", [0, -1, 1 << 64])
def test_a_bad_incarnation_is_named(incarnation: int) -> None:
    with pytest.raises(ConfigError, match=rf"incarnation {incarnation} is not in 1 to 2\*\*64 - 1"):
        Address("a", "host", 1, incarnation)


def test_an_address_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a name"):
        Address("", "host", 1, 1)


def test_an_address_reads_as_its_name_and_the_start_of_its_incarnation() -> None:
    assert str(Address("orders-1", "host", 1, 0xBEEF_0000_0000_0001)) == "orders-1#beef"
