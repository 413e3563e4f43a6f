"""What happened, as an outsider saw it. Checkers read this and nothing else: they know no machine and no window.

Every payload is unique, so a delivered message names its own place in its sender's stream.
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
    """The process was told that the log is stable up to here."""

    at: int
    member: Address
    position: int


@dataclass(frozen=True, slots=True)
class PersistedAt:
    """The log of the process is on its disk up to here."""

    at: int
    member: Address
    position: int


@dataclass(frozen=True, slots=True)
class RolledBackAt:
    """The process was told to forget what it delivered at these positions."""

    at: int
    member: Address
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ForgotSender:
    """The receiver was told to drop its receive window; with no memory of it, it may see messages again."""

    at: int
    receiver: Address
    sender: Address


@dataclass(frozen=True, slots=True)
class RestartedWithState:
    """A process restarted with its memory: `member` goes on with the log of `before`, after `position`."""

    at: int
    member: Address
    before: Address
    position: int = 0
    last: View | None = None  # the last primary view that it knows of; a leaver may be the only one who was told


@dataclass(frozen=True, slots=True)
class EnteredView:
    """From here on, what `member` does happens in `view`; a merge names the views that it came from."""

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
    """The application gave its state for a snapshot, here among its deliveries; until then it had sent so much."""

    at: int
    member: Address
    snapshot: SnapshotId
    sent: Mapping[MessageStream, int]


@dataclass(frozen=True, slots=True)
class EndedSnapshot:
    """Its initiator has the result, or the reason why there is none."""

    at: int
    member: Address
    snapshot: SnapshotId
    reports: Mapping[Address, Report] | None
    reason: str = ""


class AccusationKind(Enum):
    SUSPECTED = "suspected"  # of having crashed: it was silent
    FLUSH_TIMEOUT = "accused"  # of being late in a view change
    MERGE_UNANSWERED = "got no answer of"  # and led a merge


@dataclass(frozen=True, slots=True)
class Accusation:
    at: int
    by: Address
    whom: Address
    what: AccusationKind


@dataclass(frozen=True, slots=True)
class BeganChange:
    """A coordinator asked these, and itself among them, how they stand, in order to end the view."""

    at: int
    member: Address
    view: ViewId
    asked: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class BeganMerge:
    """The leader asked the first of the coordinators whose views it wants to merge with its own."""

    at: int
    member: Address


@dataclass(slots=True)
class Outage:
    """A link that was cut, or a process that did not run."""

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
    lagging: set[Address] = field(default_factory=set)  # what is written of these is what they noticed, not when it was
    leavers: set[Address] = field(default_factory=set)  # those who asked to leave, whether or not they are gone
    lacking: set[tuple[Address, ViewId]] = field(default_factory=set)  # who entered a view without the state
    supplied: dict[ViewId, set[bytes]] = field(default_factory=dict)  # states that went out at the beginning of a view
    received: dict[tuple[Address, ViewId], bytes] = field(default_factory=dict)  # states that came in
    appends: dict[Tag, tuple[bytes, ...]] = field(default_factory=dict)  # what each consists of
    acknowledged: set[Tag] = field(default_factory=set)  # appends that were stable somewhere
    repeated: set[tuple[Address, Tag]] = field(default_factory=set)  # who was told that the log had it already
    outages: dict[tuple[str, str] | Address, list[Outage]] = field(default_factory=dict)  # of links, and processes
    remembers: bool = True  # whether receivers remember the windows that they drop

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
        """Equal for two runs exactly when the same things happened in the same order."""
        digest = sha256()
        for event in self.events:
            digest.update(repr(event).encode())
        return digest.hexdigest()[:16]
