"""Virtual time: a heap of things to do. Nothing in a simulation knows another clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Scheduler:
    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()  # two things at the same instant happen in the order in which they were planned

    def at(self, when: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (max(when, self.now), next(self._order), action))

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay_ns, action)

    def run_until(self, when: int) -> None:
        while self._heap and self._heap[0][0] <= when:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = max(self.now, when)
