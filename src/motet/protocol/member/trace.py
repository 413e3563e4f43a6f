"""Converts effects to trace events, for the driver and the simulator alike."""

from __future__ import annotations

from collections.abc import Iterable

from motet.protocol.core.counters import Count
from motet.protocol.core.effects import (
    Admitted,
    BehindPurgePoint,
    Channel,
    Effect,
    SendFailed,
    SyncCompleted,
    SyncFailed,
)
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.trace import Emit, TraceEvent, TraceKind, trace_name, trace_view
from motet.protocol.member.delivery import Delivered
from motet.protocol.member.member import Announcement, Datagram, Member
from motet.protocol.membership import (
    BecameBusy,
    BecameResponsive,
    DigestsOverlapped,
    FlushTimedOut,
    Left,
    ProvideState,
    StateFailed,
    StateReceived,
    Suspected,
    Trusted,
    ViewInstalled,
)
from motet.protocol.ordering import AppendRepeated, RolledBack, StableAdvanced
from motet.protocol.snapshot import RecordState, SnapshotFailed, SnapshotTaken
from motet.protocol.wire.codec import kind_name

# What a member does without an effect is visible in its counters only.
COUNTED = {
    Count.FRAME_RESENT: TraceKind.FRAME_RESENT,
    Count.MERGE_CANCELLED: TraceKind.MERGE_FAILED,
    Count.DATAGRAM_REJECTED: TraceKind.DATAGRAM_DROPPED,
    Count.SOURCE_UNKNOWN: TraceKind.DATAGRAM_DROPPED,
    Count.NOT_FOR_US: TraceKind.DATAGRAM_DROPPED,
    Count.FRAME_MISPLACED: TraceKind.DATAGRAM_DROPPED,
    Count.FRAME_OUTSIDE_WINDOW: TraceKind.DATAGRAM_DROPPED,
    Count.FRAME_EARLY_DROPPED: TraceKind.DATAGRAM_DROPPED,
    Count.FAULT_DROPPED: TraceKind.DATAGRAM_DROPPED,
    Count.FAULT_OVERFLOWED: TraceKind.DATAGRAM_DROPPED,
    **{count: TraceKind.DATAGRAM_DROPPED for count in Count if count.name.startswith("SEAL_")},
}


def events_of(effect: Effect, member: Address, now: int) -> list[TraceEvent]:
    """The trace events for an effect of `member` at `now`; none for an internal effect."""
    local, kinds = trace_name(member), TraceKind
    match effect:
        case Datagram(to=to, data=data):
            what = kind_name(data)
            return [TraceEvent(now, local, kinds.DATAGRAM_SENT, _peer(one), size=len(data), detail=what) for one in to]
        case Announcement(to, data):
            group = f"{to.host}:{to.port}"
            return [TraceEvent(now, local, kinds.DATAGRAM_SENT, group, size=len(data), detail=kind_name(data))]
        case Delivered():
            return _delivered(effect, local, now)
        case ViewInstalled():
            return _installed(effect, local, now)
        case _:
            event = _event_of(effect, local, now)
            return [] if event is None else [event]


def _delivered(effect: Delivered, local: str, now: int) -> list[TraceEvent]:
    if not effect.messages:  # A fragment that completes no message.
        return []
    sender, channel = trace_name(effect.sender), effect.channel.value
    size, count = sum(map(len, effect.messages)), len(effect.messages)
    event = TraceEvent(
        now, local, TraceKind.DELIVERED, sender, channel, position=effect.position, count=count, size=size
    )
    return [event]


def _installed(effect: ViewInstalled, local: str, now: int) -> list[TraceEvent]:
    view, name = effect.view, trace_view(effect.view.id)
    members = ", ".join(map(trace_name, view.members))
    detail = f"{'primary' if view.is_primary else 'not primary'}: {members}"
    coordinator, count = trace_name(view.coordinator), len(view.members)
    events = [
        TraceEvent(now, local, TraceKind.VIEW_INSTALLED, coordinator, view=name, count=count, detail=detail),
    ]
    if len(effect.subviews) > 1:
        parts = ", ".join(trace_view(part.id) for part in effect.subviews)
        events.append(TraceEvent(now, local, TraceKind.MERGED, view=name, count=len(effect.subviews), detail=parts))
    return events


