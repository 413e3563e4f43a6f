"""Who cannot hear whom: what members tell the coordinator, and whom of two it does without.

    a member cannot hear another                    -> it tells so again and again; a pause in that begins a new time
    that has lasted longer than any crash would     -> one of the two has to go: whoever more of the others cannot
                                                       hear either, else the junior
    one of the two is suspected by the coordinator  -> it goes anyway; the other is not to blame
    the view is without the one who had to go       -> it is left alone for a while, and for longer the next time

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
MOST_AWAY = 1024


@dataclass(frozen=True, slots=True)
class _Away:
    times: int  # that it had to go, one shortly after the other
    until: int


class Reports:
    def __init__(self, local: Address, config: DetectorConfig) -> None:
        self._local = local
        self._lapse_ns = 3 * config.heartbeat_ns  # told every heartbeat_ns; some may be lost, on a bad network many
        self._least_lapse_ns = self._lapse_ns
        self._grace_ns = config.suspect_ns + config.verify_ns + 2 * config.heartbeat_ns
        self._told: dict[tuple[Address, Address], tuple[int, int]] = {}  # (who, cannot hear whom): since, last told
        self._chosen: tuple[Address, ...] = ()  # whom we last said to do without
        self._away: dict[Address, _Away] = {}

    def __len__(self) -> int:
        return len(self._told)

    def tell(self, reporter: Address, suspect: Address, now: int) -> None:
        since, last = self._told.get((reporter, suspect), (now, now))
        self._told[reporter, suspect] = (now if now - last > self._lapse_ns else since, now)

    def chosen(
        self,
        members: Sequence[Address],
        suspects: Collection[Address],
        now: int,
        grace_ns: int = 0,
        lapse_ns: int = 0,
    ) -> tuple[Address, ...]:
        """Whom to do without; never ourselves, who hear both.

        `grace_ns` and `lapse_ns`: how long a crash may go unnoticed on this network, and a report be missing by
        chance, where that is longer than on a good one.
        """
        grace_ns, self._lapse_ns = max(grace_ns, self._grace_ns), max(lapse_ns, self._least_lapse_ns)
        order = {member: index for index, member in enumerate(members)}
        fresh = {pair: since for pair, (since, last) in self._told.items() if now - last <= self._lapse_ns}
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
                self._send_away(member, now)
        self._told.clear()
        self._chosen = ()

    def is_away(self, member: Address, now: int) -> bool:
        """Whether it is still to be left alone."""
        away = self._away.get(member)
        return away is not None and now < away.until

    def _send_away(self, member: Address, now: int) -> None:
        before = self._away.pop(member, None)
        is_again = before is not None and now - before.until < 4 * self._wait_ns(before.times)
        times = before.times + 1 if before is not None and is_again else 1
        self._away[member] = _Away(times, now + self._wait_ns(times))
        if len(self._away) > MOST_AWAY:
            del self._away[next(iter(self._away))]

    def _wait_ns(self, times: int) -> int:
        return self._grace_ns << min(times - 1, MOST_DOUBLINGS)
