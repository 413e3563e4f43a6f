"""What a machine asks its driver to do, and what it tells the application. One ordered list per input."""

from __future__ import annotations

from enum import Enum

from motet.protocol.core.identity import Address
from motet.protocol.core.record import record


class Frame:
    """The base of everything that travels: the wire room says which frames there are and how they become bytes."""

    __slots__ = ()


class Effect:
    """The base of all outputs."""

    __slots__ = ()


class Channel(Enum):
    """Which stream of a sender a message belongs to."""

    UNICAST = "unicast"
    MULTICAST = "multicast"
    TOTAL = "total"  # multicast that all members deliver in one order

    __hash__ = object.__hash__  # there is one object per channel, and it is a key in every table


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
    first: int  # seqno of the first body; the others follow without a gap
    bodies: tuple[bytes, ...]
    position: int | None = None  # in the log, of the first message that ends in these bodies
    sent_at: tuple[int, ...] = ()  # of ordered bodies: the wall clock of the sender, for each
    tag: tuple[int, int] | None = None  # of ordered bodies: the append (producer, sequence) that they are


@record
class Admitted(Effect):
    """Messages up to number `through` (counted from 1 as they were accepted) have left the backlog for the window."""

    channel: Channel
    to: Address | None  # None: to the group
    through: int


@record
class SendFailed(Effect):
    """Accepted messages, `first` to `last` by number, are no longer tried: they may or may not have arrived."""

    channel: Channel
    to: Address | None
    first: int
    last: int
    error: Exception


@record
class BehindPurgePoint(Effect):
    """The sender has purged what we still miss, up to `purged`: it no longer counts us in. Only a new view can help."""

    sender: Address
    purged: int


@record
class SyncCompleted(Effect):
    """The SYNC that the application asked for is complete: SYNC-ACK was sent, and the window follows the sender's."""

    peer: Address
    conn_id: int  # the connection id that both ends use from now on
    low: int  # the highest seqno that the sender knows to be acked


@record
class SyncFailed(Effect):
    """The SYNC that the application asked for ended before SYNC-ACK was sent; the error says why."""

    peer: Address
    error: Exception
