"""What a run is to do, what one member of it is to do, and how long that may take.

A message says which one it is: the first eight bytes are the sender's index and the message's number, the rest is a
filler that every member knows. So a member can tell for each position whose message it delivered, and whether its
content is what was sent, without keeping the content.
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

START_S = 60.0  # a process has to be started and to find its group; on a busy machine that takes seconds
BASE_S = 30.0
MESSAGES_PER_S = 2_000  # slower than any run on a machine that works at all
BYTES_PER_S = 1_000_000
FRAMES_PER_S = 500  # the same for frames of one message each
DELAYS = 20  # a message is agreed on in three one-way hops; the slowest of hundreds is unlucky several times


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run."""

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
    """What one member is to do; it travels to its process as JSON."""

    index: int
    members: int
    messages: int  # its own
    size: int
    order: Order
    directory: str  # where it puts what is too long to say
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
    """A message as one integer: who sent it, and which of its messages it is, from 0."""
    return index << NUMBER_BITS | number


def describe_entry(entry: int) -> str:
    return f"message {entry & ((1 << NUMBER_BITS) - 1)} of {name_of(entry >> NUMBER_BITS)}"


def filler_byte(index: int) -> int:
    """What fills the rest of every message of this sender."""
    return index + 1


def payloads_of(index: int, numbers: Sequence[int], size: int) -> list[bytes]:
    filler = bytes([filler_byte(index)]) * (size - IDENTITY_BYTES)
    return [entry_of(index, number).to_bytes(IDENTITY_BYTES, "little") + filler for number in numbers]


def inbound(drop: float, delay: str) -> tuple[str, ...]:
    """Faults where datagrams arrive, and only there: so the shares are those of datagrams between two members."""
    return (*((f"drop={drop}@*:in",) if drop else ()), *((f"delay={delay}@*:in",) if delay else ()))


def deadline_for(messages: int, size: int, drop: float, delay: str, *, one_by_one: bool) -> float:
    """Seconds within which a run must have ended; generous, because it is there to end what would hang.

    (30 + messages / 2000 + bytes / 1 MB + frames of one message / 500) / (1 - drop)^2 + 20 * delay
    """
    frames = messages if one_by_one else 0
    work = BASE_S + messages / MESSAGES_PER_S + messages * size / BYTES_PER_S + frames / FRAMES_PER_S
    return work / (1 - drop) ** 2 + DELAYS * longest_delay_s(delay)


def longest_delay_s(delay: str) -> float:
    """Of TIME, TIME:SHARE or TIME-TIME:SHARE."""
    if not delay:
        return 0.0
    return parse_duration(delay.partition(":")[0].rpartition("-")[2], "delay") / SECOND


def parse_deadline(text: str) -> float:
    seconds = parse_duration(text, "deadline") / SECOND
    if seconds <= 0:
        raise ConfigError(f"--deadline {text} leaves no time at all; allowed is more than 0, for example 2min")
    return seconds
