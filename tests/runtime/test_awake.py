"""Not going to sleep at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import motet
from motet.runtime.awake import Awake
from tests.runtime.cluster import cluster, run


class Turns:
    """A loop whose turns take 10 ns each."""

    def __init__(self) -> None:
        self.now = 1_000
        self._next: list[Callable[[], None]] = []

    def call_soon(self, action: Callable[[], None]) -> None:
        self._next.append(action)

    def run(self, most: int = 1_000) -> int:
        """Until it sleeps; how many turns that took."""
        for turn in range(most):
            due, self._next = self._next, []
            if not due:
                return turn
            self.now += 10
            for action in due:
                action()
        raise AssertionError("it never sleeps")


def spinning(spin_ns: int) -> tuple[Turns, Awake]:
    turns = Turns()
    return turns, Awake(cast(Any, turns), lambda: turns.now, spin_ns)


def test_it_looks_again_for_so_long_and_sleeps() -> None:
    turns, awake = spinning(100)
    awake.stay()
    assert turns.run() == 10
    assert turns.run() == 0


def test_whatever_comes_meanwhile_prolongs_it_and_nothing_is_planned_twice() -> None:
    turns, awake = spinning(100)
    awake.stay()
    turns.call_soon(awake.stay)  # 10 ns later
    assert turns.run() == 11
    awake.stay()
    assert turns.run() == 10


def test_it_ends_with_the_member() -> None:
    turns, awake = spinning(10**18)
    awake.stay()
    awake.end()
    assert turns.run() == 1


def test_members_that_spin_answer_and_sleep_in_the_end() -> None:
    async def test() -> None:
        config = motet.Config.local(spin="1s")
        async with cluster("a", "b", config=config, thread=False, on_call=lambda sender, payload: payload) as (a, b):
            assert [await b.call(a.address, b"%d" % number) for number in range(20)] == [b"%d" % n for n in range(20)]

    run(test)  # which fails if anything is left running
