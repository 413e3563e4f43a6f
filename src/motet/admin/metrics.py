"""A member's figures for Prometheus. They are read at each scrape, and no state is kept between scrapes.

Each sample carries the labels `group` and `member` (its name, not its incarnation: a restart continues the same
series, and `motet_info` distinguishes the incarnations).
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from motet.admin.health import window_fill
from motet.log.service.validated_json import Stats, boolean, integer, number, number_or_none, rows, text, texts
from motet.protocol.core.counters import Count

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# name, meaning, value. Units go last, as Prometheus wants them: seconds and bytes, never milli or kilo.
GAUGES: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("motet_uptime_seconds", "Seconds since this member started.", lambda s: number(s, "uptime_s")),
    ("motet_view_number", "Number of the installed view.", lambda s: number(s, "view", "number")),
    ("motet_view_members", "Members of the installed view.", lambda s: len(rows(s, "view", "members"))),
    (
        "motet_view_primary",
        "1 in a primary view, where total order makes progress.",
        lambda s: boolean(s, "view", "primary"),
    ),
    ("motet_view_coordinator", "1 if this member is the coordinator.", lambda s: _is_coordinator(s)),
    ("motet_state_present", "1 if this member has the group's state.", lambda s: boolean(s, "state", "present")),
    ("motet_state_lost", "1 while no member of the view has the group's state.", lambda s: boolean(s, "state", "lost")),
    (
        "motet_log_position",
        "Position of the last message delivered in total order.",
        lambda s: number(s, "log", "position"),
    ),
    (
        "motet_log_stable_position",
        "Position up to which all members of the view have delivered.",
        lambda s: number(s, "log", "stable"),
    ),
    ("motet_log_first_position", "Oldest position in the journal.", lambda s: number(s, "log", "first")),
    (
        "motet_log_holdback_frames",
        "Frames in the hold-back queue, whose order is not agreed yet.",
        lambda s: number(s, "log", "holdback"),
    ),
    ("motet_log_in_flight_frames", "Own ordered frames in flight.", lambda s: number(s, "log", "in_flight")),
    (
        "motet_multicast_window_fill_ratio",
        "Share of the own send window in use, 0 to 1; 1 is normal under load.",
        window_fill,
    ),
    (
        "motet_multicast_waiting_bytes",
        "Bytes that wait for space in the send window.",
        lambda s: number(s, "multicast", "waiting_bytes"),
    ),
    (
        "motet_segment_bytes",
        "Size of the segments into which large datagrams are cut because packets are lost; 0: they are not cut.",
        lambda s: number(s, "frames", "segment_bytes"),
    ),
    (
        "motet_large_frames_lost_ratio",
        "Share of the large frames sent lately that were requested again.",
        lambda s: number(s, "frames", "lost_share"),
    ),
    (
        "motet_frames_resent_ratio",
        "Share of all frames ever sent that were retransmitted.",
        lambda s: number(s, "frames", "resent_share"),
    ),
    (
        "motet_queue_messages",
        "Messages delivered but not read by the application yet.",
        lambda s: number(s, "queue", "messages"),
    ),
    (
        "motet_queue_bytes",
        "Bytes delivered but not read by the application yet.",
        lambda s: number(s, "queue", "bytes"),
    ),
    (
        "motet_queue_paused",
        "1 while back-pressure of a slow application pauses deliveries.",
        lambda s: boolean(s, "queue", "paused"),
    ),
    ("motet_sent_messages_per_second", "Messages sent per second.", lambda s: number(s, "rates", "sent_per_s")),
    (
        "motet_delivered_messages_per_second",
        "Messages delivered per second.",
        lambda s: number(s, "rates", "delivered_per_s"),
    ),
    ("motet_delivered_bytes_per_second", "Bytes delivered per second.", lambda s: number(s, "rates", "bytes_per_s")),
    ("motet_suspects", "Members that are suspected.", lambda s: len(texts(s, "suspects"))),
    ("motet_busy_members", "Members that are alive but do not run their driver.", lambda s: len(texts(s, "busy"))),
    ("motet_faults", "Injected faults that are active.", lambda s: len(texts(s, "faults"))),
    ("motet_memory_bytes", "Resident memory of the process.", lambda s: number(s, "memory_bytes")),
)
LATENCIES = (("0.5", "median_us"), ("0.99", "p99_us"))


class MemberCollector(Collector):
    def __init__(self, stats: Callable[[], Stats], is_well: Callable[[Stats], bool]) -> None:
        self._stats = stats
        self._is_well = is_well

    def describe(self) -> list[Metric]:
        """Empty, so that registering does not query the member."""
        return []

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        labels = {"group": text(stats, "group"), "member": text(stats, "name")}
        yield _info(stats, labels)
        for name, meaning, value in GAUGES:
            yield _gauge(name, meaning, labels, [({}, float(value(stats)))])
        yield _gauge("motet_healthy", "1 if /health answers 200.", labels, [({}, float(self._is_well(stats)))])
        yield from _per_peer(stats, labels)
        yield _latency(stats, labels)
        lost = number(stats, "lost_datagrams")
        yield _counter(
            "motet_lost_datagrams",
            "Datagrams that the operating system did not accept for sending [repair].",
            labels,
            lost,
        )
        yield _counter("motet_cpu_seconds", "Processor time of the process.", labels, number(stats, "cpu_s"))
        for count in Count:
            yield _counter(f"motet_{count}", f"{count.meaning} [{count.nature}]", labels, _count(stats, count))


def registry_of(stats: Callable[[], Stats], is_well: Callable[[Stats], bool]) -> CollectorRegistry:
    """A separate registry, so that several groups in one process, and the application's own metrics, do not mix."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MemberCollector(stats, is_well))
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)


