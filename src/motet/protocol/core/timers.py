"""Deadlines: the earlier of two, and a small set of named ones.

For a handful of timers, `min` over a dictionary is faster than a heap from which cancelled entries must be removed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def earlier(one: int | None, other: int | None) -> int | None:
    """The earlier of two deadlines, either of which may be None. Drivers call this after every input."""
    if one is None or (other is not None and other < one):
        return other
    return one


class Timers(Generic[K]):
    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}

    def arm(self, key: K, deadline: int) -> None:
        # Removing the key first moves it to the end, so that timers due at the same time fire in the order of arming.
        self._deadlines.pop(key, None)
        self._deadlines[key] = deadline

    def arm_if_idle(self, key: K, deadline: int) -> None:
        self._deadlines.setdefault(key, deadline)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def is_armed(self, key: K) -> bool:
        return key in self._deadlines

    def take_due(self, now: int) -> list[K]:
        """The keys that are due, earliest first, each disarmed. Ties keep the order in which they were armed."""
        due = (
            sorted(
                (deadline, index, key)
                for index, (key, deadline) in enumerate(self._deadlines.items())
                if deadline <= now
            )
            if self._deadlines
            else []
        )
        for _, _, key in due:
            del self._deadlines[key]
        return [key for _, _, key in due]

    def next_deadline(self) -> int | None:
        return min(self._deadlines.values()) if self._deadlines else None
