"""Virtual time: a heap of scheduled actions. A simulation reads no other clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Scheduler:
    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()  # breaks ties: actions at the same instant run in the order in which they were scheduled

    def at(self, when: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (max(when, self.now), next(self._order), action))

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay_ns, action)

    def run_until(self, when: int) -> None:
        while self._heap and self._heap[0][0] <= when:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = max(self.now, when)
