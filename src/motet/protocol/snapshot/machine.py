"""Chandy-Lamport snapshots of the whole group: any member starts one, several may run theirs at once.

    we start one, or a first marker comes  -> the application is asked for its state; from here on we record channels
    the application has given its state    -> our marker goes into every channel, before anything that is sent later
    a marker of a member comes             -> its channel is recorded no longer
    all channels have ended                -> our report goes to the initiator
    all reports are here                   -> the snapshot is taken
    the view changes, a member refuses,
    we leave, or it takes too long         -> the snapshot has failed, and its initiator says why

docs/design/snapshot.md has the argument why the result is a consistent cut.

Invariants: one snapshot of each initiator is recorded at a time, and at most `most_running` of all; nothing that was
recorded outlives its view.
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

MOST_MISSED = 256  # snapshots of views that we are not in yet; no group has so many members that start one at once


@dataclass(frozen=True, slots=True)
class RecordState(Effect):
    """Give the application's state as it is here: after all deliveries before this, and before all later ones.

    Whatever the application sends before it answers belongs to that state; what it sends later does not.
    """

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotTaken(Effect):
    snapshot: SnapshotId
    view: View
    reports: Mapping[Address, Report]  # one of every member of the view, oldest first


@dataclass(frozen=True, slots=True)
class SnapshotFailed(Effect):
    snapshot: SnapshotId
    reason: str
    is_transient: bool = False  # what hindered it is over soon: another one may well be taken


@dataclass(frozen=True, slots=True)
class SendMarker(Effect):
    """For the stack: this goes into every channel that begins here, in order with the messages in it."""

    data: bytes
    to_itself: bool  # there is a unicast channel to ourselves as well


@dataclass(frozen=True, slots=True)
class SendSnapshotMessage(Effect):
    """For the stack: this goes to one member, by unicast."""

    to: Address
    data: bytes


@dataclass(slots=True)
class _OwnSnapshot:
    """A snapshot of our own."""

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
        self._missed: dict[SnapshotId, ViewId] = {}  # in views that are not ours yet, by initiators that we do not know
        self._seen: dict[int, int] = {}  # initiator -> its highest number; what is not being recorded is over here
        self._timers: Timers[SnapshotId] = Timers()

    # What the application asks for

    def start(self, now: int) -> tuple[SnapshotId, list[Effect]]:
        """Begin one of our own. It ends with SnapshotTaken or with SnapshotFailed, whatever happens."""
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
        """The application's answer to RecordState. Too late for a snapshot that has ended meanwhile does no harm."""
        part = self._parts.get(snapshot)
        if part is None or part.is_supplied:
            return []
        part.supply(state, local, self._local)
        if part.recorded_bytes > self._config.most_bytes:
            return self._give_up(part, self._too_large(part), now)
        marker = Marker(snapshot, part.view.id, local.ordered)
        return [SendMarker(encode(marker), local.talks_to_itself), *self._report_if_complete(part, now)]

    def refuse(self, snapshot: SnapshotId, reason: str, now: int, *, is_transient: bool = False) -> list[Effect]:
        """The other answer to RecordState: there is no state to give, or not yet."""
        part = self._parts.get(snapshot)
        return (
            self._give_up(part, reason, now, is_transient=is_transient)
            if part is not None and not part.is_supplied
            else []
        )

    def leave(self) -> list[Effect]:
        """We go: nothing is recorded any more, neither for us nor for others."""
        self._has_left = True
        effects = self._fail("this member leaves the group")
        self._forget_all()
        return effects

    # What membership says

    def begin_view(self, view: View, *, lacks_state: bool) -> list[Effect]:
        """A cut through two views means nothing: whatever was running has failed."""
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
        """The application's state, which the member came in without, is here."""
        self._lacks_state = False

    # What the channels bring

    @property
    def is_recording(self) -> bool:
        return bool(self._parts)

    @property
    def running(self) -> tuple[SnapshotId, ...]:
        return tuple(self._parts)

    def record(
        self, channel: Channel, sender: Address, port: int, messages: Sequence[bytes], first: int, now: int
    ) -> list[Effect]:
        """These were just delivered here: for every snapshot that we record, they may have been in flight."""
        effects: list[Effect] = []
        for part in list(self._parts.values()):
            part.record(channel, sender, port, messages, first)
            if part.recorded_bytes > self._config.most_bytes:
                effects += self._give_up(part, self._too_large(part), now)
        return effects

    def receive(self, channel: Channel, sender: Address, data: bytes, now: int) -> list[Effect]:
        """A message of port SNAPSHOT, at its place among the others of this channel."""
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
        """Everything that the machines delivered so far was recorded; `delivered` says how far that is, per sender."""
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
        """Why we cannot take part in a snapshot."""
        if snapshot in self._missed:
            return "it was not in this view yet when markers came; start again"
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
        """The first marker of a snapshot that we hear of; None when it is none, or late."""
        snapshot, view = marker.snapshot, self._view
        if snapshot.number <= self._seen.get(snapshot.initiator, 0):
            return None  # it has ended here, or a later one has taken its place
        initiator = self._initiator(snapshot)
        if view is None or marker.view != view.id or sender not in view or initiator is None:
            return self._refuse_stranger(channel, sender, marker)
        if initiator == self._local:
            self._counters[Count.FRAME_MISPLACED] += 1  # we never started it
            return None
        self._drop_earlier(snapshot)
        if (reason := self._hindrance(snapshot)) is not None:
            self._close_book(snapshot)
            return self._send_to(initiator, SnapshotRefusal(snapshot, reason, is_transient=not self._has_left))
        return self._begin(snapshot, view, now)

    def _refuse_stranger(self, channel: Channel, sender: Address, marker: Marker) -> list[Effect] | None:
        """A marker of another view, which went past us, and does not come again: the initiator must not wait in vain.

        Multicast keeps what comes before its view. Unicast knows no views, and each member speaks to us alone as well.
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
        """Its initiator has given up an earlier one, since it starts another."""
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
            del self._parts[part.snapshot]  # the clock of the gathering goes on
            return self._on_report(self._local, report, len(data))
        self._forget(part.snapshot)
        assert initiator is not None, "the initiator is in the view, or nothing would be recorded"
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
            f"{self._config.most_bytes}; raise it, or take the snapshot when less is under way"
        )

    # Gathering

    def _on_report(self, sender: Address, report: Report, size: int) -> list[Effect]:
        own = self._own
        if own is None or own.snapshot != report.snapshot or sender not in own.view or sender in own.reports:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        if not _names_members_only(report, own.view):
            self._counters[Count.SNAPSHOT_REJECTED] += 1
            return self._fail(f"the report of {sender} names channels of strangers")
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
            f"deliveries or gives no state, or a channel to it stands still; start again"
        )

    def _on_refusal(self, sender: Address, refusal: SnapshotRefusal) -> list[Effect]:
        own = self._own
        if own is None or own.snapshot != refusal.snapshot or sender not in own.view:
            self._counters[Count.FRAME_MISPLACED] += 1
            return []
        return self._fail(f"{sender} cannot take part: {refusal.reason}", is_transient=refusal.is_transient)

    def _fail(self, reason: str, *, is_transient: bool = False, tells: bool = True) -> list[Effect]:
        """Our own snapshot, if one is running; the others need not record it any longer, and are told so."""
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

    # Both

    def _initiator(self, snapshot: SnapshotId) -> Address | None:
        members = self._view.members if self._view is not None else ()
        return next((member for member in members if member.incarnation == snapshot.initiator), None)

    def _close_book(self, snapshot: SnapshotId) -> None:
        """No marker of it that is still to come, nor of an earlier one, begins anything."""
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
