"""Checks the channels: the properties that every history must have, however bad the network was.

Safety holds at every moment: integrity, no duplication, FIFO without gaps. Liveness holds after healing: every message
that was accepted and not reported as failed has arrived at every process to which it is owed.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.units import format_ns
from motet.sim.world.history import DeliveredBatch, ForgotSender, History, MessageStream


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def violation_of(error: Exception) -> Violation:
    """The violation that an exception inside a simulation is, with the place where it was raised."""
    return Violation("exception", "".join(traceback.format_exception(error)[-2:]).strip())


@dataclass(slots=True)
class _Progress:
    """The progress of one receiver in one stream."""

    start: int | None = None  # the first index that was delivered
    furthest: int = -1  # the highest index that was delivered
    forgotten: int = -1  # the furthest index when the receiver last forgot its window
    repeated: set[int] = field(default_factory=set)  # indices delivered again since then; each may repeat once


@dataclass(slots=True)
class StreamChecker:
    """Replays the history and tracks the progress of every receiver in every stream."""

    history: History
    progress: dict[tuple[Address, MessageStream], _Progress] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    _index: dict[MessageStream, dict[bytes, int]] = field(default_factory=dict)

    def run(self) -> list[Violation]:
        for event in self.history.events:
            if isinstance(event, ForgotSender):
                self._forget(event)
            elif isinstance(event, DeliveredBatch):
                self._deliver(event)
        return self.violations

    def _forget(self, event: ForgotSender) -> None:
        stream = MessageStream(Channel.UNICAST, event.sender, event.receiver)
        if not self.history.remembers and (progress := self.progress.get((event.receiver, stream))):
            progress.forgotten = progress.furthest
            progress.repeated.clear()

    def _deliver(self, event: DeliveredBatch) -> None:
        to = event.receiver if event.channel is Channel.UNICAST else None
        stream = MessageStream(event.channel, event.sender, to)
        progress = self.progress.setdefault((event.receiver, stream), _Progress())
        for message in event.messages:
            index = self._indices(stream).get(message)
            if index is None:
                self._violate("integrity", event, stream, f"{message[:60]!r} was never sent")
                continue
            self._place(progress, index, stream, event)
            progress.furthest = max(progress.furthest, index)

    def _place(self, progress: _Progress, index: int, stream: MessageStream, event: DeliveredBatch) -> None:
        expected = progress.furthest + 1
        if progress.start is None:
            progress.start = index
            if stream.channel is Channel.UNICAST and not self._all_failed(stream, 0, index - 1):
                self._violate("fifo", event, stream, f"message {index} came first")
        elif index > expected and not self._all_failed(stream, expected, index - 1):
            self._violate("fifo", event, stream, f"message {index} came where {expected} was next")
        elif index < expected and (index > progress.forgotten or index in progress.repeated):
            self._violate("no duplication", event, stream, f"message {index} came again, {expected} was next")
        elif index < expected:
            progress.repeated.add(index)

    def _indices(self, stream: MessageStream) -> dict[bytes, int]:
        known = self._index.get(stream)
        messages = self.history.accepted.get(stream, [])
        if known is None or len(known) != len(messages):
            known = self._index[stream] = {message: index for index, message in enumerate(messages)}
        return known

    def _all_failed(self, stream: MessageStream, first: int, last: int) -> bool:
        spans = self.history.failed.get(stream, [])
        return all(any(low <= index <= high for low, high in spans) for index in range(first, last + 1))

    def _violate(self, rule: str, event: DeliveredBatch, stream: MessageStream, what: str) -> None:
        self.violations.append(Violation(rule, f"{format_ns(event.at)}: {event.receiver} got {stream}: {what}"))

    def missing(self) -> Iterator[tuple[Address, MessageStream, int]]:
        """Per live receiver and live sender, the (receiver, stream, index) of the first message that is still owed."""
        for stream, messages in self.history.accepted.items():
            for receiver, start in self._obliged(stream):
                progress = self.progress.get((receiver, stream), _Progress())
                index = start if progress.start is None else progress.furthest + 1
                while index < len(messages) and self._all_failed(stream, index, index):
                    index += 1
                if progress.start is not None and progress.start > start:
                    index = start
                if index < len(messages):
                    yield receiver, stream, index

    def _obliged(self, stream: MessageStream) -> Iterator[tuple[Address, int]]:
        dead = self.history.dead
        if stream.sender in dead:
            return
        if stream.to is not None:
            if stream.to not in dead:
                yield stream.to, self._first_unfailed(stream)
            return
        for (sender, receiver), start in self.history.counted_in.items():
            if sender == stream.sender and receiver not in dead and (sender, receiver) not in self.history.counted_out:
                yield receiver, start

    def _first_unfailed(self, stream: MessageStream) -> int:
        index = 0
        while self._all_failed(stream, index, index) and index < len(self.history.accepted[stream]):
            index += 1
        return index
