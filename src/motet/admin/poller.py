"""Polls the other members for their figures, at most once per interval however many dashboards are open.

Bounds: at most MOST_ASKED members are polled, each for at most `timeout_s`; one that has not answered for FORGET_S is
dropped. Members that have left the view are polled for that long, so that a dashboard shows both sides of a partition.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from motet.admin.client import AdminClient, parse_endpoint
from motet.admin.health import Growth, Health, StallDetector, health
from motet.admin.overview import Json, Seen, overview
from motet.errors import MotetError
from motet.log.service.validated_json import Stats, counters, number, number_or_none, rows, text

MOST_ASKED = 32
WORKERS = 16
PEER_BACKOFF_S = 2.0  # pause before a silent member is polled again: each would delay the overview by a timeout
FORGET_S = 300.0
TREND_S = 10.0  # period over which rates are computed
MOST_PEER_BYTES = 1 << 20
HISTORY_S = 120  # period of samples that a newly opened dashboard can plot


@dataclass(slots=True)
class _PolledPeer:
    admin: str
    name: str
    answered_at: float
    ask_at: float = 0.0  # not before


class Poller:
    def __init__(
        self,
        stats: Callable[[], Stats],
        *,
        read_token: str | None = None,
        interval_s: float = 1.0,
        timeout_s: float = 0.5,
    ) -> None:
        self._stats = stats
        self._read_token = read_token
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._stall_detector = StallDetector()
        self._own_trend: deque[tuple[float, dict[str, int]]] = deque()
        self._trends: dict[str, deque[tuple[float, dict[str, int]]]] = {}
        self._peers: dict[str, _PolledPeer] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._made_at = float("-inf")
        self._made: Json = {}
        self._history: deque[Json] = deque(maxlen=HISTORY_S)
        self._health_lock = threading.Lock()

    def health(self) -> tuple[Stats, Health]:
        """The health of this member alone; never waits for another."""
        stats = self._stats()
        return stats, self.evaluate(stats)

    def evaluate(self, stats: Stats) -> Health:
        now = time.monotonic()
        with self._health_lock:
            growth = _grown(self._own_trend, counters(stats), now)
            return health(stats, self._stall_detector.stalled_s(stats, now), growth)

    def overview(self) -> Json:
        with self._lock:
            if time.monotonic() - self._made_at >= self._interval_s * 0.9:
                self._made = overview(self._poll())
                self._made_at = time.monotonic()
                self._history.append(_sample(self._made))
            return self._made

    def history(self) -> list[Json]:
        return list(self._history.copy())  # copied first, because another thread may append meanwhile

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def _poll(self) -> Seen:
        own, now = self._stats(), time.monotonic()
        others = self._poll_peers(own, now)
        answers = {text(own, "member"): own, **others}
        growth = {member: self._growth(member, stats, now) for member, stats in answers.items()}
        in_view = {text(row, "member") for row in rows(own, "view", "members")}
        lost = {m: peer.name for m, peer in self._peers.items() if m not in answers and m not in in_view}
        with self._health_lock:
            stalled_s = self._stall_detector.stalled_s(own, now)
        return Seen(own, others, lost, growth, stalled_s, time.time())

    def _poll_peers(self, own: Stats, now: float) -> dict[str, Stats]:
        self._learn_peers(own, now)
        asked = [item for item in self._peers.items() if now >= item[1].ask_at][:MOST_ASKED]
        if not asked:
            return {}
        if self._pool is None:
            self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="motet-admin-ask")
        answers = list(self._pool.map(lambda item: self._poll_peer(item[1].admin), asked))
        others: dict[str, Stats] = {}
        for (member, peer), stats in zip(asked, answers, strict=True):
            peer.ask_at = now + PEER_BACKOFF_S if stats is None else 0.0
            self._take(member, stats, text(own, "member"), text(own, "group"), now, others)
        return others

    def _learn_peers(self, own: Stats, now: float) -> None:
        names = {text(row, "member"): text(row, "name") for row in rows(own, "view", "members")}
        for row in rows(own, "peers"):
            member, admin = text(row, "member"), text(row, "admin")
            if member and admin and member != text(own, "member"):
                known = self._peers.setdefault(member, _PolledPeer(admin, names.get(member) or member, now))
                known.admin = admin
        gone = [member for member, peer in self._peers.items() if now - peer.answered_at > FORGET_S]
        for member in gone:
            del self._peers[member]
            self._trends.pop(member, None)

    def _poll_peer(self, admin: str) -> Stats | None:
        try:
            client = AdminClient(parse_endpoint(admin), self._read_token, MOST_PEER_BYTES)
            return client.stats(self._timeout_s)
        except (MotetError, ValueError):
            return None

    def _take(
        self, member: str, stats: Stats | None, own: str, group: str, now: float, others: dict[str, Stats]
    ) -> None:
        """Record an answer. A restarted process answers at the same address, and replaces its old incarnation."""
        if stats is None or text(stats, "group") != group:
            return
        answered = text(stats, "member")
        if answered == own or not answered:
            return
        peer = self._peers[member]
        if answered != member:
            del self._peers[member]
            self._trends.pop(member, None)
            peer = self._peers.setdefault(answered, _PolledPeer(peer.admin, text(stats, "name"), now))
        peer.answered_at = now
        peer.name = text(stats, "name") or answered
        others[answered] = stats

    def _growth(self, member: str, stats: Stats, now: float) -> Growth:
        return _grown(self._trends.setdefault(member, deque()), counters(stats), now)


def _sample(made: Json) -> Json:
    members = {text(row, "member"): _plotted(row) for row in rows(made, "members") if "rates" in row}
    return {"at": made["at"], "members": members}


def _plotted(row: Stats) -> Json:
    return {
        "delivered": number(row, "rates", "delivered_per_s"),
        "median": number_or_none(row, "latency", "median_us"),
        "p99": number_or_none(row, "latency", "p99_us"),
        "repairs": number(row, "repair_share"),
        "holdback": number(row, "holdback"),
    }


def _grown(trend: deque[tuple[float, dict[str, int]]], counts: dict[str, int], now: float) -> Growth:
    """The growth since the oldest sample, about TREND_S ago."""
    if not trend or now - trend[-1][0] >= 0.5:  # frequent calls must not push the older samples out
        trend.append((now, counts))
    while len(trend) > 2 and now - trend[1][0] >= TREND_S:
        trend.popleft()
    then, before = trend[0]
    return Growth.between(before, counts, now - then) if now > then else Growth()
