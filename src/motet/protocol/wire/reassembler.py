"""Unpacking: turns the bodies of one sender, in order, back into the messages that the application sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from motet.protocol.wire.body import FRAGMENT, FRAGMENT_HEADER, PACKED, split
from motet.protocol.wire.messages import EAGER_BYTES, Messages


class Reassembler:
    """Turns the bodies of one sender, in order, into messages. Buffers at most one unfinished message."""

    def __init__(self) -> None:
        self._next = 0  # The seqno that continues the unfinished message.
        self._chunks: list[bytes] = []
        self._total = 0
        self._collected = 0
        self.incoherent = 0  # Bodies that did not continue the unfinished message.

    @property
    def collected_bytes(self) -> int:
        return self._collected

    def take(self, first: int, bodies: tuple[bytes, ...]) -> Sequence[bytes]:
        """The messages that these bodies complete; `first` is the seqno of the first body, the others follow it.

        If the stream was moved ahead, the unfinished message has no end, and must not be joined with another. If it was
        moved back into the unfinished message, the fragments received before are skipped.
        """
        if self._chunks:
            if first > self._next:
                self._abandon()
            else:
                bodies = bodies[self._next - first :]
                first = self._next
        self._next = first + len(bodies)
        if not self._chunks and len(bodies) == 1 and len(bodies[0]) <= EAGER_BYTES and bodies[0][0] == PACKED:
            return split(bodies[0])
        if not self._chunks and sum(map(len, bodies)) > EAGER_BYTES and all(body[0] == PACKED for body in bodies):
            return Messages(bodies)
        return self.feed(bodies[0]) if len(bodies) == 1 else tuple(chain.from_iterable(map(self.feed, bodies)))

    def feed(self, body: bytes) -> tuple[bytes, ...]:
        """The messages that this body completes.

        A fragment that does not continue the unfinished message is skipped and counted: a receiver that joined in the
        middle of a large message receives only its last fragments.
        """
        if body[0] == PACKED:
            self._abandon()
            return split(body)
        if body[0] != FRAGMENT:
            self.incoherent += 1  # An ordered body, although this channel has no total order.
            self._forget()
            return ()
        _, _, total, offset = FRAGMENT_HEADER.unpack_from(body)
        if offset == 0:
            self._abandon()
            self._total = total
        elif offset != self._collected or total != self._total:
            self.incoherent += 1
            self._forget()
            return ()
        return self._collect(body[FRAGMENT_HEADER.size :])

    def _abandon(self) -> None:
        if self._chunks:
            self.incoherent += 1
            self._forget()

    def _collect(self, chunk: bytes) -> tuple[bytes, ...]:
        self._chunks.append(chunk)
        self._collected += len(chunk)
        if self._collected < self._total:
            return ()
        message = b"".join(self._chunks)
        self._forget()
        return (message,)

    def _forget(self) -> None:
        self._chunks = []
        self._total = self._collected = 0
