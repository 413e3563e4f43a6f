"""Trace events: what a member did, one flat record each, the same for a real process and a simulated one.

A record has few columns, most of them empty; what a column means depends on the kind and is documented at the kind. A
trace is a table that people read as JSON lines and programs as Arrow or Parquet. This module writes nothing: the
caller supplies a function that takes events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum, unique

from motet.protocol.core.identity import Address
from motet.protocol.core.view import ViewId


@unique
class TraceKind(StrEnum):
    """What happened. The columns that are filled besides at_ns, member and kind stand in brackets."""

    STARTED = "started"  # the process has started [detail: its endpoint]
    LEFT = "left"  # its graceful leave is complete
    FAILED = "failed"  # it stopped, or the simulator stopped it [detail]
    FAULT = "fault"  # a fault was injected [detail]

    DATAGRAM_SENT = "datagram_sent"  # [peer: member or endpoint, size, detail: kind of frame]
    DATAGRAM_RECEIVED = "datagram_received"  # [peer: where known, size, detail: kind of frame]
    DATAGRAM_DROPPED = "datagram_dropped"  # [peer and size where known, count, detail: why]
    FRAME_RESENT = "frame_resent"  # [count, detail: the counter's name]

    DELIVERED = "delivered"  # [peer: sender, channel, count: messages, size: their bytes, position: of the first]
    ADMITTED = "admitted"  # own messages left the backlog [peer: to whom, channel, count: total so far]
    APPEND_REPEATED = "append_repeated"  # the log already has the append [last: its sequence, detail: its producer]
    SYNC_COMPLETED = "sync_completed"  # SYNC-ACK was sent [peer, channel, position: its lowest seqno, detail: conn-id]
    SYNC_FAILED = "sync_failed"  # a requested SYNC ended without SYNC-ACK [peer, channel, detail: why]
    SEND_FAILED = "send_failed"  # [peer: to whom, channel, position: number of the first, last, detail: why]

    VIEW_INSTALLED = "view_installed"  # [view, peer: coordinator, count: members, detail: primary or not, and who]
    MERGED = "merged"  # the view is a merge [view, count: parts, detail: their ids]
    MERGE_FAILED = "merge_failed"  # a merge was cancelled and is retried [count, detail: the counter's name]
    DIGESTS_OVERLAPPED = "digests_overlapped"  # in a merge [peer: whose stream, last: the higher seqno, detail: both]
    STABLE = "stable"  # [position]
    ROLLED_BACK = "rolled_back"  # [position: first, last]
    SUSPECTED = "suspected"  # [peer]
    TRUSTED = "trusted"  # no longer suspected, because it sent something [peer]
    BUSY = "busy"  # its process is alive, but its driver does not run [peer]
    RESPONSIVE = "responsive"  # a busy peer's driver runs again [peer]
    FLUSH_TIMED_OUT = "flush_timed_out"  # did not do its part of a view change in time [peer]
    BEHIND_PURGE_POINT = (
        "behind_purge_point"  # the sender has purged what is missing here [peer: sender, last: purged up to]
    )

    STATE_ASKED = "state_asked"  # the application is asked for its state [view]
    STATE_RECEIVED = "state_received"  # a chunk of the state arrived [view, size, detail: first, last]
    STATE_FAILED = "state_failed"  # [view, detail: why]
    SNAPSHOT = "snapshot"  # recording began, it is complete, or it failed [view, count of members, detail]

    TRACE_LOST = "trace_lost"  # events were dropped because the disk was too slow [count]


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
