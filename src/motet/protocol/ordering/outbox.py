"""The outbox: messages to be ordered, from their acceptance until they are delivered here.

    accepted   taken from the application        admitted   sent in a frame
    delivered  delivered here, at its position in the log

Invariants: delivered <= admitted <= accepted; frames in flight are delivered in the order in which they were sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from motet.errors import BacklogFullError, LeftGroupError, MessageTooLargeError, SendFailedError
from motet.protocol.core.effects import Admitted, Channel, Effect, SendFailed
from motet.protocol.ordering.config import OrderingConfig
from motet.protocol.ordering.dissemination import PlainStream
from motet.protocol.wire.backlog import Backlog
from motet.protocol.wire.body import HEADER, LENGTH_BYTES, Port, message_count, port_of
from motet.protocol.wire.ordered import VIEWED_BYTES, Tag
from motet.protocol.wire.reassembler import Reassembler

Header = Callable[[int, Tag | None], bytes]  # Makes the header of a frame from its time and its tag.


class Draft(NamedTuple):
    """A frame to be ordered, without its header."""

    body: bytes
    sent_at: int
    tag: Tag | None


class Outbox:
    def __init__(self, config: OrderingConfig) -> None:
        self.accepted = self.admitted = self.delivered = 0
        self.has_left = False
        self.wall_offset_ns = 0
        self.stream = PlainStream()
        self._config = config
        self._body_bytes = config.body_bytes - config.piggyback_bytes
        self._backlog = Backlog(self._body_bytes, packs=config.packs)
        self._resends: deque[Draft] = deque()  # In flight when a view ended, in no log, to be sent again.
        self._in_flight: deque[Draft] = deque()
        self._unconfirmed: deque[int] = deque()  # Log positions of own frames that others may not have delivered.
        self._partial: list[Draft] = []  # Delivered fragments of a message whose last fragment is not delivered.
        self._announced = 0  # Messages that were reported to the application as admitted.

    def __bool__(self) -> bool:
        return bool(self._resends or self._backlog)

    @property
    def may_leave(self) -> bool:
        """Whether a frame waits and may be sent: no marker precedes it and the in-flight limit is not reached."""
        if not self._backlog.runs and not self._resends:
            return False
        is_within_limit = len(self._in_flight) + len(self._unconfirmed) < self._config.in_flight_limit
        return is_within_limit and not self.stream.is_barred

    @property
    def frames_in_flight(self) -> int:
        return len(self._in_flight)

    # What the application asks for

    def send(self, messages: Sequence[bytes], port: int = Port.APP) -> None:
        """Accept messages. All are accepted, or none."""
        self._require_space()
        self._backlog.extend(messages, port)
        self.accepted += len(messages)

    def send_tagged(self, tag: Tag, messages: Sequence[bytes], port: int = Port.APP) -> None:
        """Accept an idempotent append. It is one frame, so that the log has it completely or not at all."""
        self._require_space()
        needed = sum(map(len, messages)) + LENGTH_BYTES * len(messages)
        space = self.append_bytes
        if not messages or needed > space:
            raise MessageTooLargeError(
                f"an append of {len(messages)} messages that needs {needed} bytes; it has to fit into one frame: "
                f"at least one message, and at most {space} bytes, with {LENGTH_BYTES} for each message; split it"
            )
        self._backlog.extend(messages, port, tag)
        self.accepted += len(messages)

    @property
    def append_bytes(self) -> int:
        """The largest idempotent append: the bytes of its messages, and a length for each."""
        return self._body_bytes - HEADER.size

    def _require_space(self) -> None:
        if self.has_left:
            raise LeftGroupError("this member has left the group; join again to send")
        waiting = self._backlog.waiting_bytes
        if waiting > self._config.backlog_bytes:
            raise BacklogFullError(f"{waiting} bytes already wait to be ordered; wait for Admitted before sending more")

    def leave(self) -> list[Effect]:
        """Fail waiting messages. The flush settles those in flight."""
        self.has_left = True
        self._backlog.clear()
        first, last = self.admitted + 1, self.accepted
        self.accepted = self.admitted
        error = LeftGroupError("the member left the group before this message was sent")
        return [SendFailed(Channel.TOTAL, None, first, last, error)] if first <= last else []

    def admission(self) -> list[Effect]:
        """The messages that have left the backlog since the previous call."""
        if self.admitted == self._announced:
            return []
        self._announced = self.admitted
        return [Admitted(Channel.TOTAL, None, self.admitted)]

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        """Port and payload of each accepted message that was not completely sent in this view."""
        again = Reassembler()
        for draft in (*self._out_in_part(), *self._resends) if self._resends else ():
            yield from ((port_of(draft.body), message) for message in again.feed(draft.body))
        yield from self._backlog.messages()

    def _out_in_part(self) -> list[Draft]:
        """The sent fragments of a message whose next fragment is still waiting."""
        drafts = [*self._partial, *self._in_flight]
        ends = [place for place, draft in enumerate(drafts, 1) if message_count(draft.body)]
        return drafts[ends[-1] if ends else 0 :]

    # Frames for the dissemination strategy

    def next(self, now: int, header: Header) -> tuple[bytes, Draft]:
        """Send the next frame behind its header; it is in flight from now on. Call only if `may_leave`."""
        if self._resends:
            draft = self._resends.popleft()
            sealed = b"".join((header(draft.sent_at, draft.tag), draft.body))
        else:
            sealed, draft = self._new(now + self.wall_offset_ns, header)
        self._in_flight.append(draft)
        return sealed, draft

    def _new(self, sent_at: int, header: Header) -> tuple[bytes, Draft]:
        tag = self._backlog.next_tag
        head = header(sent_at, tag)
        sealed, completed = self._backlog.take(head)
        self.admitted += completed
        body = sealed[len(head) :] if len(sealed) < VIEWED_BYTES else memoryview(sealed)[len(head) :]
        return sealed, Draft(body, sent_at, tag)

    def confirm(self, position: int) -> None:
        """All members have delivered the log up to `position`."""
        while self._unconfirmed and self._unconfirmed[0] <= position:
            self._unconfirmed.popleft()

    def deliver(self, position: int, count: int) -> None:
        """The first frame in flight is delivered here, and the log is at `position` after it.

        `count`: the messages that end in the frame.
        """
        self._unconfirmed.append(position)
        self._partial.append(self._in_flight.popleft())
        if count:
            self.delivered += count
            self._partial.clear()

    # The end of a view

    def put_back(self) -> list[Effect]:
        """Frames in flight are in no log: send them again in the next primary view. No message spans two views."""
        if self.has_left:
            return self.fail()
        drafts = [*self._partial, *self._in_flight]
        if not self._resends:  # A message that was sent in part starts over from the backlog.
            drafts = drafts[: len(drafts) - len(self._out_in_part())]
        self._resends.extendleft(reversed(drafts))
        self._end()
        return []

    def fail(self) -> list[Effect]:
        """Fail the messages in flight: they may or may not be in the log of other members."""
        first, last = self.delivered + 1, self.admitted
        self.delivered = self.admitted
        self._resends.clear()
        self._end()
        error = SendFailedError(
            "this member lost touch with the primary component while the message was being ordered: it may or may not "
            "be in the log; look there before sending it again"
        )
        return [SendFailed(Channel.TOTAL, None, first, last, error)] if first <= last else []

    def _end(self) -> None:
        self._in_flight.clear()
        self._unconfirmed.clear()
        self._partial.clear()
        self._backlog.rewind()

    def _check(self) -> None:
        assert self.delivered <= self.admitted <= self.accepted
