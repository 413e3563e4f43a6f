"""The result of a snapshot, as JSON for programs and a summary for people: members by name, bytes as base64."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import NOBODY, Address
from motet.protocol.core.trace import trace_name, trace_view
from motet.protocol.core.view import View
from motet.protocol.snapshot.machine import SnapshotTaken
from motet.protocol.wire.snapshot import Report, SnapshotId


@dataclass(frozen=True, slots=True)
class FlyingMessage:
    """One message that its sender's state contains as sent and its receiver's state does not contain as delivered."""

    sender: Address
    receiver: Address | None  # None for a waiting message to the group.
    channel: Channel
    is_waiting: bool  # Its sender had accepted it and not sent it yet.
    index: int  # Its index in the channel, or among the sender's waiting messages.
    port: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """One consistent cut through a group: the state of each member, and the messages that were in flight."""

    id: SnapshotId
    view: View
    reports: Mapping[Address, Report]  # Of every member of the view, oldest first.

    @classmethod
    def of(cls, taken: SnapshotTaken) -> SnapshotResult:
        return cls(taken.snapshot, taken.view, taken.reports)

    def state_of(self, member: Address) -> bytes:
        """The state that the application of this member supplied."""
        return self.reports[member].state

    def in_flight(self) -> Iterator[FlyingMessage]:
        """Every message in flight, once for each receiver that it had not reached."""
        names = {member.incarnation: member for member in self.view.members}
        for member, report in self.reports.items():
            for state in report.channels:
                way = (names[state.sender], member, state.channel, False)
                for index, one in enumerate(state.messages):
                    yield FlyingMessage(*way, index, one.port, one.payload)
            for index, late in enumerate(report.waiting):
                to = names.get(late.to)
                yield FlyingMessage(member, to, late.channel, True, index, late.port, late.payload)

    def name_of(self, incarnation: int) -> str | None:
        """The member's name; None for NOBODY; the incarnation alone for a process outside the view."""
        found = (member for member in self.view.members if member.incarnation == incarnation)
        member = next(found, None)
        return trace_name(member) if member is not None else None if incarnation == NOBODY else f"?#{incarnation:016x}"

    # For people

    def summary(self) -> dict[str, Any]:
        """Counts and sizes, without any payload."""
        flying = list(self.in_flight())
        return {
            "snapshot": str(self.id),
            "view": trace_view(self.view.id),
            "members": len(self.reports),
            "state_bytes": sum(len(report.state) for report in self.reports.values()),
            "in_flight": sum(not one.is_waiting for one in flying),
            "in_flight_bytes": sum(len(one.payload) for one in flying if not one.is_waiting),
            "waiting": sum(one.is_waiting for one in flying),
            "held_back": sum(len(report.held_back) for report in self.reports.values()),
            "position": {trace_name(member): report.position for member, report in self.reports.items()},
        }

    # For programs

    def to_json(self, *, indent: int | None = None) -> str:
        return json.dumps(self.as_dict(), indent=indent)

    def as_dict(self) -> dict[str, Any]:
        return {
            "snapshot": str(self.id),
            "initiator": self.name_of(self.id.initiator),
            "view": {
                "id": trace_view(self.view.id),
                "is_primary": self.view.is_primary,
                "members": [trace_name(member) for member in self.view.members],
            },
            "members": [self._as_dict(member, report) for member, report in self.reports.items()],
        }

    def _as_dict(self, member: Address, report: Report) -> dict[str, Any]:
        return {
            "member": trace_name(member),
            "recorded_at_ns": report.recorded_at,
            "state": _text(report.state),
            "position": report.position,
            "stable": report.stable,
            "windows": self.windows(report),
            "held_back": self.held_back(report),
            "retransmitted": self.retransmitted(report),
            "waiting": [
                {"channel": w.channel.value, "to": self.name_of(w.to), "port": w.port, "payload": _text(w.payload)}
                for w in report.waiting
            ],
            "in_flight": [
                {
                    "channel": state.channel.value,
                    "sender": self.name_of(state.sender),
                    "messages": [{"port": one.port, "payload": _text(one.payload)} for one in state.messages],
                }
                for state in report.channels
            ],
        }

    def windows(self, report: Report) -> list[dict[str, Any]]:
        return [
            {
                "stream": w.kind.value,
                "peer": self.name_of(w.peer),
                "low": w.low,
                "delivered": w.delivered,
                "high": w.high,
            }
            for w in report.windows
        ]

    def retransmitted(self, report: Report) -> list[dict[str, Any]]:
        """The frames that the continuous strategy is resending, and to whom."""
        return [
            {"frame": one.frame, "id": one.id, "to": [self.name_of(to) for to in one.recipients]}
            for one in report.retransmitted
        ]

    def held_back(self, report: Report) -> list[dict[str, Any]]:
        return [
            {
                "sender": self.name_of(held.sender),
                "id": held.id,
                "number": held.number,
                "proposer": held.proposer,
                "is_decided": held.is_decided,
                "size": held.size,
            }
            for held in report.held_back
        ]


def _text(data: bytes) -> str:
    return b64encode(data).decode()
