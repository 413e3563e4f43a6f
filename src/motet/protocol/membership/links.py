"""What is measured of the network: loss and round trip of each link, from the numbers that heartbeats carry.

    every heartbeat, probe and answer to a peer    -> gets the next number (`beat`) of that link
    a beat with a gap before it                    -> the missing ones count as lost; one that comes later stays lost,
                                                      because nobody can wait for it
    a beat far above the last one                  -> the peer forgot the link and counts anew, from its clock
    the echo of a beat of ours, and how long the
    peer kept it                                   -> a sample of the round trip
    the loss that the peer tells                   -> how much of what we send arrives there

All that waits for a peer waits by these: `missed_by_chance` says how often a living peer stays silent for so long, and
`tries` how often a question has to be repeated until silence is no accident.

Invariants: a share of loss lies between 0 and 1; at most MOST_BEATS beats of a link wait for their echo.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, log

from motet.protocol.core.roundtrip import RoundTrip
from motet.protocol.core.units import MILLISECOND, SECOND

LEAST_LOSS = 0.05  # assumed even where none was seen: it may begin at any moment
MOST_LOSS = 0.95  # more than that no protocol survives, and one that is believed would wait for ever
MOST_GAP = 8  # beats that one gap counts for: a cable that was out for a moment is no lossy link
MOST_BEATS = 64  # of a link that wait for their echo; a jump by more than that begins a new count
LATE_BEATS = 1 << 16  # a beat so far below the highest begins a new count, too: a nonsense number does not stay
BEAT_NS = MILLISECOND  # a count begins at the clock in these units: a later count of the same process is above it
LOSS_SCALE = 1_000  # shares of loss travel as whole thousandths
OWN_WEIGHT, COMMON_WEIGHT = 1 / 8, 1 / 16  # of one beat, in the estimate of its link and in that of all links


class Loss:
    """A moving average of what did not arrive."""

    def __init__(self, weight: float) -> None:
        self.share = 0.0
        self._weight = weight

    def count(self, lost: int) -> None:
        """So many beats were lost, then one arrived."""
        for _ in range(lost):
            self.share += (1 - self.share) * self._weight
        self.share -= self.share * self._weight


def _round_trip() -> RoundTrip:
    return RoundTrip(10 * MILLISECOND, MILLISECOND, 60 * SECOND)


@dataclass(slots=True)
class Link:
    """What we know of the way to one peer and back."""

    loss: Loss = field(default_factory=lambda: Loss(OWN_WEIGHT))  # of what the peer sends
    loss_out: float = 0.0  # of what we send, as the peer tells it
    round_trip: RoundTrip = field(default_factory=_round_trip)
    beat: int = 0  # the last one that we sent
    received: int = 0  # the highest one that arrived
    received_at: int = 0
    has_echo: bool = False  # a round trip was measured
    _sent_at: dict[int, int] = field(default_factory=dict)  # beats whose echo may still come

    @classmethod
    def begun(cls, now: int) -> Link:
        """A link of which nothing is known yet. Its beats are above all that we ever counted for this peer before."""
        return cls(beat=now // BEAT_NS)

    def next_beat(self, now: int) -> int:
        self.beat += 1
        self._sent_at[self.beat] = now
        if len(self._sent_at) > MOST_BEATS:
            del self._sent_at[next(iter(self._sent_at))]
        return self.beat

    def unechoed_ns(self, now: int) -> int:
        """How long ago the oldest beat left that the peer has not confirmed, by its own echo or that of a later one."""
        return now - next(iter(self._sent_at.values()), now)

    def is_late(self, beat: int) -> bool:
        """Whether this beat was overtaken: what it says was true once, and may be no more."""
        return self.received - LATE_BEATS < beat <= self.received

    def arrived(self, beat: int, now: int) -> int | None:
        """How many beats are missing before this one; None for one that says nothing about loss."""
        if self.is_late(beat):
            return None
        is_new_count = not self.received or not self.received < beat <= self.received + MOST_BEATS
        gap = 0 if is_new_count else min(beat - self.received - 1, MOST_GAP)
        self.received, self.received_at = beat, now
        return gap

    def echoed(self, beat: int, echo_delay_ns: int, now: int) -> None:
        sent_at = self._sent_at.get(beat)
        if sent_at is None:
            return
        for earlier in [one for one in self._sent_at if one <= beat]:
            del self._sent_at[earlier]
        self.has_echo = True
        self.round_trip.sample(max(0, now - sent_at - echo_delay_ns))


class Links:
    """All links together: a peer of which little is known is judged by what the others have shown."""

    def __init__(self) -> None:
        self.common = Loss(COMMON_WEIGHT)

    def arrived(self, link: Link, beat: int, now: int) -> None:
        lost = link.arrived(beat, now)
        if lost is not None:
            link.loss.count(lost)
            self.common.count(lost)

    def lost(self, link: Link | None) -> float:
        """The share of a peer's datagrams that do not arrive, as far as one has to fear."""
        share = max(self.common.share, link.loss.share if link is not None else 0.0)
        return min(max(share, LEAST_LOSS), MOST_LOSS)

    def unanswered(self, link: Link | None) -> float:
        """The share of questions to a peer to which no answer arrives: lost there, or on the way back."""
        out = max(self.common.share, link.loss_out if link is not None else 0.0)
        out = min(max(out, LEAST_LOSS), MOST_LOSS)
        return 1 - (1 - self.lost(link)) * (1 - out)


def doubt(share: float) -> float:
    """What one missing datagram says against its sender, where this share is lost by chance: natural logarithms add."""
    return -log(share)


def tries(unanswered: float, chance: float) -> int:
    """So often one has to ask until a living peer stays silent by chance only this seldom."""
    return ceil(log(chance) / log(unanswered))
