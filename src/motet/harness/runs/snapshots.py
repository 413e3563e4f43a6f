"""A snapshot as text: the state of each member, and the messages in flight on each channel."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

from motet.harness.runs.work import IDENTITY_BYTES, describe_entry
from motet.protocol.wire.body import Port

SHOWN = 6  # of a list; the JSON form has all of it


def snapshot_lines(snapshot: dict[str, Any]) -> Iterator[str]:
    """`snapshot`: as `SnapshotResult.as_dict` makes it."""
    view = snapshot["view"]
    members = ", ".join(map(short, view["members"]))
    yield f"Snapshot {snapshot['snapshot']} by {short(snapshot['initiator'])} in view {view['id']} of {members}"
    for member in snapshot["members"]:
        yield from _member_lines(member)
    flying = [line for member in snapshot["members"] for line in _channel_lines(member)]
    yield "in flight:" if flying else "in flight: nothing, every channel was empty"
    yield from flying


def is_one_cut(snapshot: dict[str, Any]) -> bool:
    """Whether the snapshot is one cut: messages delivered at a member plus those in flight to it are all messages sent
    before the cut, so their number must be equal at all members.
    """
    return len({member["position"] + _ordered(member) for member in snapshot["members"]}) == 1


def _ordered(member: dict[str, Any]) -> int:
    return sum(len(channel["messages"]) for channel in member["in_flight"] if channel["channel"] == "total")


def _member_lines(member: dict[str, Any]) -> Iterator[str]:
    yield f"{short(member['member'])}: position {member['position']}, stable {member['stable']}"
    for window in member["windows"]:
        span = f"low {window['low']}, delivered {window['delivered']}, high {window['high']}"
        yield f"  window {window['stream']} {short(window['peer'])}: {span}"
    held = [_held_back(one) for one in member["held_back"]]
    yield f"  hold-back queue: {len(held)} frames" + _listed(held)
    sent = [f"{one['frame']} {one['id']} to {', '.join(map(short, one['to']))}" for one in member["retransmitted"]]
    yield f"  still retransmitted: {len(sent)} frames" + _listed(sent)
    waiting = [_content(one) for one in member["waiting"]]
    yield f"  accepted and not sent: {len(waiting)} messages" + _listed(waiting)


def _held_back(one: dict[str, Any]) -> str:
    state = "agreed" if one["is_decided"] else "proposed"
    return f"{short(one['sender'])}/{one['id']} {state} {one['number']}"


def _channel_lines(member: dict[str, Any]) -> Iterator[str]:
    for channel in member["in_flight"]:
        contents = [_content(one) for one in channel["messages"]]
        way = f"{short(channel['sender'])} -> {short(member['member'])} ({channel['channel']})"
        yield f"  {way}: {len(contents)} messages" + _listed(contents)


def _content(message: dict[str, Any]) -> str:
    payload = b64decode(message["payload"])
    if message["port"] != Port.APP or len(payload) < IDENTITY_BYTES:
        return f"{len(payload)} bytes"
    return describe_entry(int.from_bytes(payload[:IDENTITY_BYTES], "little"))


def _listed(items: Sequence[str]) -> str:
    if not items:
        return ""
    more = f"; {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ": " + "; ".join(items[:SHOWN]) + more


def short(name: str | None) -> str:
    """A member without its incarnation."""
    return "nobody" if name is None else name.partition("#")[0]
