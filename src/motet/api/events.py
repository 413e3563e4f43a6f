"""What an application sees of its group: messages, views, and the few things that it must know when they happen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, repeat
from typing import NamedTuple

from motet.protocol.core.effects import Channel, SendFailed
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View
from motet.protocol.membership.engine import ViewInstalled
from motet.protocol.membership.transfer import StateLost, StateRefused
from motet.protocol.ordering import RolledBack, StableAdvanced

ORDERS = {Channel.TOTAL: "total", Channel.MULTICAST: "fifo", Channel.UNICAST: "direct"}


class Message(NamedTuple):
    """One message. A tuple, because there may be a million of them in a second."""

    sender: Address
    payload: bytes
    position: int | None  # in the log; None unless order is "total"
    order: str  # "total", "fifo" (to the group) or "direct" (to us alone)
    key: bytes | None = None


class Batch(NamedTuple):
    """Messages of one sender that arrived together, in order."""

    sender: Address
    payloads: Sequence[bytes]  # immutable; split out of their frames when you go through them
    position: int | None  # of the first; the others follow it
    order: str
    keys: tuple[bytes, ...] | None = None

    def messages(self) -> Iterator[Message]:
        positions = repeat(None) if self.position is None else count(self.position)
        keys = repeat(None) if self.keys is None else self.keys
        fields = zip(repeat(self.sender), self.payloads, positions, repeat(self.order), keys, strict=False)
        return map(_make_message, fields)


_make_message = partial(tuple.__new__, Message)  # without a Python frame per message

Notice = ViewInstalled | RolledBack | StableAdvanced | SendFailed | StateLost | StateRefused
Event = Message | Notice
BatchEvent = Batch | Notice

__all__ = ["Address", "Batch", "BatchEvent", "Event", "Message", "Notice", "View"]
