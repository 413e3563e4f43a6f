"""The frames: one frozen class per kind. docs/design/wire.md has the same list with who sends each and why.

`sender` fields are incarnations, as they travel; the member that reads them knows whose they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.effects import Frame

Ranges = tuple[tuple[int, int], ...]  # (first, last), both included, ascending, disjoint


@dataclass(frozen=True, slots=True)
class UnicastData(Frame):
    conn_id: int
    first: bool  # the first frame of its connection: a receiver without a window may open one
    seqno: int
    body: bytes


@dataclass(frozen=True, slots=True)
class UnicastAck(Frame):
    conn_id: int
    seqno: int  # everything up to it was delivered


@dataclass(frozen=True, slots=True)
class UnicastXmitRequest(Frame):
    conn_id: int
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class UnicastPurged(Frame):
    """The answer to a request for what was acked: a receiver that still misses it is out of step."""

    conn_id: int
    low: int  # everything up to it was acked


@dataclass(frozen=True, slots=True)
class Close(Frame):
    conn_id: int


@dataclass(frozen=True, slots=True)
class Sync(Frame):
    conn_id: int  # the one that the receiver saw, or holds, and cannot go on with
    sync_id: int  # names this attempt; the answer repeats it, so that a late answer to an earlier one is recognised


@dataclass(frozen=True, slots=True)
class SyncOk(Frame):
    conn_id: int  # the new one
    sync_id: int
    low: int  # the sender's highest acked seqno


@dataclass(frozen=True, slots=True)
class SyncAck(Frame):
    conn_id: int


@dataclass(frozen=True, slots=True)
class MulticastData(Frame):
    sender: int  # differs from the datagram's source when a survivor hands on what a crashed sender sent
    seqno: int
    stable: int  # every member of the sender's view has delivered up to here
    body: bytes


@dataclass(frozen=True, slots=True)
class MulticastAck(Frame):
    seqno: int


@dataclass(frozen=True, slots=True)
class MulticastXmitRequest(Frame):
    sender: int
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Highest(Frame):
    """The tail notice: "this is the highest I sent, and this much of it is stable"."""

    seqno: int
    stable: int


@dataclass(frozen=True, slots=True)
class Purged(Frame):
    """The answer to a request for what is gone."""

    sender: int
    low: int  # everything up to it is purged


@dataclass(frozen=True, slots=True)
class Heartbeat(Frame):
    """A sign of life of a member that has nothing else to say."""


@dataclass(frozen=True, slots=True)
class AreYouAlive(Frame):
    """A question to one who was silent for too long, before anybody acts on it."""


@dataclass(frozen=True, slots=True)
class IAmAlive(Frame):
    pass
