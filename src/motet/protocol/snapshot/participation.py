"""One snapshot at one member: from the request for its state until every channel is recorded.

Every member of the view has three channels to this one: unicast, its multicast stream, and its ordered frames. Each is
recorded from the moment at which the local state was requested. Recording of the first two ends with the sender's
marker in them. The third has no marker of its own: the one in the multicast stream names the last ordered frame that
counts (docs/design/snapshot.md).

Invariants: a closed channel records nothing more; `recorded_bytes` counts everything that was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from motet.protocol.core.effects import Channel
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View
from motet.protocol.wire.snapshot import (
    ChannelState,
    HeldBackFrame,
    InFlight,
    Marker,
    Report,
    Retransmitted,
    SnapshotId,
    StreamWindow,
    Waiting,
)

MESSAGE_OVERHEAD = 16  # Counted per message besides its payload, so that empty messages are bounded, too.


@dataclass(frozen=True, slots=True)
class LocalState:
    """The member's own state at the moment at which the application has supplied its state."""

    recorded_at: int = 0  # Wall clock, in nanoseconds.
    position: int = 0
    stable: int = 0
    windows: tuple[StreamWindow, ...] = ()
    held_back: tuple[HeldBackFrame, ...] = ()
    waiting: tuple[Waiting, ...] = ()  # Accepted messages that are in no channel yet, mostly ones to be ordered.
    ordered: int = 0  # Frames to be ordered that were sent in this view.
    talks_to_itself: bool = False  # There is a unicast connection to this member itself.
    retransmitted: tuple[Retransmitted, ...] = ()


class Participation:
    def __init__(self, snapshot: SnapshotId, view: View) -> None:
        self.snapshot = snapshot
        self.view = view
        self.recorded_bytes = 0
        self._state: bytes | None = None
        self._local = LocalState()
        self._open = {(channel, member) for channel in Channel for member in view.members}
        self._in_flight: dict[tuple[Channel, Address], list[InFlight]] = {}
        self._last_ordered: dict[Address, int] = {}  # Per sender, its last ordered frame before its marker.
        self._late = 0  # Messages of the log that were delivered after the request and before the application's answer.

    @property
    def is_supplied(self) -> bool:
        return self._state is not None

    @property
    def is_complete(self) -> bool:
        return self.is_supplied and not self._open

    @property
    def open_channels(self) -> list[tuple[Channel, Address]]:
        return sorted(self._open, key=lambda key: (key[0].value, key[1]))

    def supply(self, state: bytes, local: LocalState, us: Address) -> None:
        # The application's state is that of the request; what was delivered since is recorded as in flight.
        position = max(0, local.position - self._late)
        self._state, self._local = state, replace(local, position=position, stable=min(local.stable, position))
        self.recorded_bytes += len(state) + sum(map(_cost, local.waiting))
        if not local.talks_to_itself:
            self._open.discard((Channel.UNICAST, us))

    def record(self, channel: Channel, sender: Address, port: int, messages: Sequence[bytes], first: int) -> None:
        """Record delivered messages if their channel is open. `first`: for ordered ones, the id of their frame."""
        if channel is Channel.TOTAL and not self.is_supplied:
            self._late += len(messages)
        if (channel, sender) not in self._open:
            return
        if channel is Channel.TOTAL and first > self._last_ordered.get(sender, first):
            return
        taken = [InFlight(port, message) for message in messages]
        self._in_flight.setdefault((channel, sender), []).extend(taken)
        self.recorded_bytes += sum(map(_cost, taken))

    def close(self, channel: Channel, sender: Address, marker: Marker) -> bool:
        """The sender's marker has arrived; False if the channel was closed or has no markers."""
        if channel is Channel.TOTAL or (channel, sender) not in self._open:
            return False
        self._open.remove((channel, sender))
        if channel is Channel.MULTICAST:
            self._last_ordered[sender] = marker.ordered
        return True

    def settle(self, delivered: Mapping[Address, int]) -> None:
        """Close ordered channels that are complete; `delivered` has the last ordered frame of each sender."""
        for sender, last in self._last_ordered.items():
            if delivered.get(sender, 0) >= last:
                self._open.discard((Channel.TOTAL, sender))

    def report(self) -> Report:
        assert self._state is not None, "a report needs the application's state"
        local = self._local
        channels = [
            ChannelState(channel, sender.incarnation, tuple(self._in_flight[channel, sender]))
            for channel, sender in sorted(self._in_flight, key=lambda key: (key[0].value, key[1]))
            if self._in_flight[channel, sender]
        ]
        return Report(
            self.snapshot,
            local.recorded_at,
            self._state,
            local.position,
            local.stable,
            local.windows,
            local.held_back,
            local.waiting,
            tuple(channels),
            local.retransmitted,
        )


def _cost(message: InFlight | Waiting) -> int:
    return len(message.payload) + MESSAGE_OVERHEAD