def _is_coordinator(stats: Stats) -> bool:
    own = text(stats, "member")
    return bool(own) and text(stats, "view", "coordinator") in (own, text(stats, "name"))


def _count(stats: Stats, count: Count) -> int:
    return integer(stats, "counters", count)


def _info(stats: Stats, labels: dict[str, str]) -> Metric:
    family = InfoMetricFamily("motet", "Incarnation, endpoint and version of this member.", labels=list(labels))
    names = ("incarnation", "endpoint", "version")
    family.add_metric(list(labels.values()), {name: text(stats, name) for name in names})
    return family


def _gauge(name: str, meaning: str, labels: dict[str, str], samples: list[tuple[dict[str, str], float]]) -> Metric:
    extra = list(samples[0][0]) if samples else []
    family = GaugeMetricFamily(name, meaning, labels=[*labels, *extra])
    for more, value in samples:
        family.add_metric([*labels.values(), *more.values()], value)
    return family


def _counter(name: str, meaning: str, labels: dict[str, str], value: float) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _per_peer(stats: Stats, labels: dict[str, str]) -> Iterator[Metric]:
    """Per-peer gauges, labelled by name. Two incarnations of one name share a label, which shows the worse value."""
    missing: dict[str, float] = {}
    for row in rows(stats, "multicast", "receivers"):
        name = _name(text(row, "member"))
        missing[name] = max(missing.get(name, 0), number(row, "missing"))
    yield _by_peer("motet_multicast_missing_frames", "Frames missing from the stream of this sender.", labels, missing)
    position = number(stats, "log", "position")
    behind: dict[str, float] = {}
    for row in rows(stats, "peers"):
        name = _name(text(row, "member"))
        behind[name] = max(behind.get(name, 0), position - number(row, "position"))
    yield _by_peer(
        "motet_peer_behind_positions", "Positions by which the log of this peer is behind ours.", labels, behind
    )
    states = Tally(text(row, "state") for row in rows(stats, "unicast"))
    yield _gauge(
        "motet_unicast_connections",
        "Unicast connections by state.",
        labels,
        [({"state": state}, count) for state, count in sorted(states.items())],
    )


def _by_peer(name: str, meaning: str, labels: dict[str, str], values: dict[str, float]) -> Metric:
    return _gauge(name, meaning, labels, [({"peer": peer}, value) for peer, value in sorted(values.items())])


def _name(member: str) -> str:
    return member.rpartition("#")[0] or member


def _latency(stats: Stats, labels: dict[str, str]) -> Metric:
    found = [(quantile, number_or_none(stats, "latency", key)) for quantile, key in LATENCIES]
    return _gauge(
        "motet_delivery_latency_seconds",
        "Latency from multicast to delivery in total order.",
        labels,
        [({"quantile": quantile}, value / 1e6) for quantile, value in found if value is not None],
    )
