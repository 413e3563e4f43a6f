"""Messages that are split when somebody looks: they read like the tuple of them, however they are looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.wire.body import fragment, pack
from motet.protocol.wire.messages import EAGER_BYTES, Messages
from motet.protocol.wire.reassembler import Reassembler

BODIES = st.lists(st.lists(st.binary(max_size=30), max_size=8), max_size=5)


@given(bodies=BODIES)
def test_they_are_what_was_packed(bodies: list[list[bytes]]) -> None:
    expected = tuple(message for body in bodies for message in body)
    messages = Messages(tuple(map(pack, bodies)))
    assert len(messages) == len(expected)
    assert bool(messages) == bool(expected)
    assert tuple(messages) == expected
    assert tuple(messages) == expected, "going through them twice is no different"
    assert messages == expected
    assert expected == messages
    assert messages == Messages(tuple(map(pack, bodies)))
    assert hash(messages) == hash(expected)


@given(bodies=BODIES, index=st.integers(-50, 50))
def test_they_can_be_indexed_and_sliced(bodies: list[list[bytes]], index: int) -> None:
    expected = tuple(message for body in bodies for message in body)
    messages = Messages(tuple(map(pack, bodies)))
    assert messages[index:] == expected[index:]
    if -len(expected) <= index < len(expected):
        assert messages[index] == expected[index]


def test_they_differ_from_others_and_from_other_kinds() -> None:
    messages = Messages((pack([b"a", b"b"]),))
    assert messages != (b"a",)
    assert messages != (b"a", b"c")
    assert messages != [b"a", b"b"]
    assert repr(messages) == "<2 messages in 1 bodies>"


def test_a_reassembler_splits_little_at_once_and_much_later() -> None:
    reassembler = Reassembler()
    assert isinstance(reassembler.take(1, (pack([b"few"]),)), tuple)
    many = [b"x" * 100] * (EAGER_BYTES // 50)
    later = reassembler.take(2, (pack(many), pack([b"end"])))
    assert isinstance(later, Messages)
    assert later == (*many, b"end")


def test_fragments_are_put_together_at_once() -> None:
    large = bytes(2 * EAGER_BYTES)
    bodies = (fragment(large, 0, EAGER_BYTES), fragment(large, EAGER_BYTES, EAGER_BYTES), pack([b"end"]))
    assert Reassembler().take(1, bodies) == (large, b"end")
