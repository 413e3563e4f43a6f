"""Effects: what a machine asks its driver to do and what it reports to the application, one ordered list per input."""

from __future__ import annotations

from enum import Enum

from motet.protocol.core.identity import Address
from motet.protocol.core.record import record


class Frame:
    """The base of all frames. The package `wire` defines which frames there are and how they are encoded."""

    __slots__ = ()


class Effect:
    """The base of all outputs."""

    __slots__ = ()


class Channel(Enum):
    """Which stream of a sender a message belongs to."""

    UNICAST = "unicast"
    MULTICAST = "multicast"
    TOTAL = "total"  # multicast that all members deliver in one order

    # Each channel is a single object and a key in hot tables; the default hash of an enum is Python code.
    __hash__ = object.__hash__


@record
class Transmit(Effect):
    """Send one frame to one peer."""

    to: Address
    frame: Frame


@record
class Broadcast(Effect):
    """Send one frame to every other member of the view."""

    frame: Frame


@record
class Deliver(Effect):
    """Bodies of consecutive frames of one sender, in order, exactly once."""

    channel: Channel
    sender: Address
    first: int  # Seqno of the first body; the others follow without a gap.
    bodies: tuple[bytes, ...]
    position: int | None = None  # Log position of the first message that ends in these bodies.
    sent_at: tuple[int, ...] = ()  # For ordered bodies, the sender's wall clock when it sent each.
    tag: tuple[int, int] | None = None  # For an idempotent append, its (producer, sequence).


@record
class Admitted(Effect):
    """Messages up to number `through` have moved from the backlog into the window; accepted messages count from 1."""

    channel: Channel
    to: Address | None  # None means the group.
    through: int


@record
class SendFailed(Effect):
    """Accepted messages number `first` to `last` are given up. They may or may not have arrived."""

    channel: Channel
    to: Address | None
    first: int
    last: int
    error: Exception


@record
class BehindPurgePoint(Effect):
    """The sender has purged frames up to `purged` that this member still misses.

    That happens when this member is no longer in the sender's view, so only a new view can help.
    """

    sender: Address
    purged: int


@record
class SyncCompleted(Effect):
    """The SYNC that the application requested is complete: SYNC-ACK was sent and both windows agree."""

    peer: Address
    conn_id: int  # The connection id that both ends use from now on.
    low: int  # The highest seqno that the sender knows to be acked.


@record
class SyncFailed(Effect):
    """The SYNC that the application requested ended before SYNC-ACK was sent; the error says why."""

    peer: Address
    error: Exception
