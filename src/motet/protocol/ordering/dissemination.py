"""The interface of the two dissemination strategies, which carry the messages of `Isis` to all members of a view.

`window_strategy.py` uses the reliable multicast; `continuous_strategy.py` resends plain datagrams, as the ISIS document
does.
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
    """An own frame that is resent until all of `recipients` have acknowledged it."""

    frame: str  # DATA or SEQ
    id: int
    recipients: tuple[Address, ...]


class PlainStream:
    """What total order needs to know of the plain multicast streams. This default stands for no stream at all."""

    @property
    def is_barred(self) -> bool:
        """A snapshot marker waits in the own stream; no ordered frame may be sent before it."""
        return False

    @property
    def sent(self) -> int:
        """The highest seqno sent on the own stream."""
        return 0

    def delivered(self, member: Address) -> int:
        """The highest seqno delivered of the member's stream."""
        return 0


class Dissemination(Protocol):
    sent: int  # Own frames sent in this view.
    delivers_undecided: bool  # True if all survivors of a view hold the same undecided frames after the flush.
    is_fast_path_allowed: bool  # Whether the other members receive this member's proposals, as far as is known.

    def begin_view(self, view: View, isis: Isis, now: int) -> None: ...

    # Bodies for the own multicast stream, and those of the others' streams

    @property
    def is_eager(self) -> bool:
        """The stream should take a body at once."""

    def next_body(self, now: int) -> bytes | None: ...
    def attach(self, body: bytes, now: int) -> bytes: ...
    def take(self, rank: int, ordered: Ordered) -> None: ...

    # Datagrams and time

    def receive(self, source: Address, frame: Frame) -> list[Effect]: ...

    def advance(self, now: int) -> None:
        """Make progress; called after every input."""

    def outgoing(self) -> list[Effect]:
        """The effects of that progress."""

    def tick(self, now: int) -> list[Effect]: ...
    def next_deadline(self) -> int | None: ...

    # A flush

    def freeze(self) -> None: ...
    def thaw(self) -> None: ...

    def agreed(self) -> AgreedNumbers:
        """Agreed sequence numbers that this member knows and others of the view may not."""

    def conclude(self, isis: Isis, rest: Iterable[tuple[Address, Ordered]], agreed: AgreedNumbers) -> None:
        """Bring `isis` to the state that all survivors share: apply the rest of the streams and all agreed numbers."""

    def end_view(self, *, log_continues: bool) -> list[Effect]:
        """Settle own frames that are in flight: they are resent in the next view, or reported as failed."""

    def retransmissions(self) -> list[Retransmission]:
        """Frames that this strategy resends by itself; none where the reliable multicast does that."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def _check(self) -> None: ...
