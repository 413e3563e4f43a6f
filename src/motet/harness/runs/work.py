"""The plan of a run, the work of one member, and their deadline.

A message identifies itself: its first eight bytes are the index of the sender and the number of the message, the rest
is a filler that every member knows. So a member can check sender and content of each position without storing content.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from motet.errors import ConfigError
from motet.protocol.core.units import SECOND, parse_duration

Order = Literal["total", "fifo"]
IDENTITY_BYTES = 8
NUMBER_BITS = 48
LEAST_SIZE = 16

START_S = 60.0  # starting a process and discovering the group takes seconds on a loaded machine
BASE_S = 30.0
MESSAGES_PER_S = 2_000  # a lower bound for any usable machine
BYTES_PER_S = 1_000_000
FRAMES_PER_S = 500  # the same for frames of one message each
DELAYS = 20  # a message is agreed on in three one-way hops; the slowest of hundreds is delayed several times


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of one run."""

    members: int
    senders: int
    messages: int  # of all senders together
    size: int = 100
    order: Order = "total"
    settings: tuple[str, ...] = ()  # NAME=VALUE
    faults: tuple[str, ...] = ()  # at every member
    snapshot_after: int = 0
    kills_sender: bool = False  # between DATA and SEQ of a message of the last sender
    deadline_s: float = BASE_S

    def share_of(self, index: int) -> int:
        """How many messages this member sends."""
        share, rest = divmod(self.messages, self.senders)
        return share + (index < rest) if index < self.senders else 0


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one member, passed to its process as JSON."""

    index: int
    members: int
    messages: int  # number of its own messages
    size: int
    order: Order
    directory: str  # where it writes results that are too large for a message
    seeds: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    journal: str | None = None
    snapshot_after: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Work:
        given = json.loads(text)
        return cls(**given | {name: tuple(given[name]) for name in ("seeds", "settings")})


def name_of(index: int) -> str:
    return f"m{index}"


def entry_of(index: int, number: int) -> int:
    """A message as one integer: the index of its sender, and its number, from 0."""
    return index << NUMBER_BITS | number


def describe_entry(entry: int) -> str:
    return f"message {entry & ((1 << NUMBER_BITS) - 1)} of {name_of(entry >> NUMBER_BITS)}"


def filler_byte(index: int) -> int:
    """The filler byte of the messages of this sender."""
    return index + 1


def payloads_of(index: int, numbers: Sequence[int], size: int) -> list[bytes]:
    filler = bytes([filler_byte(index)]) * (size - IDENTITY_BYTES)
    return [entry_of(index, number).to_bytes(IDENTITY_BYTES, "little") + filler for number in numbers]


def inbound(drop: float, delay: str) -> tuple[str, ...]:
    """Faults on inbound datagrams only, so that each share applies once per datagram between two members."""
    return (*((f"drop={drop}@*:in",) if drop else ()), *((f"delay={delay}@*:in",) if delay else ()))


def deadline_for(messages: int, size: int, drop: float, delay: str, *, one_by_one: bool) -> float:
    """The deadline of a run in seconds. It is generous, because its purpose is to end runs that hang.

    (30 + messages / 2000 + bytes / 1 MB + frames of one message / 500) / (1 - drop)^2 + 20 * delay
    """
    frames = messages if one_by_one else 0
    work = BASE_S + messages / MESSAGES_PER_S + messages * size / BYTES_PER_S + frames / FRAMES_PER_S
    return work / (1 - drop) ** 2 + DELAYS * longest_delay_s(delay)


def longest_delay_s(delay: str) -> float:
    """The longest delay of a rule TIME, TIME:SHARE or TIME-TIME:SHARE."""
    if not delay:
        return 0.0
    return parse_duration(delay.partition(":")[0].rpartition("-")[2], "delay") / SECOND


def parse_deadline(text: str) -> float:
    seconds = parse_duration(text, "deadline") / SECOND
    if seconds <= 0:
        raise ConfigError(f"--deadline {text} leaves no time at all; allowed is more than 0, for example 2min")
    return seconds
