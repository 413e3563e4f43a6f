"""What an application receives from its group: messages, and the few things that it must know when they happen.

These are the public classes. The protocols have effects of their own, with incarnations and ballots in them; `Group`
makes one of these of each effect that concerns an application.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat
from typing import Literal, NamedTuple

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View

Delivery = Literal["total", "fifo", "direct"]
ORDERS: dict[Channel, Delivery] = {Channel.TOTAL: "total", Channel.MULTICAST: "fifo", Channel.UNICAST: "direct"}


class Message(NamedTuple):
    """One message. A tuple, because there may be a million of them in a second."""

    sender: Address
    payload: bytes
    position: int | None  # in the log; None unless order is "total"
    order: str  # "total", "fifo" (to the group) or "direct" (to us alone)
    key: bytes | None = None

    def __repr__(self) -> str:
        key = "" if self.key is None else f", key={self.key!r}"
        place = "" if self.position is None else f", position={self.position}"
        return f"Message({self.sender.name}: {self.payload!r}{place}, order={self.order!r}{key})"


class Batch(NamedTuple):
    """Messages of one sender that arrived together, in order."""

    sender: Address
    payloads: Sequence[bytes]  # immutable; split out of their frames when you go through them
    position: int | None  # of the first; the others follow it
    order: str
    keys: tuple[bytes, ...] | None = None

    def messages(self) -> Iterator[Message]:
        """The same, one by one."""
        positions = repeat(None) if self.position is None else count(self.position)
        keys = repeat(None) if self.keys is None else self.keys
        fields = zip(repeat(self.sender), self.payloads, positions, repeat(self.order), keys, strict=False)
        return map(_make_message, fields)


_make_message = partial(tuple.__new__, Message)  # without a Python frame per message


@dataclass(frozen=True, slots=True, repr=False)
class ViewInstalled:
    """A new view begins here: all members that are in it see it at the same place between the same messages."""

    view: View
    joined: tuple[Address, ...] = ()  # who is in it and was not in the view before, oldest first
    left: tuple[Address, ...] = ()  # who was in the view before and is not in this one
    subviews: tuple[View, ...] = ()  # the views that were merged into it; empty if it is no merge
    lacking: tuple[Address, ...] = ()  # who does not have the application's state yet
    position: int = 0  # where the log stands when the view begins

    @property
    def members(self) -> tuple[Address, ...]:
        """Who is in, oldest first."""
        return self.view.members

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, in the same order. Names need not be unique; addresses are."""
        return tuple(member.name for member in self.view.members)

    @property
    def coordinator(self) -> Address:
        """The oldest member."""
        return self.view.coordinator

    @property
    def is_primary(self) -> bool:
        """Whether this part of the group may order messages."""
        return self.view.is_primary

    def __repr__(self) -> str:
        told = {"joined": self.joined, "left": self.left}
        changes = (f"; {what} {', '.join(one.name for one in who)}" for what, who in told.items() if who)
        kind = "primary" if self.is_primary else "not primary"
        return f"ViewInstalled({', '.join(self.names)}; {kind}{''.join(changes)}; position={self.position})"


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What was delivered here at these positions, both included, may not be what the group agreed on: forget it."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class StableAdvanced:
    """Every member of the primary view has delivered the log up to `position`: it is never rolled back.

    Comes only to those who join with `stable_events=True`.
    """

    position: int


@dataclass(frozen=True, slots=True)
class SendFailed:
    """Accepted messages are no longer tried: they may or may not have arrived."""

    order: Delivery
    to: Address | None  # the receiver of `send` and `call`; None for a multicast
    first: int  # which of the messages that this member sent there, counted from 1; 0 if that is not known
    last: int
    error: Exception


@dataclass(frozen=True, slots=True)
class StateLost:
    """Nobody in this view has the application's state. All wait for a member that has it, and the log waits with them.

    If nobody can come back with it, `Group.begin_state_anew` makes the state of one member the state of the group.
    """

    view: View
    had_it: bool  # whether this member once had the state, in an earlier primary view


@dataclass(frozen=True, slots=True)
class StateRefused:
    """A holder could not give its state, at that holder and at those who wait for it. The next holder is asked."""

    by: Address
    reason: str


@dataclass(frozen=True, slots=True)
class BlockFailed:
    """A building block of this member raised an exception. Its traceback is in the log of the process.

    The other members' copies have most likely raised the same; where they have not, the copies may now differ.
    """

    block: str
    position: int | None  # of the operation; None when a view was being reported to the block
    sender: Address | None  # who asked for the operation
    error: Exception


Notice = ViewInstalled | RolledBack | StableAdvanced | SendFailed | StateLost | StateRefused | BlockFailed
Event = Message | Notice  # what `async for event in group` gives
BatchEvent = Batch | Notice  # what `group.batches()` gives

__all__ = [
    "Batch",
    "BatchEvent",
    "BlockFailed",
    "Delivery",
    "Event",
    "Message",
    "Notice",
    "RolledBack",
    "SendFailed",
    "StableAdvanced",
    "StateLost",
    "StateRefused",
    "ViewInstalled",
]
