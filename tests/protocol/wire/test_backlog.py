"""The line of messages that wait for space, against a model that packs greedily and walks every message."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from motet.protocol.wire.backlog import Backlog
from motet.protocol.wire.body import (
    FRAGMENT_HEADER,
    HEADER,
    LENGTH_BYTES,
    MAX_MESSAGE_BYTES,
    Port,
    flaw,
    fragment,
    pack,
    split,
)
from motet.protocol.wire.ordered import Tag

SIZES = st.integers(64, 200)
MESSAGES = st.lists(
    st.one_of(st.binary(max_size=12), st.integers(40, 700).map(lambda size: bytes(n % 251 for n in range(size)))),
    max_size=12,
)
OPERATIONS = st.lists(st.one_of(MESSAGES, st.just("take"), st.just("clear")), max_size=40)


class ModelBacklog:
    """As many whole messages as fit, counted one by one; one chunk of the first when not even that fits."""

    def __init__(self, body_bytes: int) -> None:
        self.body_bytes = body_bytes
        self.waiting: list[bytes] = []
        self.sent_of_head = 0

    def take(self) -> tuple[bytes, int]:
        count, used = 0, HEADER.size
        while count < len(self.waiting) and used + LENGTH_BYTES + len(self.waiting[count]) <= self.body_bytes:
            used += LENGTH_BYTES + len(self.waiting[count])
            count += 1
        if count:
            taken, self.waiting = self.waiting[:count], self.waiting[count:]
            return pack(taken), count
        chunk = self.body_bytes - FRAGMENT_HEADER.size
        head, offset = self.waiting[0], self.sent_of_head
        self.sent_of_head += chunk
        if self.sent_of_head < len(head):
            return fragment(head, offset, chunk), 0
        self.sent_of_head = 0
        self.waiting = self.waiting[1:]
        return fragment(head, offset, chunk), 1


def assert_agree(backlog: Backlog, model: ModelBacklog) -> None:
    assert len(backlog) == len(model.waiting)
    assert backlog.waiting_bytes == sum(LENGTH_BYTES + len(message) for message in model.waiting)


@given(body_bytes=SIZES, operations=OPERATIONS)
def test_the_backlog_agrees_with_the_model(body_bytes: int, operations: list[list[bytes] | str]) -> None:
    backlog, model = Backlog(body_bytes), ModelBacklog(body_bytes)
    for operation in operations:
        if isinstance(operation, list):
            backlog.extend(operation)
            model.waiting += operation
        elif operation == "clear":
            backlog.clear()
            model.waiting, model.sent_of_head = [], 0
        elif model.waiting:
            body, completed = model.take()
            assert backlog.take() == (body, completed)
            assert len(body) <= body_bytes
            assert flaw(body) is None
        assert_agree(backlog, model)


def test_nothing_is_lost_or_reordered_when_the_front_is_cut_off() -> None:
    """Far more than the 4096 taken entries that are kept, with new messages coming in all the while."""
    rng = Random(4096)
    backlog, model = Backlog(256), ModelBacklog(256)
    cuts: set[int] = set()
    for turn in range(400):
        messages = [b"%d.%d " % (turn, number) + bytes(rng.randrange(20)) for number in range(rng.randrange(100))]
        messages += [rng.randbytes(1_000)] * (turn % 10 == 0)
        backlog.extend(messages)
        model.waiting += messages
        while len(model.waiting) > 30:
            assert backlog.take() == model.take()
            cuts.add(backlog._cut)
        assert_agree(backlog, model)
    while model.waiting:
        assert backlog.take() == model.take()
        assert_agree(backlog, model)
    assert len(cuts) > 2, "the front was never cut off, so this has shown nothing"
    assert not backlog


def test_what_was_taken_is_let_go_of_although_the_line_never_empties() -> None:
    backlog = Backlog(64)
    for _ in range(200):
        backlog.extend([b"message"] * 100)
        while len(backlog) > 50:
            backlog.take()
    assert len(backlog._messages) < 10_000


def test_a_message_that_finds_space_leaves_in_a_body_of_its_own() -> None:
    backlog = Backlog(1_000)
    backlog.extend([b"alone"])
    assert backlog.take() == (pack([b"alone"]), 1)
    assert not backlog


def test_the_largest_message_that_fits_is_packed_and_one_byte_more_is_cut() -> None:
    backlog = Backlog(100)
    space = 100 - HEADER.size - LENGTH_BYTES
    backlog.extend([b"x" * space])
    body, completed = backlog.take()
    assert (len(body), completed) == (100, 1)
    backlog.extend([b"x" * (space + 1)])
    assert [backlog.take()[1] for _ in range(2)] == [0, 1]


def test_messages_behind_a_large_one_wait_until_all_of_it_is_out() -> None:
    backlog = Backlog(64)
    large = bytes(150)
    backlog.extend([b"before", large, b"after"])
    chunk = 64 - FRAGMENT_HEADER.size
    bodies = [backlog.take() for _ in range(5)]
    assert bodies[0] == (pack([b"before"]), 1)
    assert bodies[1:4] == [(fragment(large, offset, chunk), int(offset == 2 * chunk)) for offset in (0, chunk, 104)]
    assert bodies[4] == (pack([b"after"]), 1)


def test_clearing_in_the_middle_of_a_large_message_starts_the_next_one_at_its_beginning() -> None:
    backlog = Backlog(64)
    backlog.extend([bytes(500)])
    backlog.take()
    backlog.clear()
    assert (len(backlog), backlog.waiting_bytes) == (0, 0)
    second = bytes(range(200))
    backlog.extend([second])
    assert backlog.take() == (fragment(second, 0, 64 - FRAGMENT_HEADER.size), 0)


@settings(max_examples=20)
@given(count=st.integers(0, 50))
def test_messages_without_bytes_take_room_for_their_length_only(count: int) -> None:
    backlog = Backlog(64)
    backlog.extend([b""] * count)
    per_body = (64 - HEADER.size) // LENGTH_BYTES
    completed = []
    while backlog:
        completed.append(backlog.take()[1])
    assert completed == [per_body] * (count // per_body) + [count % per_body] * (count % per_body > 0)


def test_one_message_of_64_mib_is_cut_into_bodies_that_fit() -> None:
    message = Random(64).randbytes(MAX_MESSAGE_BYTES)
    backlog = Backlog(60_000)
    backlog.extend([message, b"next"])
    chunks: list[bytes] = []
    completed = 0
    while not completed:
        body, completed = backlog.take()
        assert len(body) <= 60_000
        assert flaw(body) is None
        chunks.append(body[FRAGMENT_HEADER.size :])
    assert b"".join(chunks) == message
    assert backlog.take() == (pack([b"next"]), 1)


def test_without_packing_every_message_has_a_body_of_its_own() -> None:
    backlog = Backlog(1000, packs=False)
    backlog.extend([b"a", b"b"])
    backlog.extend([b"c"])
    bodies = [backlog.take()[0] for _ in range(3)]
    assert [list(split(body)) for body in bodies] == [[b"a"], [b"b"], [b"c"]]
    assert not backlog.runs


def test_a_body_holds_messages_of_one_port() -> None:
    backlog = Backlog(1_000)
    backlog.extend([b"a", b"b"])
    backlog.extend([b"c"], port=2)
    backlog.extend([b"d"], port=2)
    backlog.extend([bytes(1_500)], port=3)
    backlog.extend([b"e"])
    chunk = 1_000 - FRAGMENT_HEADER.size
    bodies = [backlog.take()[0] for _ in range(5)]
    large = [fragment(bytes(1_500), offset, chunk, 3) for offset in (0, chunk)]
    assert bodies == [pack([b"a", b"b"]), pack([b"c", b"d"], 2), *large, pack([b"e"])]


def test_a_tagged_batch_has_a_body_to_itself() -> None:
    backlog = Backlog(1_000)
    backlog.extend([b"a"])
    backlog.extend([b"b"], tag=Tag(1, 1))
    backlog.extend([b"c"], tag=Tag(1, 2))
    backlog.extend([b"d"])
    taken = []
    while backlog:
        taken.append((backlog.next_tag, backlog.take()[0]))
    bodies = [pack([letter]) for letter in (b"a", b"b", b"c", b"d")]
    assert taken == list(zip([None, Tag(1, 1), Tag(1, 2), None], bodies, strict=True))


def test_what_members_say_among_themselves_is_not_counted() -> None:
    backlog = Backlog(200)
    backlog.extend([b"one", b"two"])
    backlog.extend([b"marker"], Port.SNAPSHOT)
    backlog.extend([b"three"], Port.KEYED)
    assert backlog.uncounted == 1
    assert list(backlog.messages()) == [
        (Port.APP, b"one"),
        (Port.APP, b"two"),
        (Port.SNAPSHOT, b"marker"),
        (Port.KEYED, b"three"),
    ]
    assert [backlog.take()[1] for _ in range(3)] == [2, 0, 1]
    assert backlog.uncounted == 0
    assert not backlog


def test_a_message_that_is_out_in_part_still_waits() -> None:
    backlog = Backlog(200)
    backlog.extend([b"x" * 3 * 200], Port.SNAPSHOT)
    assert backlog.take()[1] == 0
    assert backlog.uncounted == 1
    assert len(list(backlog.messages())) == 1
    backlog.clear()
    assert backlog.uncounted == 0
