"""Whether a snapshot of the demo is one consistent cut: what was said is what was heard and what was under way.

Each member's state says how many messages it sent and how many it heard of everybody. In a consistent cut, for every
pair of a speaker and a listener: sent = heard + in flight between them + still waiting at the speaker.
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
        f"{listener.name} of {speaker.name}"
        for speaker, said in states.items()
        for listener, state in states.items()
        if not _fits(
            said["sent"] - state["received"].get(f"{speaker.incarnation:016x}", 0),
            between[speaker, listener] + waiting[speaker],
            may_lack=said["failed"],
        )
    ]
    sent = sum(state["sent"] for state in states.values())
    return {"pairs": len(states) ** 2, "wrong": wrong, "sent": sent, "in_flight": between.total() + waiting.total()}


def _fits(missing: int, in_flight: int, *, may_lack: bool) -> bool:
    """Where messages were taken back, and their sender told so, they are missing and not under way."""
    return missing >= in_flight if may_lack else missing == in_flight
