"""Checks the log: the properties of total order, whatever fails. The checkers read only the history.

total order     a position that several processes report as stable, or hold at the end, is the same message at each of
                them; deliveries that RolledBack revoked do not count
no gaps         the positions of one process, across the incarnations of its durable state, are consecutive, except
                after a rollback of its tail, and where it joins another part of the group
stable          no process rolls back a position that it reported as stable, and no process has another message there;
                when it is reported, all members of the view have delivered it and, if they wait for their disks,
                have it on disk
notified        a process delivers nothing in a later view while it holds messages of an earlier one that the group did
                not agree on: RolledBack comes first
order           messages of one sender are in the log in the order in which it sent them, each once, and were sent
once            a retried append is in the log once; if any process knew it to be stable, it is in the log
validity        at the end, in a primary view, every message that a live process accepted is in its log, was rolled
                back, or failed
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.units import format_ns
from motet.protocol.core.view import View
from motet.protocol.wire.ordered import Tag
from motet.sim.checkers.channels import Violation
from motet.sim.checkers.views import not_failed
from motet.sim.world.history import (
    DeliveredBatch,
    EnteredView,
    History,
    MessageStream,
    PersistedAt,
    RestartedWithState,
    RolledBackAt,
    StableAt,
)

LoggedMessage = tuple[Address, bytes]


@dataclass(slots=True)
class _MemberLog:
    """The log of one process."""

    entries: dict[int, LoggedMessage] = field(default_factory=dict)
    withdrawn: set[bytes] = field(default_factory=set)
    next: int | None = None  # the position that must follow; None: any position may follow
    stable: int = 0
    fresh: list[int] = field(default_factory=list)  # positions delivered in the current view
    earlier: list[int] = field(default_factory=list)  # positions of earlier views, until the next delivery
    carried: dict[int, LoggedMessage] = field(
        default_factory=dict
    )  # what it held of earlier views when it delivered more

    def begin_view(self) -> None:
        self.earlier += self.fresh
        self.fresh = []

    def deliver(self, position: int, entry: LoggedMessage) -> None:
        if self.earlier:
            self.carried.update((at, self.entries[at]) for at in self.earlier if at in self.entries)
            self.earlier = []
        self.entries[position] = entry
        self.fresh.append(position)


@dataclass(slots=True)
class LogChecker:
    history: History
    logs: dict[Address, _MemberLog] = field(default_factory=dict)
    # Stable positions, each with the process that reported it first.
    agreed: dict[int, tuple[LoggedMessage, Address]] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    waits_for_disk: bool = False
    is_prompt: bool = True  # applications handle deliveries at once, so the times in the history are exact
    _views: dict[Address, View] = field(default_factory=dict)
    _on_disk: dict[Address, int] = field(default_factory=dict)

    def run(self, final: list[Address]) -> list[Violation]:
        """`final`: the live members of the final primary view. The messages in their logs count as agreed."""
        self._tags = {message: tag for tag, messages in self.history.appends.items() for message in messages}
        for event in self.history.events:
            match event:
                case DeliveredBatch() if event.channel is Channel.TOTAL:
                    self._deliver(event)
                case RolledBackAt():
                    self._roll_back(event)
                case StableAt():
                    self._stabilise(event)
                case RestartedWithState():
                    self._restart_with_state(event)
                case PersistedAt():
                    self._on_disk[event.member] = event.position
                case EnteredView():
                    self._views[event.member] = event.view
                    self._log(event.member).begin_view()
                    if len(event.subviews) > 1:  # after a merge the log may continue at another position
                        self._log(event.member).next = None
        for member in final:
            self._compare(member, self._log(member).entries)
        for member, log in self.logs.items():
            self._check_order(member, log)
            self._check_notified(member, log)
        return self.violations

    def _log(self, member: Address) -> _MemberLog:
        return self.logs.setdefault(member, _MemberLog())

    def _restart_with_state(self, event: RestartedWithState) -> None:
        """The new incarnation continues the log of the old one after the position in its durable state."""
        before = self._log(event.before)
        kept = {position: entry for position, entry in before.entries.items() if position <= event.position}
        self.logs[event.member] = _MemberLog(kept, set(), event.position + 1, before.stable, earlier=sorted(kept))
        self._on_disk[event.member] = event.position

    def _deliver(self, event: DeliveredBatch) -> None:
        log, position = self._log(event.receiver), event.position
        assert position is not None
        if log.next is not None and position != log.next:
            self._violate("no gaps", f"{_at(event)}: position {position} where {log.next} was next")
        for offset, message in enumerate(event.messages):
            if position + offset in log.entries:
                self._violate("total order", f"{_at(event)}: position {position + offset} a second time")
            log.deliver(position + offset, (event.sender, message))
        log.next = position + len(event.messages)
        expected = {self._tags.get(message) for message in event.messages}
        if expected and expected != {event.tag}:
            self._violate("once", f"{_at(event)}: {event.tag} at {position}, and it was sent as {expected}")

    def _roll_back(self, event: RolledBackAt) -> None:
        log = self._log(event.member)
        if event.first <= log.stable:
            self._violate("stable", f"{event.member} rolls back {event.first}, although {log.stable} was stable")
        for position in [position for position in log.entries if position >= event.first]:
            log.withdrawn.add(log.entries.pop(position)[1])
        log.next = None
        self._on_disk[event.member] = min(self._on_disk.get(event.member, 0), event.first - 1)

    def _stabilise(self, event: StableAt) -> None:
        log = self._log(event.member)
        fresh = {p: entry for p, entry in log.entries.items() if log.stable < p <= event.position}
        log.stable = max(log.stable, event.position)
        self._compare(event.member, fresh)
        for member in self._views[event.member].members:
            self._check_reached(member, event)

    def _check_reached(self, member: Address, event: StableAt) -> None:
        """Check that a member has reached a position that is reported as stable.

        The position of a process is unknown after it merged in and before its first delivery, and while its
        application lags behind its member.
        """
        following = self._log(member).next
        lacks = (member, self._views[event.member].id) in self.history.lacking or member in self.history.lagging
        if self.is_prompt and following is not None and following <= event.position and not lacks:
            self._violate("stable", f"{event.member} calls {event.position} stable, and {member} is at {following - 1}")
        on_disk = self._on_disk.get(member, 0)
        if self.waits_for_disk and on_disk < event.position:
            self._violate("stable", f"{event.member} calls {event.position} stable, and {member} has {on_disk} on disk")

    def _compare(self, member: Address, entries: dict[int, LoggedMessage]) -> None:
        for position, entry in entries.items():
            known, by = self.agreed.setdefault(position, (entry, member))
            if known != entry:
                what = f"{member} has {_brief(entry)}, {by} has {_brief(known)}"
                self._violate("total order", f"at position {position} {what}")

    def _check_notified(self, member: Address, log: _MemberLog) -> None:
        """A rollback that comes after a delivery in the later view comes too late."""
        for position, entry in log.carried.items():
            agreed, by = self.agreed.get(position, (entry, member))
            if agreed != entry:
                what = f"{_brief(entry)} at {position}, where {by} has {_brief(agreed)}"
                self._violate("notified", f"{member} delivered in a later view while it held {what}")

    def _check_order(self, member: Address, log: _MemberLog) -> None:
        last: dict[Address, int] = {}
        seen: set[bytes] = set()
        for position in sorted(log.entries):
            sender, message = log.entries[position]
            places = self._places(sender).get(message, [])
            later = [place for place in places if place > last.get(sender, -1)]
            if not places:
                self._violate("integrity", f"{member} has at {position} {_brief((sender, message))}, never sent")
            elif not later:
                self._violate("order", f"{member} has at {position} {_brief((sender, message))} after a later one")
            elif message in seen:
                self._violate("once", f"{member} has at {position} {_brief((sender, message))} a second time")
            else:
                last[sender] = later[0]
            seen.add(message)

    def _places(self, sender: Address) -> dict[bytes, list[int]]:
        """The indices of each message among the sends of a process; a retried append has several."""
        if sender not in self._sent:
            self._sent[sender] = {}
            for place, message in enumerate(self.history.accepted.get(MessageStream(Channel.TOTAL, sender, None), [])):
                self._sent[sender].setdefault(message, []).append(place)
        return self._sent[sender]

    _sent: dict[Address, dict[bytes, list[int]]] = field(default_factory=dict)
    _tags: dict[bytes, Tag] = field(default_factory=dict)  # of the messages of appends

    def check_appends(self) -> Iterator[Violation]:
        """An append that any process knew to be stable is still in the log."""
        agreed = {message for (_, message), _ in self.agreed.values()}
        for tag in sorted(self.history.acknowledged):
            if not agreed.issuperset(self.history.appends[tag]):
                yield Violation("once", f"append {tag.sequence} of producer {tag.producer} was stable, and is gone")

    def check_validity(self, final: list[Address]) -> Iterator[Violation]:
        """Members that a new view reached while they waited for a state are exempt: the next state contains the
        messages that they had buffered.
        """
        waited = {member for member, view_id in self.history.lacking if (member, view_id) not in self.history.received}
        for member in [member for member in final if member not in waited]:
            stream = MessageStream(Channel.TOTAL, member, None)
            log = self._log(member)
            held = {message for _, message in log.entries.values()} | log.withdrawn
            told = (tag for address, tag in self.history.repeated if address == member)
            held.update(message for tag in told for message in self.history.appends[tag])
            accepted = self.history.accepted.get(stream, [])
            for place in not_failed(self.history, stream, 0, len(accepted) - 1):
                if accepted[place] not in held:
                    yield Violation("validity", f"{member} never got its own ordered message {place}")
                    break

    def _violate(self, rule: str, what: str) -> None:
        self.violations.append(Violation(rule, what))


def _at(event: DeliveredBatch) -> str:
    return f"{format_ns(event.at)}: {event.receiver} delivers of {event.sender}"


def _brief(entry: LoggedMessage) -> str:
    return f"{entry[1][:40].decode(errors='replace').rstrip('.')!r}"
