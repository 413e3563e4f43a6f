"""The sequence that one member delivered in total order, by position, and the comparison of two sequences.

Rolled-back deliveries are removed, so a message that is delivered again counts once. A member that was removed and
merged back has gaps in its positions, unless it fetches what it missed into a journal.

Memory: eight bytes per message.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from motet.harness.runs.work import IDENTITY_BYTES, NUMBER_BITS, filler_byte

Entries = npt.NDArray[np.uint64]


class SequenceSpan(NamedTuple):
    """Entries of consecutive positions."""

    first: int
    entries: Entries

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1


@dataclass(frozen=True, slots=True)
class SequenceDifference:
    position: int
    one: int  # entries
    other: int


class DeliveredSequence:
    def __init__(self) -> None:
        self._entries = array("Q")
        self._starts: list[tuple[int, int]] = []  # position and index of the first entry of each span

    @property
    def next_position(self) -> int:
        """The position of the next delivery, if none is missed."""
        if not self._starts:
            return 1
        position, index = self._starts[-1]
        return position + len(self._entries) - index

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, position: int, entries: bytes) -> None:
        """Messages at `position` and those that follow it. Earlier entries at these positions are removed."""
        if position < self.next_position:
            self.roll_back(position)
        if position != self.next_position or not self._starts:
            self._starts.append((position, len(self._entries)))
        self._entries.frombytes(entries)

    def roll_back(self, first: int) -> list[int]:
        """Remove the entries from position `first` on, and return them."""
        kept = len(self._entries)
        while self._starts and self._starts[-1][0] >= first:
            kept = self._starts.pop()[1]
        if self._starts:
            position, index = self._starts[-1]
            kept = min(kept, index + first - position)
        forgotten = self._entries[kept:].tolist()
        del self._entries[kept:]
        return forgotten

    def spans(self, last: int | None = None) -> Iterator[SequenceSpan]:
        """The entries up to position `last`."""
        if not self._starts:
            return
        entries = np.frombuffer(self._entries, dtype=np.uint64)
        ends = [*(index for _, index in self._starts[1:]), len(entries)]
        for (position, index), end in zip(self._starts, ends, strict=True):
            stop = end if last is None else min(end, index + max(0, last - position + 1))
            if stop > index:
                yield SequenceSpan(position, entries[index:stop].copy())


def read_batch(sender: int, payloads: Sequence[bytes], size: int) -> tuple[bytes, int]:
    """Messages of one sender as entries, and how many of them are not what it sent.

    All of a batch at once: a run delivers a million of them in a second.
    """
    joined = b"".join(payloads)
    if len(joined) != size * len(payloads):
        padded = [payload[:IDENTITY_BYTES].ljust(IDENTITY_BYTES) for payload in payloads]
        return b"".join(padded), sum(len(payload) != size for payload in payloads)
    rows = np.frombuffer(joined, dtype=np.uint8).reshape(len(payloads), size)
    entries = np.ascontiguousarray(rows[:, :IDENTITY_BYTES]).view("<u8").ravel()
    is_wrong = (entries >> np.uint64(NUMBER_BITS) != sender) | (rows[:, IDENTITY_BYTES:] != filler_byte(sender)).any(1)
    return entries.tobytes(), int(np.count_nonzero(is_wrong))


# Files, by which a member passes its sequence to the evaluation


def save(path: Path, spans: Sequence[SequenceSpan]) -> None:
    """A line of JSON with the first position and the length of each span, and then the entries of all of them."""
    with path.open("wb") as file:
        file.write(json.dumps([(span.first, len(span.entries)) for span in spans]).encode() + b"\n")
        for span in spans:
            file.write(span.entries.tobytes())


def load(path: Path) -> list[SequenceSpan]:
    with path.open("rb") as file:
        heads = json.loads(file.readline())
        return [SequenceSpan(first, np.frombuffer(file.read(8 * count), dtype=np.uint64)) for first, count in heads]


def save_numbers(path: Path, numbers: Sequence[int]) -> None:
    """Numbers of a member's own messages; there can be as many as the run has messages."""
    np.array(numbers, dtype=np.uint64).tofile(path)


def load_numbers(path: Path) -> npt.NDArray[np.uint64]:
    """The numbers in the file; empty if the member wrote none."""
    return np.fromfile(path, dtype=np.uint64) if path.exists() else np.zeros(0, np.uint64)


def digest(spans: Sequence[SequenceSpan]) -> str:
    """A digest of positions, senders and contents."""
    made = hashlib.sha256()
    for span in spans:
        made.update(b"%d %d " % (span.first, len(span.entries)))
        made.update(span.entries.tobytes())
    return made.hexdigest()[:16]


def gaps(spans: Sequence[SequenceSpan], last: int) -> list[tuple[int, int]]:
    """Positions up to `last` that are missing, first and last of each gap."""
    missing, expected = [], 1
    for span in spans:
        if span.first > expected:
            missing.append((expected, span.first - 1))
        expected = span.last + 1
    return [*missing, (expected, last)] if expected <= last else missing


def first_difference(one: Sequence[SequenceSpan], other: Sequence[SequenceSpan]) -> SequenceDifference | None:
    """The difference at the smallest position that both have with different entries."""
    found = (_difference(a, b) for a in one for b in other if a.first <= b.last and b.first <= a.last)
    return min((d for d in found if d is not None), key=lambda d: d.position, default=None)


def _difference(one: SequenceSpan, other: SequenceSpan) -> SequenceDifference | None:
    first, last = max(one.first, other.first), min(one.last, other.last)
    ours = one.entries[first - one.first : last - one.first + 1]
    theirs = other.entries[first - other.first : last - other.first + 1]
    unequal = np.flatnonzero(ours != theirs)
    if not len(unequal):
        return None
    at = int(unequal[0])
    return SequenceDifference(first + at, int(ours[at]), int(theirs[at]))


def holds(spans: Sequence[SequenceSpan], entry: int) -> bool:
    return any((span.entries == np.uint64(entry)).any() for span in spans)


def counts_of(spans: Sequence[SequenceSpan], sender: int, messages: int) -> npt.NDArray[np.int64]:
    """How often each message of one sender is there, by its number; all of them are below `messages`."""
    counts = np.zeros(messages, np.int64)
    for span in spans:
        own = span.entries[span.entries >> np.uint64(NUMBER_BITS) == sender]
        numbers = (own & np.uint64((1 << NUMBER_BITS) - 1)).astype(np.int64)
        counts += np.bincount(numbers[numbers < messages], minlength=messages)
    return counts
