"""The round-trip estimator: a smoothed mean and its deviation, as TCP keeps them (RFC 6298).

The timeout derived from it has a floor, so that a fast link is not flooded with requests, and a ceiling, which is the
fixed interval of the protocol documents.
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
        """How long to wait for an answer before the request is repeated."""
        return max(self._floor, min(self._smoothed + 4 * self._deviation, self._ceiling))

    def backed_off(self, attempt: int) -> int:
        """The timeout of attempt number `attempt` (0 is the first): doubled at every second attempt, up to the ceiling.

        Where half of all datagrams are lost, one request in four is answered. Doubling at every attempt would take one
        such repair in ten to the ceiling of half a second.
        """
        return min(self.timeout_ns << min(attempt // 2, 16), self._ceiling)
