"""Checks that a snapshot of the demo is a consistent cut: messages sent are messages received or in flight.

The state of each member has the number of messages that it sent, and that it received from each sender. In a consistent
cut, for every sender and receiver: sent = received + in flight between them + still waiting at the sender.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from motet.api.state import APPLICATION, unpack_parts
from motet.protocol.core.effects import Channel
from motet.protocol.snapshot.result import SnapshotResult


def balance(result: SnapshotResult) -> dict[str, Any]:
    states = {member: json.loads(unpack_parts(result.state_of(member))[APPLICATION]) for member in result.reports}
    in_flight = [one for one in result.in_flight() if one.channel is Channel.TOTAL]
    between = Counter((one.sender, one.receiver) for one in in_flight if not one.is_waiting)
    waiting = Counter(one.sender for one in in_flight if one.is_waiting)
    wrong = [
        f"{receiver.name} of {sender.name}"
        for sender, state_of_sender in states.items()
        for receiver, state in states.items()
        if not _fits(
            state_of_sender["sent"] - state["received"].get(f"{sender.incarnation:016x}", 0),
            between[sender, receiver] + waiting[sender],
            may_lack=state_of_sender["failed"],
        )
    ]
    sent = sum(state["sent"] for state in states.values())
    return {"pairs": len(states) ** 2, "wrong": wrong, "sent": sent, "in_flight": between.total() + waiting.total()}


def _fits(missing: int, in_flight: int, *, may_lack: bool) -> bool:
    """Messages that were rolled back and reported to their sender are missing without being in flight."""
    return missing >= in_flight if may_lack else missing == in_flight
