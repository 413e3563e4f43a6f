"""The seed's `ContinuousMsgSender`: a message is sent again and again, until every recipient has acknowledged it.

    added                  -> sent to all its recipients at once
    after 200 ms           -> again, to those that are left; then after 400, 800, 1600, 3200 ms; then from 200 ms
    a recipient is removed -> it gets no more; without recipients the message is gone

It neither knows what it sends nor what counts as an acknowledgement. Whoever adds bounds how many are under way.

Invariant: every message that is kept has a recipient.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND

F = TypeVar("F", bound=Frame)

FIRST_INTERVAL_NS = 200 * MILLISECOND
MAX_INTERVAL_NS = 4000 * MILLISECOND  # the next one would be longer: the intervals begin anew


@dataclass(slots=True)
class _Sending(Generic[F]):
    frame: F
    recipients: dict[Address, None]  # a set that keeps its order
    interval_ns: int
    due: int


class ContinuousSender(Generic[F]):
    def __init__(self) -> None:
        self._sendings: dict[int, _Sending[F]] = {}

    def __len__(self) -> int:
        return len(self._sendings)

    def __contains__(self, message_id: int) -> bool:
        return message_id in self._sendings

    def add(self, message_id: int, frame: F, recipients: Iterable[Address], now: int) -> tuple[F, tuple[Address, ...]]:
        """What has to be sent now, and to whom."""
        sending = _Sending(frame, dict.fromkeys(recipients), FIRST_INTERVAL_NS, now + FIRST_INTERVAL_NS)
        self._sendings[message_id] = sending
        return frame, tuple(sending.recipients)

    def remove(self, message_id: int, recipient: Address) -> bool:
        """It has acknowledged. True when it was the last one: the message is gone."""
        sending = self._sendings.get(message_id)
        if sending is None or recipient not in sending.recipients:
            return False
        del sending.recipients[recipient]
        if not sending.recipients:
            del self._sendings[message_id]
        return not sending.recipients

    def tick(self, now: int) -> list[tuple[F, tuple[Address, ...]]]:
        """What is due."""
        again = []
        for sending in self._sendings.values():
            if now >= sending.due:
                sending.interval_ns = _next_interval(sending.interval_ns)
                sending.due = now + sending.interval_ns
                again.append((sending.frame, tuple(sending.recipients)))
        return again

    def recipients(self) -> dict[int, tuple[Address, ...]]:
        """Of each message that is still sent, who has not acknowledged it."""
        return {message_id: tuple(sending.recipients) for message_id, sending in self._sendings.items()}

    def next_deadline(self) -> int | None:
        return min((sending.due for sending in self._sendings.values()), default=None)

    def _check(self) -> None:
        assert all(sending.recipients for sending in self._sendings.values())


def _next_interval(interval_ns: int) -> int:
    return 2 * interval_ns if 2 * interval_ns <= MAX_INTERVAL_NS else FIRST_INTERVAL_NS
