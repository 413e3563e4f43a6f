"""Chandy-Lamport snapshots of the group: any member can start one, and several can run at the same time.

    a snapshot starts, or a first marker arrives -> ask the application for its state and start to record the channels
    the application supplies its state           -> send a marker into every channel, before any later message
    a marker arrives on a channel                -> stop recording that channel
    markers have arrived on all channels         -> send the report to the initiator
    all reports have arrived                     -> the snapshot is complete
    the view changes, a member refuses or leaves,
    or the timeout expires                       -> the snapshot fails, and its initiator reports why

docs/design/snapshot.md argues why the result is a consistent global state.

Invariants: at most one snapshot of each initiator and at most `most_running` in total are recorded at a time; no
recording outlives its view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from motet.errors import SnapshotRunningError
from motet.protocol.core.counters import Count, Counters
from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.timers import Timers
from motet.protocol.core.units import format_ns
from motet.protocol.core.view import View, ViewId
from motet.protocol.snapshot.config import SnapshotConfig
from motet.protocol.snapshot.participation import LocalState, Participation
from motet.protocol.wire.body import MAX_MESSAGE_BYTES
from motet.protocol.wire.snapshot import Abandon, Marker, Message, Report, SnapshotId, SnapshotRefusal, decode, encode

MOST_MISSED = 256  # Snapshots of views not installed here yet; no group starts more than this at the same time.


@dataclass(frozen=True, slots=True)
class RecordState(Effect):
    """Ask for the application's state at exactly this point: after all earlier deliveries, before all later ones.

    What the application sends before it answers belongs to that state; what it sends later does not.
    """

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotTaken(Effect):
    snapshot: SnapshotId
    view: View
    reports: Mapping[Address, Report]  # One of every member of the view, oldest first.


@dataclass(frozen=True, slots=True)
class SnapshotFailed(Effect):
    snapshot: SnapshotId
    reason: str
    is_transient: bool = False  # The cause is temporary, so another snapshot may succeed soon.


@dataclass(frozen=True, slots=True)
class SendMarker(Effect):
    """For the member: send this into every outgoing channel, in order with the messages there."""

    data: bytes
    to_itself: bool  # There is a unicast connection to this member itself, which needs a marker as well.


@dataclass(frozen=True, slots=True)
class SendSnapshotMessage(Effect):
    """For the member: send this to one member by unicast."""

    to: Address
    data: bytes


@dataclass(slots=True)
class _OwnSnapshot:
    """A snapshot that this member initiated."""

    snapshot: SnapshotId
    view: View
    reports: dict[Address, Report] = field(default_factory=dict)
    gathered_bytes: int = 0


class Snapshots:
    def __init__(self, local: Address, config: SnapshotConfig, counters: Counters) -> None:
        self._local = local
        self._config = config
        self._counters = counters
        self._view: View | None = None
        self._lacks_state = False
        self._has_left = False
        self._number = 0
        self._own: _OwnSnapshot | None = None
        self._parts: dict[SnapshotId, Participation] = {}
        self._missed: dict[SnapshotId, ViewId] = {}  # Of views not installed here, by initiators not known here.
        self._seen: dict[int, int] = {}  # The highest number of each initiator; what is not recorded has ended here.
        self._timers: Timers[SnapshotId] = Timers()

    # What the application asks for

    def start(self, now: int) -> tuple[SnapshotId, list[Effect]]:
        """Start a snapshot. It always ends with either SnapshotTaken or SnapshotFailed."""
        if self._own is not None:
            raise SnapshotRunningError(
                f"snapshot {self._own.snapshot} of this member is not finished; wait for its end, then start again"
            )
        self._number += 1
        snapshot = SnapshotId(self._local.incarnation, self._number)
        if (reason := self._hindrance()) is not None:
            return snapshot, [SnapshotFailed(snapshot, reason, is_transient=not self._has_left)]
        assert self._view is not None
        self._own = _OwnSnapshot(snapshot, self._view)
        return snapshot, self._begin(snapshot, self._view, now)

    def supply(self, snapshot: SnapshotId, state: bytes, local: LocalState, now: int) -> list[Effect]:
        """The application's answer to RecordState; ignored if the snapshot has ended meanwhile."""
        part = self._parts.get(snapshot)
        if part is None or part.is_supplied:
            return []
        part.supply(state, local, self._local)
        if part.recorded_bytes > self._config.most_bytes:
            return self._give_up(part, self._too_large(part), now)
        marker = Marker(snapshot, part.view.id, local.ordered)
        return [SendMarker(encode(marker), local.talks_to_itself), *self._report_if_complete(part, now)]

    def refuse(self, snapshot: SnapshotId, reason: str, now: int, *, is_transient: bool = False) -> list[Effect]:
        """The application's other answer to RecordState: it has no state to supply, or not yet."""
        part = self._parts.get(snapshot)
        return (
            self._give_up(part, reason, now, is_transient=is_transient)
            if part is not None and not part.is_supplied
            else []
        )

    def leave(self) -> list[Effect]:
        """This member leaves: drop all recordings, its own and those for other initiators."""
        self._has_left = True
        effects = self._fail("this member leaves the group")
        self._forget_all()
        return effects

    # Views

    def begin_view(self, view: View, *, lacks_state: bool) -> list[Effect]:
        """Fail all running snapshots, because a snapshot across two views is not consistent."""
        before, self._view, self._lacks_state = self._view, view, lacks_state
        effects: list[Effect] = []
        if self._own is not None and before is not None:
            gone = ", ".join(str(member) for member in before.members if member not in view)
            who = f" without {gone}" if gone else ""
            reason = f"view {before.id} ended meanwhile, and {view.id} follows{who}; start again"
            effects = self._fail(reason, is_transient=True, tells=False)
        self._forget_all()
        members = {member.incarnation for member in view.members}
        self._seen = {initiator: number for initiator, number in self._seen.items() if initiator in members}
        self._missed = {snapshot: its_view for snapshot, its_view in self._missed.items() if its_view == view.id}
        return effects

    def has_state(self) -> None:
        """The application has received its state, which it lacked when it joined."""
        self._lacks_state = False

    # Deliveries of the channels

    @property
    def is_recording(self) -> bool:
        return bool(self._parts)

    @property
    def running(self) -> tuple[SnapshotId, ...]:
        return tuple(self._parts)

    def record(
        self, channel: Channel, sender: Address, port: int, messages: Sequence[bytes], first: int, now: int
    ) -> list[Effect]:
        """Record messages that were just delivered: for each running snapshot they may have been in flight."""
        effects: list[Effect] = []
        for part in list(self._parts.values()):
            part.record(channel, sender, port, messages, first)
            if part.recorded_bytes > self._config.most_bytes:
                effects += self._give_up(part, self._too_large(part), now)
        return effects

    def receive(self, channel: Channel, sender: Address, data: bytes, now: int) -> list[Effect]:
        """A message of port SNAPSHOT, in order among the other messages of this channel."""
        message = decode(data)
        match message:
            case Marker():
                return self._on_marker(channel, sender, message, now)
            case Report():
                return self._on_report(sender, message, len(data))
            case SnapshotRefusal():
                return self._on_refusal(sender, message)
            case Abandon():
                return self._on_abandon(sender, message)
        self._counters[Count.SNAPSHOT_REJECTED] += 1
        return []

    def settle(self, delivered: Mapping[Address, int], now: int) -> list[Effect]:
        """All deliveries so far were recorded; `delivered` has the id of the last ordered frame of each sender."""
        effects: list[Effect] = []
        for part in list(self._parts.values()):
            part.settle(delivered)
            effects += self._report_if_complete(part, now)
        return effects

    def tick(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        for snapshot in self._timers.take_due(now):
            if self._own is not None and self._own.snapshot == snapshot:
                effects += self._fail(self._too_late(self._own))
            elif self._parts.pop(snapshot, None) is not None:
                self._counters[Count.SNAPSHOT_ABANDONED] += 1
        return effects

    def next_deadline(self) -> int | None:
        return self._timers.next_deadline()

    # Recording

    def _hindrance(self, snapshot: SnapshotId | None = None) -> str | None:
        """Why this member cannot take part in a snapshot, or None."""
        if snapshot in self._missed:
            return "it was not in this view yet when markers arrived; start again"
        if self._view is None or self._has_left:
            return "this member is not in a group"
        if self._lacks_state:
            return "this member still waits for the application's state; start again when it is there"
        if len(self._parts) >= self._config.most_running:
            return f"{len(self._parts)} snapshots are running already; start again when one has ended"
        return None

    def _begin(self, snapshot: SnapshotId, view: View, now: int) -> list[Effect]:
        self._close_book(snapshot)
        self._parts[snapshot] = Participation(snapshot, view)
        is_own = self._own is not None and self._own.snapshot == snapshot
        self._timers.arm(snapshot, now + self._config.timeout_ns * (1 if is_own else 2))
        return [RecordState(snapshot)]

    def _on_marker(self, channel: Channel, sender: Address, marker: Marker, now: int) -> list[Effect]:
        snapshot, effects = marker.snapshot, []
        if snapshot not in self._parts:
            if (answer := self._join(channel, sender, marker, now)) is None:
                return []
            effects = answer
        part = self._parts.get(snapshot)
        if part is None:
            return effects
        if not part.close(channel, sender, marker):
            self._counters[Count.FRAME_MISPLACED] += 1
        return effects + self._report_if_complete(part, now)

    def _join(self, channel: Channel, sender: Address, marker: Marker, now: int) -> list[Effect] | None:
        """The first marker of a snapshot that arrives here; None if it is late or invalid."""
        snapshot, view = marker.snapshot, self._view
        if snapshot.number <= self._seen.get(snapshot.initiator, 0):
            return None  # It has ended here, or a later one of its initiator has replaced it.
        initiator = self._initiator(snapshot)
        if view is None or marker.view != view.id or sender not in view or initiator is None:
            return self._refuse_stranger(channel, sender, marker)
        if initiator == self._local:
            self._counters[Count.FRAME_MISPLACED] += 1  # This member never started it.
            return None
        self._drop_earlier(snapshot)
        if (reason := self._hindrance(snapshot)) is not None:
            self._close_book(snapshot)
            return self._send_to(initiator, SnapshotRefusal(snapshot, reason, is_transient=not self._has_left))
        return self._begin(snapshot, view, now)

    def _refuse_stranger(self, channel: Channel, sender: Address, marker: Marker) -> list[Effect] | None:
        """Refuse a marker of a different view: it is not repeated, and the initiator must not wait for the timeout.

        Only unicast markers need this. Multicast buffers frames of later views; unicast is independent of views, and
        every member sends a marker by unicast as well.
        """
        self._counters[Count.FRAME_MISPLACED] += 1
        snapshot, ours = marker.snapshot, self._view.id if self._view is not None else marker.view
        if channel is not Channel.UNICAST or marker.view == ours or sender == self._local:
            return None
        initiator = sender if snapshot.initiator == sender.incarnation else self._initiator(snapshot)
        if initiator is None and len(self._missed) < MOST_MISSED:
            self._missed[snapshot] = marker.view
        if initiator is None or initiator == self._local:
            return None
        self._close_book(snapshot)
        reason = f"it is in view {ours}, not in {marker.view}; start again when all are in one view"
        return self._send_to(initiator, SnapshotRefusal(snapshot, reason, is_transient=True))

    def _drop_earlier(self, snapshot: SnapshotId) -> None:
        """Drop an earlier snapshot of the same initiator, which must have given it up to start another."""
        for earlier in [part for part in self._parts if part.initiator == snapshot.initiator]:
            self._forget(earlier)
            self._counters[Count.SNAPSHOT_ABANDONED] += 1

    def _report_if_complete(self, part: Participation, now: int) -> list[Effect]:
        if not part.is_complete or part.snapshot not in self._parts:
            return []
        report = part.report()
        data = encode(report)
        if len(data) > MAX_MESSAGE_BYTES:
            return self._give_up(part, self._too_large(part), now)
        initiator = self._initiator(part.snapshot)
        if initiator == self._local:
            del self._parts[part.snapshot]  # The timer keeps running: it now limits the wait for the other reports.
            return self._on_report(self._local, report, len(data))
        self._forget(part.snapshot)
        assert initiator is not None, "only snapshots of members of the view are recorded"
        return [SendSnapshotMessage(initiator, data)]

    def _give_up(self, part: Participation, reason: str, now: int, *, is_transient: bool = False) -> list[Effect]:
        initiator = self._initiator(part.snapshot)
        self._forget(part.snapshot)
        if initiator == self._local:
            return self._fail(reason, is_transient=is_transient)
        return (
            self._send_to(initiator, SnapshotRefusal(part.snapshot, reason, is_transient))
            if initiator is not None
            else []
        )

    def _too_large(self, part: Participation) -> str:
        return (
            f"the state and the messages in flight are {part.recorded_bytes} bytes, and most_bytes allows "
            f"{self._config.most_bytes}; raise it, or take the snapshot when less is in flight"
        )

    # Collecting reports

    def _on_report(self, sender: Address, report: Report, size: int) -> list[Effect]:
        own = self._own
        if own is None or own.snapshot != report.snapshot or sender not in own.view or sender in own.reports:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        if not _names_members_only(report, own.view):
            self._counters[Count.SNAPSHOT_REJECTED] += 1
            return self._fail(f"the report of {sender} names channels of processes outside the view")
        own.reports[sender] = report
        own.gathered_bytes += size
        if own.gathered_bytes > self._config.most_gathered_bytes:
            return self._fail(
                f"the reports of {len(own.reports)} of {len(own.view.members)} members are {own.gathered_bytes} bytes, "
                f"and most_gathered_bytes allows {self._config.most_gathered_bytes}; raise it"
            )
        return self._take() if len(own.reports) == len(own.view.members) else []

    def _take(self) -> list[Effect]:
        own = self._own
        assert own is not None
        self._own = None
        self._timers.cancel(own.snapshot)
        reports = {member: own.reports[member] for member in own.view.members}
        return [SnapshotTaken(own.snapshot, own.view, reports)]

    def _too_late(self, own: _OwnSnapshot) -> str:
        missing = ", ".join(str(member) for member in own.view.members if member not in own.reports)
        return (
            f"after {format_ns(self._config.timeout_ns)} there is no report of {missing}: its application takes no "
            f"deliveries or supplies no state, or a channel to it has stalled; start again"
        )

    def _on_refusal(self, sender: Address, refusal: SnapshotRefusal) -> list[Effect]:
        own = self._own
        if own is None or own.snapshot != refusal.snapshot or sender not in own.view:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        return self._fail(f"{sender} cannot take part: {refusal.reason}", is_transient=refusal.is_transient)

    def _fail(self, reason: str, *, is_transient: bool = False, tells: bool = True) -> list[Effect]:
        """Fail the own snapshot, if one is running, and tell the other members to drop it."""
        own = self._own
        if own is None:
            return []
        self._own = None
        self._forget(own.snapshot)
        others = [member for member in own.view.members if member != self._local and tells]
        notices = [effect for member in others for effect in self._send_to(member, Abandon(own.snapshot))]
        return [*notices, SnapshotFailed(own.snapshot, reason, is_transient)]

    def _on_abandon(self, sender: Address, abandon: Abandon) -> list[Effect]:
        if abandon.snapshot.initiator != sender.incarnation:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        self._close_book(abandon.snapshot)
        if abandon.snapshot in self._parts:
            self._forget(abandon.snapshot)
            self._counters[Count.SNAPSHOT_ABANDONED] += 1
        return []

    # Shared

    def _initiator(self, snapshot: SnapshotId) -> Address | None:
        members = self._view.members if self._view is not None else ()
        return next((member for member in members if member.incarnation == snapshot.initiator), None)

    def _close_book(self, snapshot: SnapshotId) -> None:
        """Ignore later markers of this snapshot and of earlier ones of its initiator."""
        self._seen[snapshot.initiator] = max(snapshot.number, self._seen.get(snapshot.initiator, 0))

    def _send_to(self, to: Address, message: Message) -> list[Effect]:
        return [SendSnapshotMessage(to, encode(message))]

    def _forget(self, snapshot: SnapshotId) -> None:
        self._parts.pop(snapshot, None)
        self._timers.cancel(snapshot)

    def _forget_all(self) -> None:
        for snapshot in list(self._parts):
            self._forget(snapshot)

    def _check(self) -> None:
        assert len(self._parts) <= self._config.most_running
        assert len({snapshot.initiator for snapshot in self._parts}) == len(self._parts)
        assert all(part.view is self._view for part in self._parts.values())
        assert all(part.recorded_bytes <= self._config.most_bytes for part in self._parts.values())


def _names_members_only(report: Report, view: View) -> bool:
    members = {member.incarnation for member in view.members}
    return all(state.sender in members for state in report.channels) and all(
        h.sender in members for h in report.held_back
    )
