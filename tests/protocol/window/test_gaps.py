"""When a receiver asks for what it misses. Time is virtual here: numbers handed in, numbers compared."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.core.roundtrip import RoundTrip
from motet.protocol.core.units import MILLISECOND
from motet.protocol.window.gaps import GapWatch
from motet.protocol.window.ranges import Ranges
from motet.protocol.window.ring import RingWindow

FLOOR = 2 * MILLISECOND
CEILING = 500 * MILLISECOND


class Watched:
    """A receive window and its watch, driven as a receiver drives them."""

    def __init__(self, capacity: int = 256, most: int = 128) -> None:
        self.window: RingWindow[bytes] = RingWindow(capacity)
        self.round_trip = RoundTrip(10 * MILLISECOND, FLOOR, CEILING)
        self.watch = GapWatch(self.window, self.round_trip, most)

    @property
    def timeout(self) -> int:
        return self.round_trip.timeout_ns

    def arrive(self, now: int, *seqnos: int) -> None:
        """A batch comes in and is handed up as far as it goes."""
        for seqno in seqnos:
            self.window.offer(seqno, b"body")
        self.window.take()
        self.window.purge(self.window.delivered)
        self.watch.settle(now)

    def look_when_due(self) -> tuple[int, Ranges]:
        """Go to the next look; when it was, and what it asked for."""
        assert self.watch.due is not None, "no look is due"
        now = self.watch.due
        return now, self.watch.poll(now)


def test_without_a_gap_there_is_no_look() -> None:
    watched = Watched()
    watched.arrive(0, 1, 2, 3)
    assert watched.watch.due is None
    assert watched.watch.poll(10 * CEILING) == ()


@given(order=st.permutations(range(1, 9)))
def test_mere_reordering_asks_for_nothing(order: list[int]) -> None:
    watched = Watched()
    for now, seqno in enumerate(order):
        watched.arrive(now, seqno)
        assert watched.watch.poll(now) == ()
    assert watched.watch.due is None
    assert watched.watch.poll(10 * CEILING) == ()


def test_a_gap_is_asked_for_when_it_is_still_there_at_the_next_look() -> None:
    watched = Watched()
    watched.arrive(0, 2, 5)
    assert watched.watch.due == watched.timeout
    assert watched.watch.poll(watched.timeout - 1) == ()
    assert watched.watch.poll(watched.timeout) == ((1, 1), (3, 4))


def test_a_gap_that_appeared_since_the_last_look_waits_for_the_next_one() -> None:
    watched = Watched()
    watched.arrive(0, 2)
    watched.arrive(watched.timeout - 1, 5)
    assert watched.look_when_due()[1] == ((1, 1),)
    assert watched.look_when_due()[1] == ((1, 1), (3, 4))


def test_a_gap_that_closes_before_the_look_is_not_asked_for() -> None:
    watched = Watched()
    watched.arrive(0, 2, 4)
    watched.arrive(1, 1)
    assert watched.look_when_due()[1] == ((3, 3),)


def test_a_claimed_seqno_that_never_came_is_asked_for() -> None:
    watched = Watched()
    watched.arrive(0, 1)
    watched.watch.claim(3)
    watched.watch.settle(0)
    assert watched.look_when_due()[1] == ((2, 3),)


def test_looks_back_off_by_doubling_up_to_the_ceiling() -> None:
    watched = Watched()
    timeout = watched.timeout
    watched.arrive(0, 2)
    times = [watched.look_when_due()[0] for _ in range(17)]
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == [min(timeout << attempt // 2, CEILING) for attempt in range(16)]
    assert waits[-1] == CEILING


def test_every_look_of_a_standing_gap_asks_again() -> None:
    watched = Watched()
    watched.arrive(0, 2)
    assert [watched.look_when_due()[1] for _ in range(6)] == [((1, 1),)] * 6


def test_a_measured_round_trip_speeds_up_the_next_repair_down_to_the_floor() -> None:
    watched = Watched()
    now, waits = 0, []
    for seqno in range(1, 200, 2):  # each odd one is lost once and repaired a tenth of a millisecond after it was asked
        watched.arrive(now, seqno + 1)
        due = watched.watch.due
        assert due is not None
        waits.append(due - now)
        now = due
        assert watched.watch.poll(now) == ((seqno, seqno),)
        now += MILLISECOND // 10
        watched.arrive(now, seqno)
        assert watched.watch.due is None
    assert waits[0] > 10 * FLOOR
    assert waits[-1] == FLOOR


def test_the_answer_to_a_repeated_request_measures_nothing() -> None:
    watched = Watched()
    watched.arrive(0, 2)
    watched.look_when_due()
    now, _ = watched.look_when_due()
    timeout = watched.timeout
    watched.arrive(now + 1, 1)  # could answer either request
    assert watched.timeout == timeout


def test_a_request_that_is_the_first_of_its_look_only_is_no_first_one() -> None:
    """1 and 3 were asked for together; when 1 has come the next look begins with 3, which was asked for before."""
    watched = Watched()
    watched.arrive(0, 2, 4)
    now, asked = watched.look_when_due()
    assert asked == ((1, 1), (3, 3))
    watched.arrive(now + MILLISECOND, 1)
    timeout = watched.timeout
    now, asked = watched.look_when_due()
    assert asked == ((3, 3),)
    watched.arrive(now + 1, 3)
    assert watched.timeout == timeout


def test_what_is_asked_for_the_first_time_measures_also_beside_what_was_asked_for_before() -> None:
    watched = Watched()
    watched.arrive(0, 2)
    watched.look_when_due()
    watched.look_when_due()
    watched.arrive(watched.watch.due or 0, 4)
    timeout = watched.timeout
    now, asked = watched.look_when_due()
    while (3, 3) not in asked:
        now, asked = watched.look_when_due()
    watched.arrive(now + 1, 3)
    assert watched.timeout != timeout, "measured"


def test_the_back_off_is_forgotten_once_everything_is_there() -> None:
    watched = Watched()
    watched.arrive(0, 2)
    for _ in range(5):
        now, _ = watched.look_when_due()
    watched.arrive(now, 1)
    watched.arrive(now, 4)
    times = [watched.look_when_due()[0] for _ in range(2)]
    assert times == [now + watched.timeout, now + 2 * watched.timeout]


def test_one_look_asks_for_no_more_than_the_burst() -> None:
    watched = Watched(most=16)
    watched.arrive(0, 10, 200)
    assert watched.look_when_due()[1] == ((1, 9), (11, 17))


def test_what_is_asked_for_lies_within_the_window() -> None:
    watched = Watched(capacity=8)
    watched.arrive(0, 1, 2)
    watched.watch.claim(1_000)
    watched.watch.settle(0)
    assert watched.look_when_due()[1] == ((3, 10),)


def test_a_look_that_can_ask_for_nothing_is_not_repeated_until_the_window_moves() -> None:
    watched = Watched(capacity=4)
    for seqno in range(1, 5):
        watched.window.offer(seqno, b"held back by a busy application")
    watched.watch.claim(9)
    watched.watch.settle(0)
    now, asked = watched.look_when_due()
    assert (asked, watched.watch.due) == ((), None)
    watched.watch.settle(now)
    assert watched.watch.due is None

    watched.arrive(now)  # the application takes what was held; the window moves on
    assert watched.look_when_due()[1] == ((5, 8),)


def test_a_new_claim_ends_the_rest_after_a_fruitless_look() -> None:
    watched = Watched(capacity=4)
    for seqno in range(1, 5):
        watched.window.offer(seqno, b"held")
    watched.watch.claim(9)
    watched.watch.settle(0)
    now, _ = watched.look_when_due()
    watched.watch.claim(10)
    watched.watch.settle(now)
    assert watched.watch.due is not None


def test_a_repair_that_came_ends_the_back_off_although_a_new_gap_has_opened() -> None:
    watched = Watched()
    watched.arrive(0, 2)
    for _ in range(4):
        now, asked = watched.look_when_due()
        assert asked == ((1, 1),)
    watched.arrive(now + 1, 1, 4)  # all that was asked for is here; 3 is missing for the first time
    assert watched.watch.due == now + 1 + watched.timeout
    assert watched.look_when_due()[1] == ()  # seen for the first time: it may just be late
    looked_at, asked = watched.look_when_due()
    assert (looked_at, asked) == (now + 1 + 2 * watched.timeout, ((3, 3),))


def test_an_abandoned_gap_is_not_looked_for_until_something_changes() -> None:
    watched = Watched()
    watched.arrive(0, 2)
    for _ in range(4):
        now, _ = watched.look_when_due()
    watched.watch.abandon()
    assert (watched.watch.due, watched.watch.poll(10 * CEILING)) == (None, ())
    watched.arrive(now, 5)
    assert watched.look_when_due() == (now + watched.timeout, ((1, 1), (3, 4)))
