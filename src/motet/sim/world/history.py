"""The record of a run as an outside observer sees it. Checkers read this record only, never the state of a member.

Every payload is unique, so a delivered message identifies its index in its sender's stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View, ViewId
from motet.protocol.wire.ordered import Tag
from motet.protocol.wire.snapshot import Report, SnapshotId


@dataclass(frozen=True, slots=True)
class MessageStream:
    """The messages of one sender on one channel, to one peer or (None) to the group."""

    channel: Channel
    sender: Address
    to: Address | None

    def __str__(self) -> str:
        return f"{self.sender} -> {self.to or 'group'}"


@dataclass(frozen=True, slots=True)
class DeliveredBatch:
    at: int
    receiver: Address
    channel: Channel
    sender: Address
    messages: tuple[bytes, ...]
    position: int | None = None  # in the log
    tag: tuple[int, int] | None = None  # of an append


@dataclass(frozen=True, slots=True)
class StableAt:
    """The process was notified that the log is stable up to `position`."""

    at: int
    member: Address
    position: int


@dataclass(frozen=True, slots=True)
class PersistedAt:
    """The log of the process is on its own disk up to `position`."""

    at: int
    member: Address
    position: int


@dataclass(frozen=True, slots=True)
class RolledBackAt:
    """The process was notified that its deliveries at these positions are rolled back."""

    at: int
    member: Address
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ForgotSender:
    """The receiver dropped its receive window for the sender; if it does not remember the window, messages may
    repeat.
    """

    at: int
    receiver: Address
    sender: Address


@dataclass(frozen=True, slots=True)
class RestartedWithState:
    """A process restarted with its durable state: `member` continues the log of `before` after `position`."""

    at: int
    member: Address
    before: Address
    position: int = 0
    last: View | None = None  # the last primary view in its record; a leaver may be the only process that learned of it


@dataclass(frozen=True, slots=True)
class EnteredView:
    """`member` installed `view`. The subviews are the views that a merge united."""

    at: int
    member: Address
    view: View
    subviews: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class StartedSnapshot:
    at: int
    member: Address
    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class RecordedState:
    """The application recorded its state for a snapshot at this point of its deliveries; `sent` counts its sends so
    far.
    """

    at: int
    member: Address
    snapshot: SnapshotId
    sent: Mapping[MessageStream, int]


@dataclass(frozen=True, slots=True)
class EndedSnapshot:
    """The initiator of a snapshot received the result, or the reason for the failure (`reports` is None)."""

    at: int
    member: Address
    snapshot: SnapshotId
    reports: Mapping[Address, Report] | None
    reason: str = ""


class AccusationKind(Enum):
    """Why one process treats another as failed. The values complete the sentence "a ... b"."""

    SUSPECTED = "suspected"
    FLUSH_TIMEOUT = "timed out in a flush on"
    MERGE_UNANSWERED = "led a merge and got no answer from"


@dataclass(frozen=True, slots=True)
class Accusation:
    at: int
    by: Address
    whom: Address
    what: AccusationKind


@dataclass(frozen=True, slots=True)
class BeganChange:
    """A coordinator sent PREPARE to the participants, itself included, in order to end the view."""

    at: int
    member: Address
    view: ViewId
    asked: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class BeganMerge:
    """A merge leader sent its first MERGE_REQUEST to the coordinator of another view."""

    at: int
    member: Address


@dataclass(slots=True)
class Outage:
    """A time in which a link was cut, or in which a process did not run."""

    begin: int
    end: int | None = None


Event = (
    DeliveredBatch
    | ForgotSender
    | EnteredView
    | StableAt
    | RolledBackAt
    | PersistedAt
    | StartedSnapshot
    | RecordedState
    | EndedSnapshot
    | RestartedWithState
    | Accusation
    | BeganChange
    | BeganMerge
)


@dataclass(slots=True)
class History:
    accepted: dict[MessageStream, list[bytes]] = field(default_factory=dict)
    failed: dict[MessageStream, list[tuple[int, int]]] = field(default_factory=dict)  # index ranges, both included
    events: list[Event] = field(default_factory=list)
    counted_in: dict[tuple[Address, Address], int] = field(default_factory=dict)
    # (sender, receiver) -> index of the first message accepted after the sender counted the receiver in
    counted_out: set[tuple[Address, Address]] = field(default_factory=set)
    dead: set[Address] = field(default_factory=set)
    # Their events carry the time at which the application handled them.
    lagging: set[Address] = field(default_factory=set)
    leavers: set[Address] = field(default_factory=set)  # processes that asked to leave, including those that have left
    # Processes that installed a view without the state.
    lacking: set[tuple[Address, ViewId]] = field(default_factory=set)
    supplied: dict[ViewId, set[bytes]] = field(default_factory=dict)  # states provided for a transfer in a view
    received: dict[tuple[Address, ViewId], bytes] = field(default_factory=dict)  # states received in a transfer
    appends: dict[Tag, tuple[bytes, ...]] = field(default_factory=dict)  # the messages of each append
    acknowledged: set[Tag] = field(default_factory=set)  # appends that were stable at some process
    # Processes notified that the log already contains the append.
    repeated: set[tuple[Address, Tag]] = field(default_factory=set)
    outages: dict[tuple[str, str] | Address, list[Outage]] = field(default_factory=dict)  # by link, or by process
    remembers: bool = True  # whether receivers remember windows that they dropped

    def accept(self, stream: MessageStream, messages: Sequence[bytes]) -> None:
        self.accepted.setdefault(stream, []).extend(messages)

    def fail(self, stream: MessageStream, first: int, last: int) -> None:
        self.failed.setdefault(stream, []).append((first, last))

    def count_in(self, sender: Address, receiver: Address) -> None:
        stream = MessageStream(Channel.MULTICAST, sender, None)
        self.counted_in.setdefault((sender, receiver), len(self.accepted.get(stream, ())))
        self.counted_out.discard((sender, receiver))

    def count_out(self, sender: Address, receiver: Address) -> None:
        self.counted_out.add((sender, receiver))

    def fingerprint(self) -> str:
        """A digest of all events in order: equal for two runs if and only if their histories are equal."""
        digest = sha256()
        for event in self.events:
            digest.update(repr(event).encode())
        return digest.hexdigest()[:16]
