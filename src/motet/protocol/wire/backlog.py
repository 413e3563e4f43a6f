"""Packing: the queue of messages that wait for window space, packed into bodies when there is space.

Packing adapts by itself: a message that finds space is sent at once in a body of its own; without space, messages
accumulate here until one body carries many of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from motet.errors import MessageTooLargeError
from motet.protocol.wire.body import (
    FRAGMENT_HEADER,
    HEADER,
    LENGTH_BYTES,
    MAX_MESSAGE_BYTES,
    UNCOUNTED,
    Port,
    fragment,
    pack,
)
from motet.protocol.wire.ordered import Tag


@dataclass(slots=True)
class _PortRun:
    """Consecutive messages that may share a body."""

    port: int
    tag: Tag | None
    count: int


class Backlog:
    """Messages that wait for a frame, in order. `take` makes the next body out of as many as fit.

    A body holds messages of one port; those that were given with a tag have a body to themselves. Without `packs` every
    message has.

    Invariant: `_ends[i]` is how many bytes the messages up to i had since the line was last empty; entries before
    `_head` are taken, and `_cut` counts those that were cut off the front of the lists.
    """

    def __init__(self, body_bytes: int, *, packs: bool = True) -> None:
        self._body_bytes = body_bytes
        self._packs = packs
        self._messages: list[bytes] = []
        self._ends: list[int] = []
        self._head = 0
        self._cut = 0
        self._fragment_offset = 0  # how much of the head message went out already
        self.runs: deque[_PortRun] = deque()  # their counts add up to what waits: without any, nothing does
        self._uncounted = 0  # of the messages that wait

    def __len__(self) -> int:
        return len(self._messages) - self._head

    @property
    def waiting_bytes(self) -> int:
        """What the waiting messages need in bodies: themselves and their lengths."""
        return self._ends[-1] - self._taken_bytes() + LENGTH_BYTES * len(self) if self.runs else 0

    @property
    def next_tag(self) -> Tag | None:
        """Of the body that `take` makes next."""
        return self.runs[0].tag if self.runs else None

    @property
    def uncounted(self) -> int:
        """How many messages wait whose port is not counted."""
        return self._uncounted

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """What waits, each message with its port; the first may be out in part."""
        at = self._head
        for run in self.runs:
            yield from ((run.port, message) for message in self._messages[at : at + run.count])
            at += run.count

    def extend(self, messages: Sequence[bytes], port: int = Port.APP, tag: Tag | None = None) -> None:
        """All of them, or none: one that is too large for any body is refused."""
        if not messages:
            return
        start = self._ends[-1] if self._ends else self._cut
        ends = list(accumulate(map(len, messages), initial=start))
        if ends[-1] - start > MAX_MESSAGE_BYTES:
            require_small(messages)
        last = self.runs[-1] if self.runs else None
        if not self._packs:
            self.runs.extend(_PortRun(port, tag, 1) for _ in messages)
        elif last is not None and last.port == port and last.tag is None and tag is None:
            last.count += len(messages)
        else:
            self.runs.append(_PortRun(port, tag, len(messages)))
        self._uncounted += len(messages) if port in UNCOUNTED else 0
        del ends[0]
        self._ends += ends
        self._messages += messages

    def take(self, header: bytes = b"") -> tuple[bytes, int]:
        """The next body behind `header`, and how many counted messages it completes."""
        end, port = self._fitting(), self.runs[0].port
        if end == self._head:
            body, count = self._take_fragment(header)
        else:
            body, count = pack(self._messages[self._head : end], port, header), end - self._head
            self._advance(count)
        return body, 0 if port in UNCOUNTED else count

    def rewind(self) -> None:
        """A message of which only some fragments went out begins again."""
        self._fragment_offset = 0

    def clear(self) -> None:
        self._messages.clear()
        self._ends.clear()
        self.runs.clear()
        self._head = self._cut = self._fragment_offset = self._uncounted = 0

    def _fitting(self) -> int:
        """The index behind the last message that fits into the next body."""
        head, ends, taken = self._head, self._ends, self._taken_bytes()
        space, end_of_run = self._body_bytes - HEADER.size, head + self.runs[0].count
        if ends[end_of_run - 1] - taken + LENGTH_BYTES * (end_of_run - head) <= space:
            return end_of_run

        def space_up_to(index: int) -> int:
            return ends[index] - taken + LENGTH_BYTES * (index + 1 - head)

        guess = min(head + space // space_up_to(head), end_of_run)  # as if all were like the first
        fits = guess > head and space_up_to(guess - 1) <= space
        if fits and (guess == end_of_run or space_up_to(guess) > space):
            return guess
        return bisect_right(range(end_of_run), space, lo=head, key=space_up_to)

    def _take_fragment(self, header: bytes) -> tuple[bytes, int]:
        message = self._messages[self._head]
        chunk_bytes = self._body_bytes - FRAGMENT_HEADER.size
        body = fragment(message, self._fragment_offset, chunk_bytes, self.runs[0].port, header)
        self._fragment_offset += chunk_bytes
        if self._fragment_offset < len(message):
            return body, 0
        self._fragment_offset = 0
        self._advance(1)
        return body, 1

    def _advance(self, count: int) -> None:
        self._head += count
        self.runs[0].count -= count
        self._uncounted -= count if self.runs[0].port in UNCOUNTED else 0
        if not self.runs[0].count:
            self.runs.popleft()
        if self._head == len(self._messages):
            self.clear()
        elif self._head > 4096 and 2 * self._head > len(self._messages):
            self._cut = self._taken_bytes()
            del self._messages[: self._head], self._ends[: self._head]
            self._head = 0

    def _taken_bytes(self) -> int:
        return self._ends[self._head - 1] if self._head else self._cut


def require_small(messages: Sequence[bytes]) -> None:
    largest = max(map(len, messages))
    if largest > MAX_MESSAGE_BYTES:
        raise MessageTooLargeError(f"a message of {largest} bytes; at most {MAX_MESSAGE_BYTES} can be sent, split it")
