"""Requests to a log service: tickets, action bodies and append descriptors, all of them small JSON objects.

    ticket      {"first": 1, "last": 1000}         rows 1 to 1000, both included; omitted: all that is stable
                {"follow_from": 1001}              rows from 1001 on, as the log grows, without end
    options     "batch_rows", "unstable", "wait_s", "heartbeat_s", "compression"
    offsets     {} or {"until": 1000, "wait_s": 5}
    append      {"producer": 7, "sequence": 3}

Everything else raises LogRequestError, which says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from motet.errors import LogRequestError

MOST_REQUEST_BYTES = 4096
MOST_BATCH_ROWS = 200_000
DEFAULT_BATCH_ROWS = 20_000
MOST_WAIT_S = 60.0
MOST_POSITION = (1 << 63) - 1
MOST_TAG = (1 << 64) - 1
COMPRESSIONS = ("lz4", "zstd")

_Request = TypeVar("_Request")


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A range of rows, or with `follow_from` all rows from there on."""

    first: int | None = None
    last: int | None = None
    follow_from: int | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    unstable: bool = False  # also rows that may still be rolled back
    wait_s: float = 0.0  # how long a range may wait for rows that are not stable yet
    heartbeat_s: float = 0.0  # interval of empty batches while there are no rows; 0 disables them
    compression: str | None = None  # compression of the Arrow buffers on the wire

    def __post_init__(self) -> None:
        _within("first", self.first, 1, MOST_POSITION)
        _within("last", self.last, 0, MOST_POSITION)
        _within("follow_from", self.follow_from, 1, MOST_POSITION)
        _within("batch_rows", self.batch_rows, 1, MOST_BATCH_ROWS)
        _seconds("wait_s", self.wait_s)
        _seconds("heartbeat_s", self.heartbeat_s)
        if not isinstance(self.unstable, bool):
            raise LogRequestError(f'"unstable" is {self.unstable!r}; it is true or false')
        if self.compression is not None and self.compression not in COMPRESSIONS:
            raise LogRequestError(f'"compression" is {self.compression!r}; there are {", ".join(COMPRESSIONS)}')
        if self.follow_from is not None and (self.first is not None or self.last is not None):
            raise LogRequestError('a ticket has either "first" and "last" (a range) or "follow_from", not both')

    @property
    def is_follow(self) -> bool:
        return self.follow_from is not None


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """The bounds of the log; with `until` the answer waits until that position is stable, at most `wait_s`."""

    until: int = 0
    wait_s: float = 0.0

    def __post_init__(self) -> None:
        _within("until", self.until, 0, MOST_POSITION)
        _seconds("wait_s", self.wait_s)


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Each record batch of the call is one append batch; the first has `sequence`, and the following ones count up."""

    producer: int
    sequence: int

    def __post_init__(self) -> None:
        _within("producer", self.producer, 1, MOST_TAG)
        _within("sequence", self.sequence, 0, MOST_TAG)


def parse_read(raw: bytes) -> ReadRequest:
    return _parse("ticket", raw, ReadRequest)


def parse_offsets(raw: bytes) -> OffsetsRequest:
    return _parse("body of the action 'offsets'", raw or b"{}", OffsetsRequest)


def parse_append(raw: bytes) -> AppendRequest:
    return _parse("append descriptor", raw, AppendRequest)


def encode(request: ReadRequest | OffsetsRequest | AppendRequest) -> bytes:
    """JSON of the fields that differ from their defaults."""
    values = {field.name: getattr(request, field.name) for field in fields(request)}
    return json.dumps(
        {field.name: values[field.name] for field in fields(request) if values[field.name] != field.default}
    ).encode()


def _parse(what: str, raw: bytes, make: Callable[..., _Request]) -> _Request:
    if len(raw) > MOST_REQUEST_BYTES:
        raise LogRequestError(f"this {what} has {len(raw)} bytes; more than {MOST_REQUEST_BYTES} are not read")
    document = _document(what, raw)
    names = [field.name for field in fields(make)]  # type: ignore[arg-type]
    if unknown := sorted(document.keys() - set(names)):
        raise LogRequestError(f"this {what} has {', '.join(map(repr, unknown))[:200]}; known are {', '.join(names)}")
    try:
        return make(**document)
    except TypeError as error:
        raise LogRequestError(f"this {what} lacks one of {', '.join(names)}: {error}") from error


def _document(what: str, raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise LogRequestError(f"this {what} is not JSON ({str(error)[:100]}); it starts with {raw[:40]!r}") from error
    if not isinstance(document, dict):
        raise LogRequestError(f"this {what} is not a JSON object but {type(document).__name__}")
    return document


def _within(name: str, value: int | None, least: int, most: int) -> None:
    if value is None:
        return
    if type(value) is not int or not least <= value <= most:  # a bool is an int too, but never meant as one
        raise LogRequestError(f'"{name}" is {str(value)[:40]}; it is a whole number from {least} to {most}')


def _seconds(name: str, value: float) -> None:
    if type(value) not in (int, float) or not 0 <= value <= MOST_WAIT_S:
        raise LogRequestError(f'"{name}" is {str(value)[:40]}; it is a number of seconds from 0 to {MOST_WAIT_S:g}')
