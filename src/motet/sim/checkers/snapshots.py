"""Checks snapshots: every snapshot taken is a consistent cut, to the last message. The checkers read only the history.

For every member of a snapshot the history has one moment at which its application recorded its state. These moments
classify the messages of each pair of members and each kind of channel, and the snapshot must agree:

no orphans   every message that the receiver had delivered at its moment, the sender had sent at its own
channels     the messages that the sender had sent at its moment, and that the receiver delivered after its own, are
             recorded as in flight between the two, in that order; or, if ordered, as waiting at the sender
waiting      no member had delivered at its moment a message recorded as waiting, and its sender had sent it
tokens       the tokens in all states, in flight and waiting are all tokens that the members started with, less those
             sent to other processes or lost with a message, plus those received from other processes
ends         a snapshot ends once, with a report of every member or with a reason, unless its initiator dies
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.wire.snapshot import Report, SnapshotId
from motet.sim.checkers.channels import Violation
from motet.sim.world.history import (
    DeliveredBatch,
    EndedSnapshot,
    History,
    MessageStream,
    RecordedState,
    StartedSnapshot,
)
from motet.sim.world.tokens import ENDOWMENT, Transfer, transfer_in

_Link = tuple[Channel, Address, Address]  # sender, receiver


@dataclass(slots=True)
class _Deliveries:
    """The messages delivered over one link, each with its index in the history."""

    places: list[int] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)

    def before(self, place: int) -> list[bytes]:
        return self.messages[: bisect_left(self.places, place)]

    def after(self, place: int) -> list[bytes]:
        return self.messages[bisect_left(self.places, place) :]


@dataclass(slots=True)
class CutChecker:
    history: History
    violations: list[Violation] = field(default_factory=list)
    _links: dict[_Link, _Deliveries] = field(default_factory=dict)
    _moments: dict[tuple[SnapshotId, Address], tuple[int, RecordedState]] = field(default_factory=dict)

    def run(self) -> list[Violation]:
        for place, event in enumerate(self.history.events):
            if isinstance(event, DeliveredBatch):
                link = self._link((event.channel, event.sender, event.receiver))
                link.places += [place] * len(event.messages)
                link.messages += event.messages
            elif isinstance(event, RecordedState):
                self._moments.setdefault((event.snapshot, event.member), (place, event))
        for event in self.history.events:
            if isinstance(event, EndedSnapshot) and event.reports is not None:
                self._check(event.snapshot, dict(event.reports))
        self.violations += check_ends(self.history)
        return self.violations

    def _link(self, link: _Link) -> _Deliveries:
        return self._links.setdefault(link, _Deliveries())

    def _check(self, snapshot: SnapshotId, reports: dict[Address, Report]) -> None:
        silent = [member for member in reports if (snapshot, member) not in self._moments]
        if silent:
            self._violate("ends", f"{snapshot} has a report of {silent[0]}, which never gave its state")
            return
        for sender in reports:
            for receiver in reports:
                for channel in Channel:
                    self._check_link(snapshot, reports, (channel, sender, receiver))
            self._check_waiting(snapshot, reports, sender)
        self._check_tokens(snapshot, reports)

    def _sent(self, snapshot: SnapshotId, channel: Channel, sender: Address, receiver: Address) -> set[bytes]:
        """The messages that the sender had sent at its moment."""
        _, moment = self._moments[snapshot, sender]
        stream = MessageStream(channel, sender, receiver if channel is Channel.UNICAST else None)
        return set(self.history.accepted.get(stream, [])[: moment.sent.get(stream, 0)])

    def _check_link(self, snapshot: SnapshotId, reports: dict[Address, Report], link: _Link) -> None:
        channel, sender, receiver = link
        place, _ = self._moments[snapshot, receiver]
        sent, came = self._sent(snapshot, *link), self._link(link)
        orphans = [message for message in came.before(place) if message not in sent]
        if orphans:
            self._violate("no orphans", f"{snapshot}: {_named(link)}: {_brief(orphans[0])} came, before it was sent")
        waiting = {one.payload for one in reports[sender].waiting if one.channel is channel}
        expected = [message for message in came.after(place) if message in sent and message not in waiting]
        recorded = _recorded(reports[receiver], channel, sender)
        if recorded != expected:
            self._violate("channels", f"{snapshot}: {_named(link)}: {_difference(recorded, expected)}")

    def _check_waiting(self, snapshot: SnapshotId, reports: dict[Address, Report], sender: Address) -> None:
        for one in reports[sender].waiting:
            sent = self._sent(snapshot, one.channel, sender, sender)
            if one.channel is not Channel.UNICAST and one.payload not in sent:
                self._violate("waiting", f"{snapshot}: {sender} has {_brief(one.payload)} waiting, and had not sent it")
            for receiver in reports:
                place, _ = self._moments[snapshot, receiver]
                if one.payload in self._link((one.channel, sender, receiver)).before(place):
                    what = f"{sender} has {_brief(one.payload)} waiting, and {receiver} had it already"
                    self._violate("waiting", f"{snapshot}: {what}")

    # Tokens

    def _check_tokens(self, snapshot: SnapshotId, reports: dict[Address, Report]) -> None:
        names = {member.incarnation for member in reports}
        found = sum(int(report.state) for report in reports.values())
        for member, report in reports.items():
            for state in report.channels:
                found += _worth(_transfers(one.payload for one in state.messages), {member.incarnation})
            found += _worth(_transfers(one.payload for one in report.waiting), names)
        due = self._due(snapshot, reports)
        if found != due:
            self._violate("tokens", f"{snapshot}: {found} tokens in states and channels, and there were {due}")

    def _due(self, snapshot: SnapshotId, reports: dict[Address, Report]) -> int:
        """The tokens that the members started with, less those that left them, plus those received from other
        processes.
        """
        names = {member.incarnation: member for member in reports}
        due = ENDOWMENT * len(reports)
        for (_, sender, receiver), came in self._links.items():
            if receiver in reports and sender not in reports:
                place, _ = self._moments[snapshot, receiver]
                due += _worth(_transfers(came.before(place)), {receiver.incarnation})
        for member, report in reports.items():
            _, moment = self._moments[snapshot, member]
            waiting = {one.payload for one in report.waiting}
            for stream, count in moment.sent.items():
                for message in self.history.accepted[stream][:count]:
                    due -= self._lost(stream, message, names, is_waiting=message in waiting)
        return due

    def _lost(self, stream: MessageStream, message: bytes, names: dict[int, Address], *, is_waiting: bool) -> int:
        """The tokens of a message that is for no member of the snapshot, or that never reaches its receiver.

        A message that waits at its sender is not lost yet at the cut, even if it is given up later.
        """
        transfer = transfer_in(message)
        if transfer is None:
            return 0
        receiver = names.get(transfer.to)
        if receiver is not None and (is_waiting or message in self._ever(stream, receiver)):
            return 0
        return transfer.amount

    def _ever(self, stream: MessageStream, receiver: Address) -> set[bytes]:
        link = (stream.channel, stream.sender, receiver)
        if link not in self._sets:
            self._sets[link] = set(self._link(link).messages)
        return self._sets[link]

    _sets: dict[_Link, set[bytes]] = field(default_factory=dict)

    def _violate(self, rule: str, what: str) -> None:
        self.violations.append(Violation(rule, what))


def check_ends(history: History) -> Iterator[Violation]:
    started = {event.snapshot: event.member for event in history.events if isinstance(event, StartedSnapshot)}
    ended: dict[SnapshotId, int] = {}
    for event in history.events:
        if isinstance(event, EndedSnapshot):
            ended[event.snapshot] = ended.get(event.snapshot, 0) + 1
            if event.reports is None and not event.reason:
                yield Violation("ends", f"{event.snapshot} failed for no reason")
    for snapshot, times in ended.items():
        if times > 1 or snapshot not in started:
            yield Violation("ends", f"{snapshot} ended {times} times")
    for snapshot, member in started.items():
        if snapshot not in ended and member not in history.dead:
            yield Violation("ends", f"{snapshot} of {member} never ended")


def _recorded(report: Report, channel: Channel, sender: Address) -> list[bytes]:
    states = (state for state in report.channels if state.channel is channel and state.sender == sender.incarnation)
    return [one.payload for state in states for one in state.messages]


def _transfers(payloads: Iterator[bytes] | list[bytes]) -> Iterator[Transfer]:
    return (transfer for payload in payloads if (transfer := transfer_in(payload)) is not None)


def _worth(transfers: Iterator[Transfer], names: set[int]) -> int:
    return sum(transfer.amount for transfer in transfers if transfer.to in names)


def _difference(recorded: list[bytes], expected: list[bytes]) -> str:
    missing = [message for message in expected if message not in recorded]
    if missing:
        return f"{_brief(missing[0])} was in flight, and is not in the snapshot"
    extra = [message for message in recorded if message not in expected]
    if extra:
        return f"{_brief(extra[0])} is in the snapshot, and was not in flight"
    return f"{len(recorded)} messages are recorded, and {len(expected)} were in flight, or in another order"


def _named(link: _Link) -> str:
    channel, sender, receiver = link
    return f"{channel.value} of {sender} to {receiver}"


def _brief(message: bytes) -> str:
    return repr(message[:40].decode(errors="replace").rstrip("."))
