"""The status of a member and the conditions it waits for; taken on the driver's loop, for observers of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from motet.protocol.core.identity import Address
from motet.protocol.member import Member
from motet.protocol.ordering import TotalOrder


@dataclass(frozen=True, slots=True)
class MemberStatus:
    view: str
    view_members: tuple[str, ...]
    is_primary: bool
    position: int
    stable: int
    held_back: int  # frames in the hold-back queue
    is_drained: bool  # none of its own messages waits or is in flight
    waits_for: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, member: Member) -> MemberStatus:
        ordering, view = member.channel.ordering, member.view
        assert ordering is not None
        return cls(
            str(view.id),
            tuple(each.name for each in view.members),
            view.is_primary,
            ordering.position,
            ordering.stable,
            len(ordering.queue),
            ordering.is_drained and member.multicast.sender.is_drained,
            tuple(_waits_for(member, ordering)),
        )


def _waits_for(member: Member, ordering: TotalOrder) -> Iterator[str]:
    membership = member.membership
    if not member.view.is_primary:
        yield "a primary view"
    if not membership.is_settled:
        yield "the end of a view change"
    if membership.is_waiting_for_state:
        yield "the application's state"
    if suspects := ", ".join(sorted(suspect.name for suspect in membership.suspects)):
        yield f"a heartbeat of {suspects}"
    yield from _frames(member)
    yield from _order(ordering)
    if ordering.position > ordering.stable:
        yield f"all others to deliver position {ordering.position}"


def _frames(member: Member) -> Iterator[str]:
    for other in member.view.members:
        receiver = member.multicast.receiver(other)
        if receiver is not None and receiver.window.high > receiver.window.contiguous:
            window = receiver.window
            yield f"frames {window.contiguous + 1} to {window.high} of {other.name}'s stream"


def _order(ordering: TotalOrder) -> Iterator[str]:
    for other, (first, last) in ordering.unproposed().items():
        yield f"proposals of {other.name} for its own frames {first} to {last}"
    undecided = sorted((one for one in ordering.queue if not one.is_decided), key=lambda one: one.key)
    if undecided:
        head = undecided[0]
        sender: Address = ordering.members[head.sender]
        yield f"the agreed sequence number of frame {head.id} of {sender.name}"
    for sending in ordering.retransmissions()[:1]:
        to = ", ".join(recipient.name for recipient in sending.recipients)
        yield f"{to} to acknowledge {sending.frame} {sending.id}"
