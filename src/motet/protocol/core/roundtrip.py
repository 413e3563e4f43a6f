"""How long a request and its answer take: a smoothed mean and its deviation, as every transport since 1988 keeps it.

The patience derived from it is clamped between a floor, so that a quiet link is not hammered, and a ceiling, which is
the fixed interval of the seeds.
"""

from __future__ import annotations


class RoundTrip:
    def __init__(self, initial_ns: int, floor_ns: int, ceiling_ns: int) -> None:
        self._smoothed = initial_ns
        self._deviation = initial_ns // 2
        self._floor = floor_ns
        self._ceiling = ceiling_ns

    def sample(self, measured_ns: int) -> None:
        error = measured_ns - self._smoothed
        self._smoothed += error // 8
        self._deviation += (abs(error) - self._deviation) // 4

    @property
    def smoothed_ns(self) -> int:
        return self._smoothed

    @property
    def timeout_ns(self) -> int:
        """How long to wait for an answer before asking again."""
        return max(self._floor, min(self._smoothed + 4 * self._deviation, self._ceiling))

    def backed_off(self, attempt: int) -> int:
        """The patience before attempt number `attempt` (0 is the first): doubled every second time, up to the ceiling.

        Where half of all datagrams are lost a request and its answer get through once in four times. Doubling at every
        try would take such a repair to the ceiling of half a second once in ten times.
        """
        return min(self.timeout_ns << min(attempt // 2, 16), self._ceiling)
