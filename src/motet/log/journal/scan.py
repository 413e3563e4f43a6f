"""Scans a segment's file record by record, up to the first one that is incomplete or damaged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from motet.log.journal.records import (
    ALIGNMENT,
    FILE_HEADER,
    FRAME_HEAD_BYTES,
    HEAD_BYTES,
    INCOMPLETE,
    MAGIC,
    READABLE,
    SHARED_AT,
    STATE,
    STATE_1,
    Head,
    RecordKind,
    SegmentState,
    digest_of,
    parse_head,
)
from motet.protocol.wire.fields import MalformedError, Reader

WINDOW_BYTES = 256 << 10  # read at a time, so that it is still in the cache when it is checked and copied
HEADS_WINDOW_BYTES = 16 << 10  # the same when bodies are passed over
DAMAGED_BODY = "the body of a record is not what its digest says"


class Readable(Protocol):
    def read(self, offset: int, count: int) -> bytes:
        """Fewer bytes than asked for only at the end."""

    def size(self) -> int: ...


class ScannedRecord(NamedTuple):
    offset: int
    head: Head
    shared: bytes  # the part of the head that is the same at all members
    body: memoryview  # of a frame, if only heads are looked at: what happened to be read of it
    raw: memoryview  # all of it, with the same exception


class Scan:
    """Iterate over the records from `offset`. Afterwards `end` is the end of the last valid one, and `flaw` says why
    the scan stopped there; None means the end of the file.

    With `heads_only` the bodies of frames are skipped: they are present, but their digests are not verified.
    """

    def __init__(self, file: Readable, offset: int, *, heads_only: bool = False, window: int = 0) -> None:
        self.end = offset
        self.flaw: str | None = None
        self._file = file
        self._size = file.size()
        self._heads_only = heads_only
        self._window = window or (HEADS_WINDOW_BYTES if heads_only else WINDOW_BYTES)
        self._wanted = 0  # bytes of a record that did not fit into the window

    def __iter__(self) -> Iterator[ScannedRecord]:
        while self.end < self._size and self.flaw is None:
            start = self.end
            wanted = min(max(self._window, self._wanted), self._size - start)
            data = self._file.read(start, wanted)
            if len(data) < wanted:
                self._size = start + len(data)  # it was cut meanwhile
            self._wanted = 0
            while (found := self._next(data, start)) is not None:
                yield found

    def _next(self, data: bytes, start: int) -> ScannedRecord | None:
        """The record at `end`, if it is complete and in `data`."""
        at = self.end - start
        if at >= len(data):
            return self._lacks(start + len(data), HEAD_BYTES)
        head = parse_head(data, at)
        if isinstance(head, str):
            return self._lacks(start + len(data), FRAME_HEAD_BYTES) if head == INCOMPLETE else self._stop(head)
        size = head.size
        if at + size > len(data) and not (self._skips(head) and self.end + size <= self._size):
            return self._lacks(start + len(data), size)
        view, body_at = memoryview(data), at + head.head_bytes
        body = view[body_at : body_at + head.body_bytes]
        if not self._skips(head):
            if digest_of(body) != head.digest:
                return self._stop(DAMAGED_BODY)
            if data.count(0, body_at + head.body_bytes, at + size) != at + size - body_at - head.body_bytes:
                return self._stop("bytes behind a record that should be zero")
        found = ScannedRecord(self.end, head, data[at + SHARED_AT : body_at], body, view[at : at + size])
        self.end += size
        return found

    def _skips(self, head: Head) -> bool:
        return self._heads_only and head.kind == RecordKind.FRAME

    def _lacks(self, reached: int, wanted: int) -> ScannedRecord | None:
        """The window ends here; if the file does, too, the record is incomplete."""
        self._wanted = wanted
        if reached >= self._size > self.end:
            self.flaw = INCOMPLETE
        return None

    def _stop(self, flaw: str) -> ScannedRecord | None:
        self.flaw = flaw
        return None


@dataclass(frozen=True, slots=True)
class Opening:
    """The first record of a segment."""

    head: Head
    state: SegmentState
    end: int


FIRST_RECORD_AT = FILE_HEADER.size


def read_opening(file: Readable) -> Opening | str:
    """The first record of a segment, or what is wrong with it."""
    header = file.read(0, FILE_HEADER.size)
    if len(header) < FILE_HEADER.size:
        return INCOMPLETE
    magic, version, zero = FILE_HEADER.unpack(header)
    if magic != MAGIC or zero:
        return "the file does not begin like a segment"
    if version not in READABLE:
        return f"a segment of version {version}, and this program reads up to {READABLE[-1]}: a newer one wrote it"
    scan = Scan(file, FIRST_RECORD_AT, window=64 << 10)
    found = next(iter(scan), None)
    if found is None:
        return scan.flaw or INCOMPLETE
    if found.head.kind != RecordKind.STATE:
        return "the first record does not say what came before"
    try:
        state = (STATE_1 if version == 1 else STATE).read(Reader(bytes(found.body)))
    except MalformedError as error:
        return f"the first record cannot be read: {error}"
    return Opening(found.head, state, found.offset + found.head.size)


_FRAME_SIZE, _OTHER_SIZE = (re.escape(bytes([size])) for size in (FRAME_HEAD_BYTES, HEAD_BYTES))
_LOOKS_LIKE_HEAD = re.compile(b"(?:\x01\x00" + _FRAME_SIZE + b"|[\x02-\x05]\x00" + _OTHER_SIZE + b")\x00")


def intact_heads(data: bytes, start: int) -> Iterator[Head]:
    """All intact record heads in `data`, which begins at `start` of a file, whatever is between them."""
    for match in _LOOKS_LIKE_HEAD.finditer(data):
        at = match.start() - 4
        if at >= 0 and (start + at) % ALIGNMENT == 0:
            head = parse_head(data, at)
            if isinstance(head, Head):
                yield head
