"""Bodies back into messages: all of them, or, for whoever joins in the middle, those that begin after that."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.wire.backlog import Backlog
from motet.protocol.wire.body import FRAGMENT, FRAGMENT_HEADER, MAX_MESSAGE_BYTES, fragment, pack
from motet.protocol.wire.reassembler import Reassembler

MESSAGES = st.lists(st.one_of(st.binary(max_size=60), st.integers(60, 800).map(lambda n: Random(n).randbytes(n))))
SIZES = st.integers(64, 200)


def bodies_of(messages: list[bytes], body_bytes: int) -> list[tuple[bytes, int]]:
    """Each body, and how many messages are complete before it."""
    backlog = Backlog(body_bytes)
    backlog.extend(messages)
    bodies: list[tuple[bytes, int]] = []
    done = 0
    while backlog:
        body, completed = backlog.take()
        bodies.append((body, done))
        done += completed
    return bodies


@given(messages=MESSAGES, body_bytes=SIZES)
def test_what_went_through_the_backlog_comes_out_complete_and_in_order(messages: list[bytes], body_bytes: int) -> None:
    reassembler = Reassembler()
    out = [message for body, _ in bodies_of(messages, body_bytes) for message in reassembler.feed(body)]
    assert out == messages
    assert (reassembler.incoherent, reassembler.collected_bytes) == (0, 0)


@given(messages=MESSAGES, body_bytes=SIZES, data=st.data())
def test_a_joiner_gets_every_message_that_begins_after_it_joined_and_no_other(
    messages: list[bytes], body_bytes: int, data: st.DataObject
) -> None:
    bodies = bodies_of(messages, body_bytes)
    start = data.draw(st.integers(0, len(bodies)))
    heard = bodies[start:]
    missed_tail = [body for body, done in heard if is_later_fragment(body) and done == heard[0][1]]
    starts_inside = bool(heard) and is_later_fragment(heard[0][0])
    reassembler = Reassembler()
    out = [message for body, _ in heard for message in reassembler.feed(body)]
    first = heard[0][1] + starts_inside if heard else len(messages)
    assert out == messages[first:]
    assert reassembler.incoherent == (len(missed_tail) if starts_inside else 0)


def is_later_fragment(body: bytes) -> bool:
    return body[0] == FRAGMENT and FRAGMENT_HEADER.unpack_from(body)[3] > 0


def test_a_large_message_is_held_until_its_last_fragment_and_no_longer() -> None:
    message = bytes(range(100))
    reassembler = Reassembler()
    assert reassembler.feed(fragment(message, 0, 40)) == ()
    assert reassembler.collected_bytes == 40
    assert reassembler.feed(fragment(message, 40, 40)) == ()
    assert reassembler.feed(fragment(message, 80, 40)) == (message,)
    assert (reassembler.collected_bytes, reassembler.incoherent) == (0, 0)


def test_a_fragment_that_skips_ahead_is_counted_and_its_message_is_given_up() -> None:
    message = bytes(100)
    reassembler = Reassembler()
    reassembler.feed(fragment(message, 0, 40))
    assert reassembler.feed(fragment(message, 80, 40)) == ()
    assert (reassembler.incoherent, reassembler.collected_bytes) == (1, 0)
    assert reassembler.feed(pack([b"whole"])) == (b"whole",)
    assert reassembler.incoherent == 1


def test_a_fragment_of_a_message_of_another_length_is_counted() -> None:
    reassembler = Reassembler()
    reassembler.feed(fragment(bytes(100), 0, 40))
    assert reassembler.feed(fragment(bytes(90), 40, 50)) == ()
    assert reassembler.incoherent == 1


def test_whole_messages_in_the_middle_of_a_large_one_end_it() -> None:
    reassembler = Reassembler()
    reassembler.feed(fragment(bytes(100), 0, 40))
    assert reassembler.feed(pack([b"a", b"b"])) == (b"a", b"b")
    assert (reassembler.incoherent, reassembler.collected_bytes) == (1, 0)
    assert reassembler.feed(fragment(bytes(100), 40, 60)) == ()
    assert reassembler.incoherent == 2


def test_a_large_message_that_begins_anew_replaces_the_unfinished_one() -> None:
    reassembler = Reassembler()
    reassembler.feed(fragment(b"x" * 100, 0, 40))
    reassembler.feed(fragment(b"y" * 60, 0, 40))
    assert reassembler.incoherent == 1
    assert reassembler.feed(fragment(b"y" * 60, 40, 40)) == (b"y" * 60,)


def test_a_body_without_messages_gives_none() -> None:
    assert Reassembler().feed(pack([])) == ()


@given(fragments=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30), st.binary(min_size=1, max_size=30))))
def test_no_order_of_fragments_collects_more_than_one_message(fragments: list[tuple[int, int, bytes]]) -> None:
    reassembler = Reassembler()
    for total, offset, chunk in fragments:
        if offset + len(chunk) <= total:  # the others never pass `flaw`
            for message in reassembler.feed(FRAGMENT_HEADER.pack(FRAGMENT, 0, total, offset) + chunk):
                assert len(message) == total
            assert reassembler.collected_bytes < 30


def test_one_message_of_64_mib_goes_through_in_one_piece() -> None:
    message = Random(7).randbytes(MAX_MESSAGE_BYTES)
    reassembler = Reassembler()
    out = [done for body, _ in bodies_of([message], 60_000) for done in reassembler.feed(body)]
    assert out == [message]
