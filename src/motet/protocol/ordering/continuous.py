"""`ContinuousMsgSender` of the ISIS document: resend a message until every recipient has acknowledged it.

    a message is added     -> it is sent to all its recipients at once
    after 200 ms           -> resent to the remaining recipients; then after 400, 800, 1600, 3200 ms; then 200 ms again
    a recipient is removed -> nothing more is sent to it; without recipients the message is dropped

The class knows neither what it sends nor what counts as an acknowledgement. The caller bounds how many messages are in
flight.

Invariant: every buffered message has a recipient.
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
MAX_INTERVAL_NS = 4000 * MILLISECOND  # When the doubled interval would exceed this, the intervals restart.


@dataclass(slots=True)
class _Sending(Generic[F]):
    frame: F
    recipients: dict[Address, None]  # A dictionary as a set with a deterministic order.
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
        """Start sending a message; returns what to send now, and to whom."""
        sending = _Sending(frame, dict.fromkeys(recipients), FIRST_INTERVAL_NS, now + FIRST_INTERVAL_NS)
        self._sendings[message_id] = sending
        return frame, tuple(sending.recipients)

    def remove(self, message_id: int, recipient: Address) -> bool:
        """The recipient has acknowledged. True when it was the last one, so that the message was dropped."""
        sending = self._sendings.get(message_id)
        if sending is None or recipient not in sending.recipients:
            return False
        del sending.recipients[recipient]
        if not sending.recipients:
            del self._sendings[message_id]
        return not sending.recipients

    def tick(self, now: int) -> list[tuple[F, tuple[Address, ...]]]:
        """The messages that are due to be resent, each with its remaining recipients."""
        again = []
        for sending in self._sendings.values():
            if now >= sending.due:
                sending.interval_ns = _next_interval(sending.interval_ns)
                sending.due = now + sending.interval_ns
                again.append((sending.frame, tuple(sending.recipients)))
        return again

    def recipients(self) -> dict[int, tuple[Address, ...]]:
        """The recipients that have not acknowledged yet, for each message that is being sent."""
        return {message_id: tuple(sending.recipients) for message_id, sending in self._sendings.items()}

    def next_deadline(self) -> int | None:
        return min((sending.due for sending in self._sendings.values()), default=None)

    def _check(self) -> None:
        assert all(sending.recipients for sending in self._sendings.values())


def _next_interval(interval_ns: int) -> int:
    return 2 * interval_ns if 2 * interval_ns <= MAX_INTERVAL_NS else FIRST_INTERVAL_NS