def _event_of(effect: Effect, local: str, now: int) -> TraceEvent | None:
    kinds = TraceKind
    match effect:
        case Admitted(channel, to, through):
            return TraceEvent(now, local, kinds.ADMITTED, _peer(to), channel.value, count=through)
        case SendFailed(channel, to, first, last, error):
            whom, why = _peer(to), f"{type(error).__name__}: {error}"
            return TraceEvent(now, local, kinds.SEND_FAILED, whom, channel.value, position=first, last=last, detail=why)
        case SyncCompleted(peer, conn_id, low):
            whom, what = trace_name(peer), f"connection {conn_id}"
            return TraceEvent(now, local, kinds.SYNC_COMPLETED, whom, Channel.UNICAST.value, position=low, detail=what)
        case SyncFailed(peer, error):
            return TraceEvent(
                now, local, kinds.SYNC_FAILED, trace_name(peer), Channel.UNICAST.value, detail=f"SyncError: {error}"
            )
        case DigestsOverlapped(peer, first, second):
            both = ", ".join(f"{one.entry} in {trace_view(one.view.id)}" for one in (first, second))
            return TraceEvent(now, local, kinds.DIGESTS_OVERLAPPED, trace_name(peer), last=effect.received, detail=both)
        case BehindPurgePoint(sender, purged):
            return TraceEvent(now, local, kinds.BEHIND_PURGE_POINT, trace_name(sender), last=purged)
        case StableAdvanced(position):
            return TraceEvent(now, local, kinds.STABLE, position=position)
        case RolledBack(first, last):
            return TraceEvent(now, local, kinds.ROLLED_BACK, position=first, last=last)
        case Suspected(peer):
            return TraceEvent(now, local, kinds.SUSPECTED, trace_name(peer))
        case Trusted(peer):
            return TraceEvent(now, local, kinds.TRUSTED, trace_name(peer))
        case BecameBusy(peer):
            return TraceEvent(now, local, kinds.BUSY, trace_name(peer))
        case BecameResponsive(peer):
            return TraceEvent(now, local, kinds.RESPONSIVE, trace_name(peer))
        case FlushTimedOut(peer):
            return TraceEvent(now, local, kinds.FLUSH_TIMED_OUT, trace_name(peer))
        case Left():
            return TraceEvent(now, local, kinds.LEFT)
        case ProvideState(view):
            return TraceEvent(now, local, kinds.STATE_ASKED, view=trace_view(view))
        case StateReceived(view, data, is_first, is_last):
            place = " ".join(word for word, holds in (("first", is_first), ("last", is_last)) if holds) or None
            return TraceEvent(now, local, kinds.STATE_RECEIVED, view=trace_view(view), size=len(data), detail=place)
        case RecordState(snapshot):
            return TraceEvent(now, local, kinds.SNAPSHOT, detail=f"{snapshot} is recorded")
        case SnapshotTaken(snapshot, view, reports):
            name, members = trace_view(view.id), len(reports)
            return TraceEvent(now, local, kinds.SNAPSHOT, view=name, count=members, detail=f"{snapshot} is taken")
        case SnapshotFailed(snapshot, reason):
            return TraceEvent(now, local, kinds.SNAPSHOT, detail=f"{snapshot} has failed: {reason}")
        case AppendRepeated(producer, sequence):
            return TraceEvent(now, local, kinds.APPEND_REPEATED, last=sequence, detail=f"producer {producer:016x}")
        case StateFailed(view, reason):
            return TraceEvent(now, local, kinds.STATE_FAILED, view=trace_view(view), detail=reason)
    return None


def _peer(to: Address | Endpoint | None) -> str | None:
    return trace_name(to) if isinstance(to, Address) else None if to is None else str(to)


class Tracer:
    """Turns the inputs and outputs of one member into trace events. Without tracing there is no Tracer."""

    def __init__(self, member: Member, emit: Emit) -> None:
        self._member = member
        self._local = trace_name(member.address)
        self._emit = emit
        self._counted = dict.fromkeys(COUNTED, 0)

    def started(self, now: int) -> None:
        self._record(TraceKind.STARTED, now, detail=str(self._member.address.endpoint))

    def failed(self, why: str, now: int) -> None:
        self._record(TraceKind.FAILED, now, detail=why)

    def fault(self, what: str, now: int) -> None:
        self._record(TraceKind.FAULT, now, detail=what)

    def performed(self, effects: Iterable[Effect], now: int) -> None:
        """Trace the effects of one input, and the counters that it changed."""
        for effect in effects:
            self.record_effect(effect, now)
        self.record_counters(now)

    def record_effect(self, effect: Effect, now: int) -> None:
        for event in events_of(effect, self._member.address, now):
            self._emit(event)

    def received(self, data: bytes, now: int, source: Address | Endpoint | None = None) -> None:
        """Trace an unsealed datagram, before the member handles it."""
        event = TraceEvent(
            now, self._local, TraceKind.DATAGRAM_RECEIVED, _peer(source), size=len(data), detail=kind_name(data)
        )
        self._emit(event)

    def dropped(self, why: str, now: int, peer: Address | Endpoint | None = None, size: int | None = None) -> None:
        self._emit(
            TraceEvent(now, self._local, TraceKind.DATAGRAM_DROPPED, _peer(peer), count=1, size=size, detail=why)
        )

    def record_counters(self, now: int) -> None:
        counters = self._member.counters
        for count, before in self._counted.items():
            grown = counters[count] - before
            if grown:
                self._counted[count] += grown
                self._record(COUNTED[count], now, count=grown, detail=count.value)

    def _record(self, kind: TraceKind, now: int, *, count: int | None = None, detail: str | None = None) -> None:
        self._emit(TraceEvent(now, self._local, kind, count=count, detail=detail))
