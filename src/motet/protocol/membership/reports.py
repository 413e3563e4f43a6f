"""Which member cannot receive from which: what members report to the coordinator, and whom of two it removes.

    a member cannot receive from another            -> it reports so repeatedly; a pause in that begins a new time
    that has lasted longer than any crash would     -> one of the two has to go: the one from whom more of the
                                                       others cannot receive either, else the junior
    one of the two is suspected by the coordinator  -> it is removed anyway; the other one stays
    the view is without the one who had to go       -> it is quarantined for a while, and for longer the next time

A link that is cut for good would otherwise bring a member in and throw it out every few seconds, and each time is a
view change for all. Whoever stayed in for long starts afresh.

Invariant: reports are of the current view, and no more than one of each ordered pair of members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from motet.protocol.core.identity import Address
from motet.protocol.membership.detector import DetectorConfig

MOST_DOUBLINGS = 3  # 18 seconds with the defaults: so long it may take until a mended link is tried
MOST_QUARANTINED = 1024


@dataclass(frozen=True, slots=True)
class _Quarantine:
    times: int  # that it had to go, one shortly after the other
    until: int


class Reports:
    def __init__(self, local: Address, config: DetectorConfig) -> None:
        self._local = local
        self._lapse_ns = 3 * config.heartbeat_ns  # reported every heartbeat_ns; some may be lost, on a bad network many
        self._least_lapse_ns = self._lapse_ns
        self._grace_ns = config.suspect_ns + config.verify_ns + 2 * config.heartbeat_ns
        self._reported: dict[tuple[Address, Address], tuple[int, int]] = {}  # (by whom, about whom): since, last
        self._chosen: tuple[Address, ...] = ()  # whom we last chose to remove
        self._quarantined: dict[Address, _Quarantine] = {}

    def __len__(self) -> int:
        return len(self._reported)

    def tell(self, reporter: Address, suspect: Address, now: int) -> None:
        since, last = self._reported.get((reporter, suspect), (now, now))
        self._reported[reporter, suspect] = (now if now - last > self._lapse_ns else since, now)

    def chosen(
        self,
        members: Sequence[Address],
        suspects: Collection[Address],
        now: int,
        grace_ns: int = 0,
        lapse_ns: int = 0,
    ) -> tuple[Address, ...]:
        """Whom to remove; never ourselves, who receive from both.

        `grace_ns` and `lapse_ns`: how long a crash may go unnoticed on this network, and a report be missing by
        chance, where that is longer than on a good one.
        """
        grace_ns, self._lapse_ns = max(grace_ns, self._grace_ns), max(lapse_ns, self._least_lapse_ns)
        order = {member: index for index, member in enumerate(members)}
        fresh = {pair: since for pair, (since, last) in self._reported.items() if now - last <= self._lapse_ns}
        open_pairs = {pair: since for pair, since in fresh.items() if not set(pair) & set(suspects)}
        chosen: list[Address] = []
        while any(now - since >= grace_ns for since in open_pairs.values()):
            blamed = Counter(member for pair in open_pairs for member in pair if member != self._local)
            worst = max(blamed, key=lambda member: (blamed[member], order.get(member, 0)))
            chosen.append(worst)
            open_pairs = {pair: since for pair, since in open_pairs.items() if worst not in pair}
        self._chosen = tuple(chosen)
        return self._chosen

    def begin_view(self, members: Sequence[Address], now: int) -> None:
        for member in self._chosen:
            if member not in members:
                self._quarantine(member, now)
        self._reported.clear()
        self._chosen = ()

    def is_quarantined(self, member: Address, now: int) -> bool:
        """Whether no merge with it is tried yet."""
        away = self._quarantined.get(member)
        return away is not None and now < away.until

    def _quarantine(self, member: Address, now: int) -> None:
        before = self._quarantined.pop(member, None)
        is_again = before is not None and now - before.until < 4 * self._wait_ns(before.times)
        times = before.times + 1 if before is not None and is_again else 1
        self._quarantined[member] = _Quarantine(times, now + self._wait_ns(times))
        if len(self._quarantined) > MOST_QUARANTINED:
            del self._quarantined[next(iter(self._quarantined))]

    def _wait_ns(self, times: int) -> int:
        return self._grace_ns << min(times - 1, MOST_DOUBLINGS)
