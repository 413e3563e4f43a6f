"""Evaluates a member's figures: what is normal, what is not, and what to do about it.

Everything here is a pure function of figures, so `/health`, `motet probe` and the dashboard show the same sentences.
Remarks are ordered by severity, the worst first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum, unique

from motet.log.service.validated_json import Stats, boolean, integer, number, rows, text, texts
from motet.protocol.core.counters import Count, Nature

STALLED_AFTER_S = 5  # frames wait and the log has not grown for this long
MUCH_REPAIR = 0.25  # share of retransmitted frames above which the network should be checked
SOME_REPAIR = 0.001
FAR_BEHIND = 1000  # positions; in a busy group members differ by a few hundred at any moment
NEARLY_FULL = 0.95

REMEDY_LOSS = (
    "Run `motet doctor`. The usual cause on one machine is a UDP buffer that is too small; otherwise a busy link."
)


@unique
class Level(StrEnum):
    GOOD = "good"
    NOTE = "note"  # normal, but worth knowing
    WATCH = "watch"  # works, but should be checked
    BAD = "bad"  # does not work


WEIGHT = {level: weight for weight, level in enumerate(Level)}


@dataclass(frozen=True, slots=True)
class Remark:
    level: Level
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.advice}".rstrip()


@dataclass(frozen=True, slots=True)
class Health:
    remarks: tuple[Remark, ...]  # never empty, worst first

    @property
    def level(self) -> Level:
        return self.remarks[0].level

    @property
    def is_well(self) -> bool:
        return self.level is not Level.BAD

    def as_dict(self) -> dict[str, object]:
        return {"level": self.level, "well": self.is_well, "remarks": [asdict(remark) for remark in self.remarks]}


@dataclass(frozen=True, slots=True)
class Growth:
    """How much the counters grew in the last `seconds`; empty without an earlier sample."""

    seconds: float = 0.0
    counts: Mapping[str, int] | None = None

    def of(self, count: Count) -> int:
        return max(0, (self.counts or {}).get(count, 0))

    @classmethod
    def between(cls, before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> Growth:
        return cls(seconds, {name: value - before.get(name, 0) for name, value in after.items()})

    @property
    def repair_share(self) -> float:
        """The share of retransmissions among all frames sent."""
        again = self.of(Count.FRAME_RESENT)
        return again / (again + self.of(Count.FRAME_SENT)) if again else 0.0


class StallDetector:
    """Measures for how long frames have waited without the log growing. A single sample cannot show that."""

    def __init__(self) -> None:
        self._position: int | None = None
        self._since: float | None = None

    def stalled_s(self, stats: Stats, now: float) -> float:
        position = integer(stats, "log", "position")
        if position != self._position or not _waits(stats):
            self._position = position
            self._since = now if _waits(stats) else None
        return 0.0 if self._since is None else now - self._since


def health(stats: Stats, stalled_s: float = 0.0, growth: Growth | None = None) -> Health:
    """Evaluate the figures of one member."""
    return sorted_by_weight([*_remarks(stats, stalled_s, growth or Growth())], _all_is_well(stats))


def sorted_by_weight(remarks: list[Remark], if_none: Remark) -> Health:
    """Order by severity. If nothing is worse than a note, the sentence that all is well comes first."""
    if not any(WEIGHT[remark.level] > WEIGHT[Level.NOTE] for remark in remarks):
        return Health((if_none, *remarks))
    return Health(tuple(sorted(remarks, key=lambda remark: -WEIGHT[remark.level])))


def _remarks(stats: Stats, stalled_s: float, growth: Growth) -> Iterator[Remark]:
    yield from _view_remarks(stats)
    yield from _progress_remarks(stats, stalled_s)
    yield from _repair_remarks(growth)
    yield from _segment_remarks(stats)
    yield from _rejected_remarks(growth)
    yield from _fault_remarks(stats)


def _all_is_well(stats: Stats) -> Remark:
    size = len(rows(stats, "view", "members"))
    return Remark(Level.GOOD, f"All is well: in the primary view of {members(size)}, and nothing is stuck.")


def members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"


def _view_remarks(stats: Stats) -> Iterator[Remark]:
    size = len(rows(stats, "view", "members"))
    if not size:
        yield Remark(
            Level.BAD,
            "This member is in no view yet: discovery has found no member, or the join is still in progress.",
            "Check the seeds, that they run, and that all members have the same group name and key.",
        )
    elif boolean(stats, "state", "lost"):
        yield Remark(
            Level.BAD,
            f"Nobody in the view of {members(size)} has the application's state: the members that had it are down "
            "or unreachable. "
            "Total-order messages wait here until one of them is back.",
            "Bring a member that has the state back. If none can come back, call begin_state_anew() at the member "
            "whose state is to be the group's.",
        )
    elif not boolean(stats, "view", "primary"):
        yield Remark(
            Level.BAD,
            f"The view of {members(size)} is not primary: the majority of the last primary view is in a different "
            "view or down. "
            "Total-order messages wait here and the log does not grow; FIFO multicast, unicast and view changes "
            "continue.",
            "If the network is partitioned, repair it: the views merge by themselves within seconds. If members "
            "are down, "
            "restart them. This member needs nothing.",
        )
    suspects = texts(stats, "suspects")
    if suspects:
        yield Remark(
            Level.WATCH,
            f"Suspected because no datagram arrived for too long: {', '.join(suspects)}. If no member receives "
            "one, the "
            "next view excludes it.",
            "Normal for a few seconds around a crash or a partition; check that process if it repeats.",
        )
    busy = texts(stats, "busy")
    if busy:
        yield Remark(
            Level.WATCH,
            f"Alive but not running its driver: {', '.join(busy)}. Total-order messages wait for it, at most for "
            "the time that the setting busy_max allows.",
            "Check that process for code that holds the GIL, such as a long C call, or for a disk that does not "
            "answer.",
        )


def _progress_remarks(stats: Stats, stalled_s: float) -> Iterator[Remark]:
    is_paused = boolean(stats, "queue", "paused")
    if stalled_s >= STALLED_AFTER_S and boolean(stats, "view", "primary"):
        yield _stalled(stats, stalled_s, is_paused)
    elif is_paused:
        yield Remark(
            Level.WATCH,
            "Back-pressure: the application reads messages more slowly than they arrive; "
            f"{integer(stats, 'queue', 'messages'):,} "
            "wait, and the senders of the group are slowed down to its pace. Nothing is lost.",
            "Read messages in batches, or move slow work off the loop that reads them.",
        )
    if window_fill(stats) >= NEARLY_FULL:
        yield Remark(
            Level.NOTE,
            "The send window is full: this member sends as fast as the slowest receiver accepts. Normal under full "
            "load.",
        )
    yield from _lag_remarks(stats)


def _stalled(stats: Stats, stalled_s: float, is_paused: bool) -> Remark:
    held_back, in_flight = integer(stats, "log", "holdback"), integer(stats, "log", "in_flight")
    waiting = f"{held_back} frames in the hold-back queue, {in_flight} in flight"
    if is_paused:
        return Remark(
            Level.BAD,
            f"The log has not grown for {stalled_s:.0f} s because the application of this member reads no messages.",
            "Check the code that reads the group's events: it blocks or has stopped.",
        )
    return Remark(
        Level.BAD,
        f"The log has not grown for {stalled_s:.0f} s although frames wait ({waiting}).",
        "A member that does not answer is the usual cause; the failure detector removes it from the view. If this "
        "lasts for a minute, probe the other members and find the one whose log does not grow.",
    )


def _lag_remarks(stats: Stats) -> Iterator[Remark]:
    position = integer(stats, "log", "position")
    in_view = {
        text(row, "member") for row in rows(stats, "view", "members")
    }  # members in a different view lag for another reason
    peers = {text(peer, "member"): integer(peer, "position") for peer in rows(stats, "peers")}
    behind = {member: position - theirs for member, theirs in peers.items() if member in in_view}
    late = sorted((lag, name) for name, lag in behind.items() if lag >= FAR_BEHIND)
    if late:
        named = ", ".join(f"{name} by {lag:,}" for lag, name in reversed(late[-3:]))
        yield Remark(
            Level.WATCH,
            f"Behind this member's log: {named} positions. What they miss is not stable yet.",
            "Normal while a member catches up after a join; otherwise its application or its machine is too slow.",
        )


def _repair_remarks(growth: Growth) -> Iterator[Remark]:
    share = growth.repair_share
    if share >= MUCH_REPAIR:
        yield Remark(
            Level.WATCH,
            f"{percent(share)} of frames had to be retransmitted: the network loses many datagrams.",
            REMEDY_LOSS,
        )
    elif share >= SOME_REPAIR:
        yield Remark(
            Level.NOTE,
            f"{percent(share)} of frames were retransmitted. Normal where datagrams are lost; the application "
            "loses nothing.",
        )


def _segment_remarks(stats: Stats) -> Iterator[Remark]:
    mode = text(stats, "frames", "segments")
    if mode in ("", "whole"):
        return
    lost = number(stats, "frames", "lost_share")
    yield Remark(
        Level.NOTE if mode == "light" else Level.WATCH,
        f"Packets are lost on the way to other members, so datagrams larger than a packet leave in segments of "
        f"{integer(stats, 'frames', 'segment_bytes'):,} bytes with parity ({mode}); {percent(lost)} of them were asked "
        "for again since. Nothing is lost for the application; the group is slower.",
        "`motet probe` shows the loss of each link: look for a bad cable, a busy switch or a full tunnel.",
    )


def _rejected_remarks(growth: Growth) -> Iterator[Remark]:
    per_minute = 60 / growth.seconds if growth.seconds else 0
    growing = [count for count in Count if count.nature is Nature.REJECTED and growth.of(count) * per_minute >= 60]
    if growing:
        named = "; ".join(f"{count} +{growth.of(count):,} ({count.meaning})" for count in growing[:3])
        yield Remark(
            Level.WATCH,
            f"Dropped and counted in the last {growth.seconds:.0f} s: {named}",
            "A burst around a restart is normal. If it continues, foreign traffic arrives here: another group on this "
            "port, a wrong key, or an attacker.",
        )


def _fault_remarks(stats: Stats) -> Iterator[Remark]:
    faults = texts(stats, "faults")
    if faults:
        yield Remark(
            Level.NOTE,
            f"Faults are injected at this member: {', '.join(faults)}. They cause part of what you see.",
            "Remove them with `motet probe HOST:PORT fault clear`.",
        )


def percent(share: float) -> str:
    return f"{share * 100:.1f} %" if share < 0.1 else f"{share * 100:.0f} %"


def window_fill(stats: Stats) -> float:
    """How much of this member's own multicast window is in use, 0 to 1."""
    capacity = number(stats, "multicast", "capacity")
    used = number(stats, "multicast", "high") - number(stats, "multicast", "low")
    return min(1.0, max(0.0, used / capacity)) if capacity else 0.0


def _waits(stats: Stats) -> bool:
    return bool(
        integer(stats, "log", "holdback") or integer(stats, "log", "in_flight") or boolean(stats, "queue", "paused")
    )
