"""Trace events: what a member did, one flat record each, the same for a real process and for a simulated one.

A record has few columns, and most of them are empty in most records: what they mean depends on the kind and is told at
the kind. A trace is a table that a person can read as JSON lines and a program as Arrow or Parquet. Nothing in here
writes; whoever wants a trace hands over a function that takes events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum, unique

from motet.protocol.core.identity import Address
from motet.protocol.core.view import ViewId


@unique
class TraceKind(StrEnum):
    """What happened. In brackets the columns that are filled besides at_ns, member and kind."""

    STARTED = "started"  # the process is there [detail: its endpoint]
    LEFT = "left"  # its graceful leave is complete
    FAILED = "failed"  # it stopped, or the simulator stopped it [detail]
    FAULT = "fault"  # something was done to it on purpose [detail]

    DATAGRAM_SENT = "datagram_sent"  # [peer: member or endpoint, size, detail: kind of frame]
    DATAGRAM_RECEIVED = "datagram_received"  # [peer: where known, size, detail: kind of frame]
    DATAGRAM_DROPPED = "datagram_dropped"  # [peer and size where known, count, detail: why]
    FRAME_RESENT = "frame_resent"  # [count, detail: the counter's name]

    DELIVERED = "delivered"  # [peer: sender, channel, count: messages, size: their bytes, position: of the first]
    ADMITTED = "admitted"  # own messages left the backlog [peer: to whom, channel, count: so many in all]
    APPEND_REPEATED = "append_repeated"  # the log has it already [last: its sequence, detail: its producer]
    SYNC_COMPLETED = "sync_completed"  # SYNC-ACK was sent [peer, channel, position: its lowest seqno, detail: conn-id]
    SYNC_FAILED = "sync_failed"  # a SYNC that was asked for ended without it [peer, channel, detail: why]
    SEND_FAILED = "send_failed"  # [peer: to whom, channel, position: number of the first, last, detail: why]

    VIEW_INSTALLED = "view_installed"  # [view, peer: coordinator, count: members, detail: primary or not, and who]
    MERGED = "merged"  # the view is a merge [view, count: parts, detail: their ids]
    MERGE_FAILED = "merge_failed"  # it is tried again [count, detail: the counter's name]
    DIGESTS_OVERLAPPED = "digests_overlapped"  # in a merge [peer: whose stream, last: the higher seqno, detail: both]
    STABLE = "stable"  # [position]
    ROLLED_BACK = "rolled_back"  # [position: first, last]
    SUSPECTED = "suspected"  # [peer]
    TRUSTED = "trusted"  # heard again [peer]
    BUSY = "busy"  # its process is alive and does not run its driver [peer]
    RESPONSIVE = "responsive"  # it answers for itself again [peer]
    FLUSH_TIMED_OUT = "flush_timed_out"  # did not do its part in a view change [peer]
    BEHIND_PURGE_POINT = (
        "behind_purge_point"  # the sender no longer has what we miss [peer: sender, last: purged up to]
    )

    STATE_ASKED = "state_asked"  # the application is asked for its state [view]
    STATE_RECEIVED = "state_received"  # a piece of it came [view, size, detail: first, last]
    STATE_FAILED = "state_failed"  # [view, detail: why]
    SNAPSHOT = "snapshot"  # is recorded here, is taken, or has failed [view and count of members when taken, detail]

    TRACE_LOST = "trace_lost"  # events that the disk was too slow for [count]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    at_ns: int  # wall clock of a real process; virtual time of a simulated one
    member: str  # name#incarnation, 16 hexadecimal digits, as in the log
    kind: TraceKind
    peer: str | None = None
    channel: str | None = None
    view: str | None = None  # number@creator, 16 hexadecimal digits, as in the log
    position: int | None = None
    last: int | None = None
    count: int | None = None
    size: int | None = None  # bytes
    detail: str | None = None

    def as_dict(self) -> dict[str, int | str]:
        """The columns that are filled, in their order."""
        values = ((name, getattr(self, name)) for name in TRACE_COLUMNS)
        return {name: value for name, value in values if value is not None}


TRACE_COLUMNS = tuple(field.name for field in fields(TraceEvent))
Emit = Callable[[TraceEvent], None]


def trace_name(address: Address) -> str:
    return f"{address.name}#{address.incarnation:016x}"


def trace_view(view: ViewId) -> str:
    return f"{view.number}@{view.creator:016x}"
