"""Checks membership: the properties that every history of views and deliveries must have. They read only the history.

agreement           one view id identifies one view; a process is a member of each view that it installs
view order          the numbers of the views that a process installs strictly increase
virtual synchrony   all processes that install W directly after V deliver the same messages in V, in the same order per
                    sender
integrity, order    a multicast was sent, by a member of the receiver's view, comes once and in order, and without a
                    gap for as long as sender and receiver went through the same views; unicast: sent, once, in order
one primary         the installed primary views, in the order of their ids, form one chain: each contains a majority of
                    the one before (or half of it with its most senior member), not counting members that asked to
                    leave; a process that restarted with its durable state is still the same member
state transfer      a received state equals a state that was provided for that view, byte by byte
self delivery       at the end, a live process has delivered its own multicasts, except those reported as failed

Why "one primary" orders views by id. A coordinator that decides that W is primary shares a member with the last primary
view, and that member recorded the attempt before any process could install it (membership/primary.py). So W takes every
earlier primary view into account and has a higher number. The rule requires no more, because weaker links are legal. A
coordinator may install W and crash before any other process knows; the next view then has the same predecessor as W,
yet contains a majority of W. And members behind a partition may stay in an old primary view for as long as they suspect
no one, even while a later primary view exists that shares no member with theirs. A static quorum counts members only:
each primary view must have at least that many.

A process that waits for the application's state buffers deliveries, and drops them if another view begins first,
because the state that it receives later contains them. Such a stay in a view is not compared with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.units import format_ns
from motet.protocol.core.view import View, ViewId
from motet.sim.checkers.channels import Violation
from motet.sim.world.history import DeliveredBatch, EnteredView, History, MessageStream, RestartedWithState

_Places = dict[bytes, int]  # the index of each message in its stream


@dataclass(slots=True)
class Stay:
    """The time that one process spent in one view."""

    entered: EnteredView
    # It waited for the application's state throughout; a later state contains its buffered deliveries.
    is_stateless: bool
    deliveries: list[DeliveredBatch] = field(default_factory=list)  # multicast only, in order

    @property
    def view(self) -> View:
        return self.entered.view

    def by_sender(self) -> dict[Address, tuple[bytes, ...]]:
        collected: dict[Address, list[bytes]] = {}
        for batch in self.deliveries:
            collected.setdefault(batch.sender, []).extend(batch.messages)
        return {sender: tuple(messages) for sender, messages in collected.items()}


Paths = dict[Address, list[Stay]]  # the views of each process, in order


def check_views(history: History, *, static_quorum: int = 0, is_one_primary: bool = True) -> list[Violation]:
    """All rules that hold at every moment."""
    paths = paths_of(history)
    violations = [
        *check_agreement(paths),
        *check_view_order(paths),
        *check_virtual_synchrony(paths),
        *MulticastChecker(history, paths).run(),
        *check_unicast(history),
        *check_states(history),
    ]
    if is_one_primary:
        violations += check_primary(paths, history.leavers, static_quorum, restarts_of(history))
    return violations


def paths_of(history: History) -> Paths:
    paths: Paths = {}
    for event in history.events:
        if isinstance(event, EnteredView):
            key = (event.member, event.view.id)
            is_stateless = key in history.lacking and key not in history.received
            paths.setdefault(event.member, []).append(Stay(event, is_stateless))
        elif isinstance(event, DeliveredBatch) and event.channel is Channel.MULTICAST:
            paths[event.receiver][-1].deliveries.append(event)  # a process is in a view from its first moment on
    return paths


# Agreement


def check_agreement(paths: Paths) -> Iterator[Violation]:
    known: dict[ViewId, View] = {}
    for process, stays in paths.items():
        for stay in stays:
            view = known.setdefault(stay.view.id, stay.view)
            if view != stay.view:
                yield Violation("agreement", f"{process} installed {stay.view}, which others know as {view}")
            if process not in stay.view:
                yield Violation("agreement", f"{process} installed {stay.view} and is not in it")


def check_view_order(paths: Paths) -> Iterator[Violation]:
    """Per incarnation: a process that restarts begins with a singleton view, numbered from 1."""
    for process, stays in paths.items():
        for before, after in pairwise(stays):
            if after.view.id.number <= before.view.id.number:
                what = f"{process} installed {after.view} after {before.view}"
                yield Violation("view order", f"{format_ns(after.entered.at)}: {what}")


# Virtual synchrony


def check_virtual_synchrony(paths: Paths) -> Iterator[Violation]:
    """Compare each process with the first one that made the same step between views; equality is transitive."""
    first: dict[tuple[ViewId, ViewId], tuple[Address, dict[Address, tuple[bytes, ...]]]] = {}
    for process, stays in paths.items():
        for before, after in pairwise(stays):
            if before.is_stateless:
                continue
            mine = before.by_sender()
            other, theirs = first.setdefault((before.view.id, after.view.id), (process, mine))
            if mine != theirs:
                step = f"from {before.view.id} to {after.view.id}"
                what = "; ".join(_differences(process, mine, other, theirs))
                yield Violation("virtual synchrony", f"{process} and {other} went {step}: {what}")


def _differences(
    one: Address, mine: dict[Address, tuple[bytes, ...]], other: Address, theirs: dict[Address, tuple[bytes, ...]]
) -> Iterator[str]:
    for sender in sorted(mine.keys() | theirs.keys()):
        ours, others = mine.get(sender, ()), theirs.get(sender, ())
        if set(ours) != set(others):
            only = [f"{_brief(m)} only at {one}" for m in ours if m not in others]
            only += [f"{_brief(m)} only at {other}" for m in others if m not in ours]
            yield f"of {sender}, {len(ours)} and {len(others)} messages: {', '.join(only[:3])}"
        elif ours != others:
            yield f"the messages of {sender} in another order"


def _brief(message: bytes) -> str:
    return message[:60].decode(errors="replace").rstrip(".")


# Multicast


@dataclass(slots=True)
class MulticastChecker:
    """Follows each receiver through the stream of each sender."""

    history: History
    paths: Paths
    violations: list[Violation] = field(default_factory=list)
    _streams: dict[Address, _Places] = field(default_factory=dict)
    # The index of each view on the path of a process.
    _positions: dict[Address, dict[ViewId, int]] = field(default_factory=dict)

    def run(self) -> list[Violation]:
        for process, stays in self.paths.items():
            self._positions[process] = {stay.view.id: position for position, stay in enumerate(stays)}
        for receiver, stays in self.paths.items():
            last: dict[Address, tuple[int, int]] = {}  # per sender: the last index, and the stay in which it arrived
            for position, stay in enumerate(stays):
                for batch in stay.deliveries:
                    self._follow(receiver, position, stay, batch, last)
        return self.violations

    def _follow(
        self, receiver: Address, position: int, stay: Stay, batch: DeliveredBatch, last: dict[Address, tuple[int, int]]
    ) -> None:
        places = self._places(batch.sender)
        if batch.sender not in stay.view:
            self._violate("integrity", batch, f"in {stay.view}, which does not have the sender")
        for message in batch.messages:
            place = places.get(message)
            if place is None:
                self._violate("integrity", batch, f"{_brief(message)!r}, which was never sent")
                continue
            before, stay_before = last.get(batch.sender, (-1, position))
            if place <= before:
                self._violate("order", batch, f"message {place} after message {before}")
            elif before >= 0 and place > before + 1 and self._was_owed(receiver, batch, stay_before, position):
                self._check_gap(batch, before + 1, place - 1)
            last[batch.sender] = (max(place, before), position)

    def _was_owed(self, receiver: Address, batch: DeliveredBatch, first: int, last: int) -> bool:
        """Whether the sender installed the same consecutive views as the receiver."""
        stays = self.paths[receiver][first : last + 1]
        views = [stay.view.id for stay in stays]
        begin = self._positions.get(batch.sender, {}).get(views[0])
        if begin is None or any(stay.is_stateless for stay in stays):
            return False
        return views == [stay.view.id for stay in self.paths[batch.sender][begin : begin + len(views)]]

    def _check_gap(self, batch: DeliveredBatch, first: int, last: int) -> None:
        missing = not_failed(self.history, MessageStream(Channel.MULTICAST, batch.sender, None), first, last)
        if missing:
            self._violate("fifo", batch, f"message {last + 1} where {missing[0]} was next")

    def _places(self, sender: Address) -> _Places:
        if sender not in self._streams:
            self._streams[sender] = _places_in(self.history, MessageStream(Channel.MULTICAST, sender, None))
        return self._streams[sender]

    def _violate(self, rule: str, batch: DeliveredBatch, what: str) -> None:
        self.violations.append(_violation(rule, batch, what))


def check_unicast(history: History) -> Iterator[Violation]:
    """Safety only: messages to a process that leaves the view may be lost."""
    streams: dict[MessageStream, _Places] = {}
    last: dict[MessageStream, int] = {}
    for event in history.events:
        if not isinstance(event, DeliveredBatch) or event.channel is not Channel.UNICAST:
            continue
        stream = MessageStream(Channel.UNICAST, event.sender, event.receiver)
        if stream not in streams:
            streams[stream] = _places_in(history, stream)
        for message in event.messages:
            place, before = streams[stream].get(message), last.get(stream, -1)
            if place is None:
                yield _violation("integrity", event, f"{_brief(message)!r}, which was never sent to it")
            elif place <= before:
                yield _violation("order", event, f"message {place} after message {before}")
            last[stream] = before if place is None else max(before, place)


def check_states(history: History) -> Iterator[Violation]:
    for (member, view_id), data in history.received.items():
        if data not in history.supplied.get(view_id, ()):
            what = f"{_brief(data)!r} ({len(data)} bytes), which nobody supplied"
            yield Violation("state transfer", f"{member} got, as the state in {view_id}, {what}")


def _places_in(history: History, stream: MessageStream) -> _Places:
    return {message: place for place, message in enumerate(history.accepted.get(stream, ()))}


def _violation(rule: str, batch: DeliveredBatch, what: str) -> Violation:
    channel = batch.channel.value
    return Violation(rule, f"{format_ns(batch.at)}: {batch.receiver} got, by {channel} of {batch.sender}, {what}")


def not_failed(history: History, stream: MessageStream, first: int, last: int) -> list[int]:
    """The indices in this part of the stream that were not reported to the sender as failed."""
    spans = history.failed.get(stream, [])
    return [place for place in range(first, last + 1) if not any(low <= place <= high for low, high in spans)]


# The end


def check_self_delivery(history: History) -> Iterator[Violation]:
    """Holds once the world is at rest. Dead processes and leavers are exempt."""
    delivered: dict[Address, set[bytes]] = {}
    for event in history.events:
        if isinstance(event, DeliveredBatch) and event.receiver == event.sender:
            delivered.setdefault(event.sender, set()).update(event.messages)
    waited = {member for member, view_id in history.lacking if (member, view_id) not in history.received}
    excused = history.dead | history.leavers | waited
    for stream, messages in history.accepted.items():
        if stream.channel is not Channel.MULTICAST or stream.sender in excused:
            continue
        own = delivered.get(stream.sender, set())
        for place in not_failed(history, stream, 0, len(messages) - 1):
            if messages[place] not in own:
                yield Violation("self delivery", f"{stream.sender} never got its own message {place}")
                break


# One primary


@dataclass(slots=True)
class Restarts:
    """Processes that restarted with their durable state."""

    origins: dict[Address, Address] = field(default_factory=dict)  # the first incarnation with the same durable state
    views: list[View] = field(default_factory=list)  # primary views recorded in a durable state

    def origin(self, member: Address) -> Address:
        return self.origins.get(member, member)


def restarts_of(history: History) -> Restarts:
    restarts = Restarts()
    for event in history.events:
        if isinstance(event, RestartedWithState):
            restarts.origins[event.member] = restarts.origin(event.before)
            restarts.views += [event.last] if event.last is not None else []
    return restarts


def check_primary(
    paths: Paths, leavers: set[Address], static_quorum: int = 0, restarts: Restarts | None = None
) -> Iterator[Violation]:
    restarts = restarts or Restarts()
    entered = [stay.view for stays in paths.values() for stay in stays if stay.view.is_primary]
    formed = {view.id: view for view in (*entered, *restarts.views)}
    line = [formed[view_id] for view_id in sorted(formed)]
    if static_quorum:
        small = (view for view in line if len(view.members) < static_quorum)
        yield from (Violation("one primary", f"{view} has fewer than {static_quorum} members") for view in small)
        return
    for earlier, later in pairwise(line):
        if earlier.id.number == later.id.number:
            yield Violation("one primary", f"{earlier} and {later} have the same number")
        if not _succeeds(later, earlier, leavers, restarts):
            yield Violation("one primary", f"{later} does not hold a majority of {earlier}")


def _succeeds(later: View, earlier: View, leavers: set[Address], restarts: Restarts) -> bool:
    """A process that asked to leave but is still in the later view was not removed yet, and counts like any member."""
    here = {restarts.origin(member) for member in later.members}
    present = [member for member in earlier.members if restarts.origin(member) in here]
    counted = [member for member in earlier.members if member in present or member not in leavers]
    return 2 * len(present) > len(counted) or (2 * len(present) == len(counted) and present[:1] == counted[:1])
