"""Named deadlines against a dict."""

from hypothesis import given
from hypothesis import strategies as st

from motet.protocol.core.timers import Timers

KEYS = st.sampled_from("abcde")
TIMES = st.integers(0, 9)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["arm", "arm_if_idle", "cancel", "take_due"]), KEYS, TIMES), max_size=50
)


@given(operations=OPERATIONS)
def test_the_timers_agree_with_a_dict(operations: list[tuple[str, str, int]]) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, int] = {}
    for name, key, time in operations:
        if name == "arm":
            timers.arm(key, time)
            model[key] = time
        elif name == "arm_if_idle":
            timers.arm_if_idle(key, time)
            model[key] = model.get(key, time)
        elif name == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            taken = timers.take_due(time)
            assert [model[due] for due in taken] == sorted(at for at in model.values() if at <= time)
            assert len(taken) == len(set(taken))
            model = {armed: at for armed, at in model.items() if at > time}
        assert {armed for armed in "abcde" if timers.is_armed(armed)} == model.keys()
        assert timers.next_deadline() == min(model.values(), default=None)


def test_a_timer_is_due_at_its_deadline_and_not_before() -> None:
    timers: Timers[str] = Timers()
    timers.arm("a", 5)
    assert timers.take_due(4) == []
    assert timers.take_due(5) == ["a"]


def test_a_timer_fires_once() -> None:
    timers: Timers[str] = Timers()
    timers.arm("a", 5)
    assert timers.take_due(9) == ["a"]
    assert timers.take_due(9) == []
    assert timers.next_deadline() is None


def test_the_earliest_comes_first_whatever_was_armed_first() -> None:
    timers: Timers[str] = Timers()
    for key, deadline in (("late", 3), ("early", 1), ("middle", 2)):
        timers.arm(key, deadline)
    assert timers.take_due(3) == ["early", "middle", "late"]


def test_ties_keep_the_order_in_which_they_were_armed() -> None:
    timers: Timers[str] = Timers()
    for key in "cab":
        timers.arm(key, 7)
    assert timers.take_due(7) == ["c", "a", "b"]


def test_a_timer_that_was_armed_again_comes_after_those_armed_before_it() -> None:
    timers: Timers[str] = Timers()
    timers.arm("a", 1)
    timers.arm("b", 7)
    timers.arm("a", 7)
    assert timers.take_due(7) == ["b", "a"]


def test_keys_that_cannot_be_compared_may_be_due_together() -> None:
    timers: Timers[object] = Timers()
    timers.arm("text", 1)
    timers.arm(2, 1)
    assert timers.take_due(1) == ["text", 2]
