"""Virtual time: what was planned happens at its instant, in one order, and time never runs backwards."""

from __future__ import annotations

from collections.abc import Callable

from motet.sim.world.scheduler import Scheduler


class Diary:
    """Writes down what happened, and when the scheduler said it was."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.entries: list[tuple[int, str]] = []

    def write(self, text: str) -> Callable[[], None]:
        return lambda: self.entries.append((self.scheduler.now, text))


def test_things_happen_in_order_of_time_and_see_their_own_instant() -> None:
    diary = Diary()
    for when in (30, 10, 20):
        diary.scheduler.at(when, diary.write(f"planned for {when}"))
    diary.scheduler.run_until(100)
    assert diary.entries == [(10, "planned for 10"), (20, "planned for 20"), (30, "planned for 30")]


def test_things_of_one_instant_happen_in_the_order_in_which_they_were_planned() -> None:
    diary = Diary()
    names = [f"number {number}" for number in range(50)]
    for name in names:
        diary.scheduler.at(7, diary.write(name))
    diary.scheduler.run_until(7)
    assert [text for _, text in diary.entries] == names


def test_the_end_of_a_run_is_included_and_what_lies_beyond_waits() -> None:
    diary = Diary()
    diary.scheduler.at(10, diary.write("on the end"))
    diary.scheduler.at(11, diary.write("beyond"))
    diary.scheduler.run_until(10)
    assert diary.entries == [(10, "on the end")]
    diary.scheduler.run_until(11)
    assert diary.entries[1:] == [(11, "beyond")]


def test_a_run_with_nothing_to_do_still_moves_the_clock() -> None:
    scheduler = Scheduler()
    scheduler.run_until(500)
    assert scheduler.now == 500


def test_the_clock_never_runs_backwards() -> None:
    diary = Diary()
    diary.scheduler.run_until(500)
    diary.scheduler.run_until(100)
    assert diary.scheduler.now == 500


def test_what_is_planned_for_the_past_happens_now() -> None:
    diary = Diary()
    diary.scheduler.run_until(500)
    diary.scheduler.at(3, diary.write("late"))
    diary.scheduler.run_until(500)
    assert diary.entries == [(500, "late")]


def test_a_delay_counts_from_now() -> None:
    diary = Diary()
    diary.scheduler.run_until(500)
    diary.scheduler.after(20, diary.write("after a delay"))
    diary.scheduler.run_until(600)
    assert diary.entries == [(520, "after a delay")]


def test_what_is_planned_during_a_run_belongs_to_it_if_it_is_due() -> None:
    diary = Diary()

    def plan_more() -> None:
        diary.scheduler.after(5, diary.write("due"))
        diary.scheduler.after(0, diary.write("at once"))
        diary.scheduler.after(50, diary.write("not yet"))

    diary.scheduler.at(10, plan_more)
    diary.scheduler.run_until(20)
    assert diary.entries == [(10, "at once"), (15, "due")]
    assert diary.scheduler.now == 20


def test_what_was_planned_later_for_the_same_instant_does_not_push_in() -> None:
    diary = Diary()
    diary.scheduler.at(10, lambda: diary.scheduler.at(10, diary.write("planned at the last moment")))
    diary.scheduler.at(10, diary.write("planned before"))
    diary.scheduler.run_until(10)
    assert [text for _, text in diary.entries] == ["planned before", "planned at the last moment"]
