"""What the two carriers of total order have in common: they bring the messages of `Isis` to all members of a view.

`window_strategy.py` rides on the reliable multicast, `continuous_strategy.py` is the seed's sender on plain datagrams.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from motet.protocol.core.effects import Effect, Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View
from motet.protocol.ordering.isis import Isis
from motet.protocol.wire.frames import AgreedNumbers
from motet.protocol.wire.ordered import Ordered


class Retransmission(NamedTuple):
    """A frame of ours that is sent again until all of these have acknowledged it."""

    frame: str  # DATA or SEQ
    id: int
    recipients: tuple[Address, ...]


class PlainStream:
    """The multicast stream beside us, as far as it concerns us. By itself: there is none."""

    @property
    def is_barred(self) -> bool:
        """Something waits in our stream that must go out before anything else is ordered."""
        return False

    @property
    def sent(self) -> int:
        """How far we have sent ours."""
        return 0

    def delivered(self, member: Address) -> int:
        """How far we have delivered the stream of a member."""
        return 0


class Dissemination(Protocol):
    sent: int  # frames of ours in this view
    delivers_undecided: bool  # all who end a view together hold the same undecided frames
    is_fast_path_allowed: bool  # the others get what we propose, as far as they have told us

    def begin_view(self, view: View, isis: Isis, now: int) -> None: ...

    # Our multicast stream takes bodies from us, and brings those of others

    @property
    def is_eager(self) -> bool:
        """There is something for the stream to take."""

    def next_body(self, now: int) -> bytes | None: ...
    def attach(self, body: bytes, now: int) -> bytes: ...
    def take(self, rank: int, ordered: Ordered) -> None: ...

    # Datagrams and time

    def receive(self, source: Address, frame: Frame) -> list[Effect]: ...

    def advance(self, now: int) -> None:
        """After every input: do what has become possible."""

    def outgoing(self) -> list[Effect]:
        """What has to be sent because of that."""

    def tick(self, now: int) -> list[Effect]: ...
    def next_deadline(self) -> int | None: ...

    # The end of a view

    def freeze(self) -> None: ...
    def thaw(self) -> None: ...

    def agreed(self) -> AgreedNumbers:
        """Numbers that we know and others of the view may not."""

    def conclude(self, isis: Isis, rest: Iterable[tuple[Address, Ordered]], agreed: AgreedNumbers) -> None:
        """Bring `isis` to where all who end the view are: with the rest of the streams, and what any of them knew."""

    def end_view(self, *, log_continues: bool) -> list[Effect]:
        """Settle what was under way of ours."""

    def retransmissions(self) -> list[Retransmission]:
        """What this sender repeats by itself; empty where the reliable multicast does that."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def _check(self) -> None: ...
