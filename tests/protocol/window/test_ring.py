"""The ring window against a model that keeps everything in a dict and looks at every seqno, every time."""

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from motet.errors import ConfigError, MisuseError
from motet.protocol.window.ranges import Ranges
from motet.protocol.window.ring import RingWindow

OFFSETS = st.integers(-3, 12)  # around a window of at most 8, so that both sides of it are hit


class RingWindowMachine(RuleBasedStateMachine):
    """Each rule does the same to the window and to the model; the invariants compare all that can be seen."""

    @initialize(capacity=st.integers(1, 8), low=st.sampled_from([0, 1, 7, 1 << 40]))
    def start(self, capacity: int, low: int) -> None:
        self.window: RingWindow[str] = RingWindow(capacity, low)
        self.capacity = capacity
        self.low = self.delivered = self.high = low
        self.held: dict[int, str] = {}
        self.puts = 0

    def item(self) -> str:
        self.puts += 1
        return f"item {self.puts}"  # each its own, so that a slot that was not overwritten or not emptied is seen

    @rule()
    def append(self) -> None:
        item = self.item()
        if self.high - self.low == self.capacity:
            with pytest.raises(MisuseError, match=f"{self.capacity} frames are in the window"):
                self.window.append(item)
            return
        self.high += 1
        self.held[self.high] = item
        assert self.window.append(item) == self.high

    @rule(offset=OFFSETS)
    def offer(self, offset: int) -> None:
        seqno, item = self.low + offset, self.item()
        is_wanted = self.delivered < seqno <= self.low + self.capacity and seqno not in self.held
        if is_wanted:
            self.held[seqno] = item
            self.high = max(self.high, seqno)
        assert self.window.offer(seqno, item) is is_wanted

    @rule()
    def take(self) -> None:
        expected = []
        while self.delivered + 1 in self.held:
            self.delivered += 1
            expected.append(self.held[self.delivered])
        assert self.window.take() == tuple(expected)

    @rule(offset=OFFSETS)
    def purge(self, offset: int) -> None:
        seqno = self.low + offset
        self.low = max(self.low, min(seqno, self.delivered))
        self.drop_up_to(self.low)
        self.window.purge(seqno)

    @rule(offset=OFFSETS)
    def advance(self, offset: int) -> None:
        seqno = self.low + offset
        self.low = max(self.low, seqno)
        self.delivered = max(self.delivered, seqno)
        self.high = max(self.high, seqno)
        self.drop_up_to(self.low)
        self.window.advance(seqno)

    def drop_up_to(self, seqno: int) -> None:
        self.held = {held: item for held, item in self.held.items() if held > seqno}

    @rule(offset=OFFSETS)
    def missing(self, offset: int) -> None:
        up_to = min(self.low + offset, self.low + self.capacity)
        wanted = [seqno for seqno in range(self.delivered + 1, up_to + 1) if seqno not in self.held]
        gaps = self.window.missing(self.low + offset)
        assert [seqno for first, last in gaps for seqno in range(first, last + 1)] == wanted
        assert_apart(gaps)

    @invariant()
    def window_and_model_agree(self) -> None:
        self.window._check()
        assert (self.window.low, self.window.delivered, self.window.high) == (self.low, self.delivered, self.high)
        assert self.window.occupied == len(self.held)
        assert self.window.free == self.capacity - (self.high - self.low)
        assert self.window.is_full is (self.window.free == 0)
        for seqno in range(self.low - 3, self.low + self.capacity + 4):
            assert self.window[seqno] == self.held.get(seqno)
            assert self.window.fits(seqno) is (self.low < seqno <= self.low + self.capacity)


def assert_apart(gaps: Ranges) -> None:
    """Ascending, and never two ranges where one would do."""
    for (_, last), (first, _) in pairwise(gaps):
        assert last + 1 < first


TestRingWindowAgainstModel = RingWindowMachine.TestCase
TestRingWindowAgainstModel.settings = settings(max_examples=100, stateful_step_count=40)


@pytest.mark.parametrize("capacity", [1, 2, 7, 256])
def test_exactly_capacity_frames_fit(capacity: int) -> None:
    window: RingWindow[int] = RingWindow(capacity)
    assert [window.append(number) for number in range(capacity)] == list(range(1, capacity + 1))
    assert window.is_full
    with pytest.raises(MisuseError, match="purge or wait before appending"):
        window.append(capacity)
    assert (window.low, window.high, window.occupied) == (0, capacity, capacity)


def test_one_purged_frame_makes_room_for_one_more() -> None:
    window: RingWindow[str] = RingWindow(2)
    window.append("a")
    window.append("b")
    window.take()
    window.purge(1)
    assert window.append("c") == 3
    assert window.is_full
    assert (window[1], window[2], window[3]) == (None, "b", "c")


def test_the_last_slot_of_a_receive_window_is_usable_and_the_next_one_is_not() -> None:
    window: RingWindow[str] = RingWindow(4, low=10)
    assert window.offer(14, "in")
    assert not window.offer(15, "out")
    assert window.high == 14


def test_what_was_not_delivered_is_never_purged() -> None:
    window: RingWindow[str] = RingWindow(4)
    window.offer(1, "a")
    window.offer(2, "b")
    window.purge(2)
    assert (window.low, window.occupied) == (0, 2)
    assert window.take() == ("a", "b")


def test_a_purged_frame_is_not_taken_in_again() -> None:
    window: RingWindow[str] = RingWindow(4)
    window.offer(1, "a")
    window.take()
    window.purge(1)
    assert not window.offer(1, "again")
    assert window.take() == ()


def test_advance_far_beyond_the_window_leaves_nothing_of_the_past() -> None:
    window: RingWindow[str] = RingWindow(4)
    for seqno in (1, 2, 4):
        window.offer(seqno, f"old {seqno}")
    window.advance(1_000)
    assert (window.low, window.delivered, window.high, window.occupied) == (1_000, 1_000, 1_000, 0)
    for seqno in range(1_001, 1_005):
        assert window.offer(seqno, f"new {seqno}")
    assert window.take() == tuple(f"new {seqno}" for seqno in range(1_001, 1_005))


def test_advance_keeps_what_lies_beyond() -> None:
    window: RingWindow[str] = RingWindow(4)
    window.offer(3, "c")
    window.advance(2)
    assert window.take() == ("c",)


def test_missing_is_clamped_to_the_window() -> None:
    window: RingWindow[str] = RingWindow(4)
    window.offer(2, "b")
    assert window.missing(1 << 62) == ((1, 1), (3, 4))


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_window_that_holds_nothing_is_refused(capacity: int) -> None:
    with pytest.raises(ConfigError, match=f"a window of {capacity} frames"):
        RingWindow[str](capacity)
