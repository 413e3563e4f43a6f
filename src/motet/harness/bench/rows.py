"""The rows of the benchmark: each one a kind of work, and the goal that we set ourselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from motet.errors import ConfigError
from motet.harness.bench.job import Load, MeasurementKind, Order

Metric = Literal["rate", "median", "calls", "seconds", "memory"]
UNITS: dict[Metric, str] = {
    "rate": "messages/s",
    "median": "µs",
    "calls": "calls/s",
    "seconds": "s",
    "memory": "MB",
}
MOST_MEMBERS = 16
RIVAL = "jgroups"  # whom goals name
SPIN = ("spin", "1ms")
IP_MULTICAST = (("transport", "multicast"), ("multicast_interface", "127.0.0.1"), ("multicast_ttl", 0))
LESS_IS_BETTER: frozenset[Metric] = frozenset({"median", "seconds", "memory"})


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    section: str
    title: str
    kind: MeasurementKind
    load: Load
    metric: Metric = "rate"
    rival: str = ""  # the row in which JGroups does the same work, if the run measures it
    goal: float | None = None  # ratio to the row `base`, or to JGroups in `rival`, or the figure itself without both
    base: str = ""  # another row that this one is compared with
    has_peers: bool = False  # what peers are asked to do as well
    is_long: bool = False  # only when asked for by name


def all_rows() -> list[Row]:
    makers = (_fifo, _total, _direct, _loss, _sizes, _latency, _calls, _views, _memory, _growth, _costs, _soak)
    return [row for maker in makers for row in maker()]


def select(patterns: Sequence[str]) -> list[Row]:
    """Rows by name; `fifo` or `fifo-*` means all that begin so. Those that take long must be named."""
    rows = all_rows()
    if not patterns:
        return [row for row in rows if not row.is_long]
    chosen = [row for row in rows if any(_matches(row.name, pattern) for pattern in patterns)]
    unknown = [pattern for pattern in patterns if not any(_matches(row.name, pattern) for row in rows)]
    if unknown:
        raise ConfigError(f"no row is called {unknown[0]}; there are: {', '.join(row.name for row in rows)}")
    return chosen


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern) or name.startswith(f"{pattern}-")


def _bytes(size: int) -> str:
    return f"{size // 1000} kB" if size >= 10_000 else f"{size} B"


def _streams(order: Order, section: str, message_goal: float | None, goals: dict[str, float]) -> Iterator[Row]:
    """Three members; either one that is not the coordinator sends, or all do."""
    for who, senders in (("1", 1), ("all", 3)):
        for size in (100, 1000, 10_000):
            name = f"{order}-{who}-{size}"
            title = f"3 members, {'1 sender' if who == '1' else 'all send'}, {_bytes(size)}"
            load = Load(senders=senders, size=size, order=order)
            rival = name if size < 10_000 else ""
            goal = goals[who] if rival else None
            yield Row(name, section, title, "rate", load, "rate", rival, goal, has_peers=bool(rival))
            if rival:
                yield on_the_loop(Row(name, section, title, "rate", load, "rate", rival, goal))
            if senders == 1 and rival:
                yield by_ip_multicast(Row(name, section, title, "rate", load, "rate", rival, goal))
            single = replace(load, api="message")
            goal = message_goal if rival else None
            row = Row(f"{name}-message", section, f"{title}, one by one", "rate", single, "rate", rival, goal)
            yield from (row, on_the_loop(row)) if rival else (row,)


def on_the_loop(row: Row) -> Row:
    """The row with the protocols on the application's loop, without a thread."""
    load = replace(row.load, has_thread=False)
    return replace(row, name=f"{row.name}-inloop", title=f"{row.title}, thread=False", load=load)


def awake(row: Row) -> Row:
    """The row on the application's loop, which polls for a while before it sleeps."""
    load = replace(row.load, has_thread=False, settings=(*row.load.settings, SPIN))
    return replace(row, name=f"{row.name}-spin", title=f"{row.title}, thread=False, spin=1ms", load=load)


def in_all_modes(row: Row, *, has_peers: bool) -> Iterator[Row]:
    """All modes of a row that measures latency."""
    yield from (replace(row, has_peers=has_peers), on_the_loop(row), awake(row))


def by_ip_multicast(row: Row) -> Row:
    """The row with IP multicast: one datagram reaches all members."""
    load = replace(row.load, settings=(*row.load.settings, *IP_MULTICAST))
    return replace(row, name=f"{row.name}-ip", title=f"{row.title}, IP multicast", load=load)


def _fifo() -> Iterator[Row]:
    yield from _streams("fifo", "FIFO multicast", 0.7, {"1": 1.0, "all": 1.0})


def _total() -> Iterator[Row]:
    yield from _streams("total", "Total order", None, {"1": 1.5, "all": 1.5})


def _direct() -> Iterator[Row]:
    for size in (100, 1000, 10_000):
        load = Load(members=2, size=size, order="direct")
        name, title = f"direct-{size}", f"2 members, {_bytes(size)}"
        rival = name if size < 10_000 else ""
        goal = 0.8 if rival else None
        yield Row(name, "Unicast", title, "rate", load, "rate", rival, goal, has_peers=bool(rival))
        single = replace(load, api="message")
        yield Row(f"{name}-message", "Unicast", f"{title}, one by one", "rate", single, "rate", rival)


def _loss() -> Iterator[Row]:
    """Rows under loss, compared with the same workload without loss."""
    for percent, goal in ((1, 0.5), (10, 0.2)):
        load = Load(size=1000, drop=percent / 100)
        title = f"3 members, 1 sender, 1000 B, {percent} % of received datagrams dropped"
        yield Row(f"loss-{percent}", "Loss", title, "rate", load, "rate", "", goal, "fifo-1-1000")
        ordered = replace(load, order="total")
        name, title = f"loss-{percent}-total", f"{title}, total order"
        yield Row(name, "Loss", title, "rate", ordered, "rate", base="total-1-1000")


def _sizes() -> Iterator[Row]:
    for members in (2, 4):
        for order in _ORDERS:
            for size in (100, 1000):
                load = Load(members=members, senders=members, size=size, order=order)
                title = f"{members} members, all send, {_bytes(size)}, {_called(order)}"
                yield Row(f"members-{members}-{order}-{size}", "Other group sizes", title, "rate", load)


_ORDERS: tuple[Order, ...] = ("fifo", "total")


def _called(order: Order) -> str:
    return {"fifo": "FIFO", "total": "total order", "direct": "unicast"}[order]


def _latency() -> Iterator[Row]:
    for order in _ORDERS:
        for rate in (1000, 100):
            row = Row(
                f"latency-{order}-{rate}",
                "One-way latency, 3 members, 100 B",
                f"{_called(order)}, {rate} messages/s",
                "latency",
                Load(order=order, rate=rate),
                "median",
                f"latency-{order}-{rate}" if rate == 1000 else "",
                500.0 if order == "total" and rate == 100 else None,
            )
            yield from in_all_modes(row, has_peers=rate == 1000)


def _calls() -> Iterator[Row]:
    section = "Request and reply, 2 members"
    for size in (100, 1000):
        title, load = f"{_bytes(size)}, one at a time", Load(members=2, size=size)
        row = Row(f"call-{size}", section, title, "calls", load, "median", f"call-{size}", 1.0)
        yield from in_all_modes(row, has_peers=True)
    load = Load(members=2, callers=100)
    row = Row("callers-100", section, "100 B, 100 callers", "calls", load, "calls", "callers-100")
    yield from (replace(row, has_peers=True), on_the_loop(row))


def _views() -> Iterator[Row]:
    section = "Views, 4 members"
    for name, title, victim in (("kill", "a member", -1), ("kill-coordinator", "the coordinator", 0)):
        load = Load(members=4, victim=victim)
        title = f"`kill -9` of {title} to the new view at all others"
        yield Row(name, section, title, "kill", load, "seconds", goal=1.5)
    title = "heal of 2 + 2 to one merged view at all"
    yield Row("heal", section, title, "heal", Load(members=4), "seconds", goal=4.0)


def _memory() -> Iterator[Row]:
    for order in _ORDERS:
        load = Load(senders=3, size=1000, order=order)
        title = f"largest member, 3 members, all send 1000 B, {_called(order)}"
        yield Row(f"memory-{order}", "Memory", title, "rate", load, "memory", goal=120.0)
    load = Load(senders=1, size=1000, slow_ms=5.0)
    title = "largest member, one slow receiver (5 ms after each batch), 1000 B, FIFO"
    yield Row("memory-slow", "Memory", title, "rate", load, "memory", goal=120.0)
    title = "rate with one slow receiver (5 ms after each batch), 1000 B, FIFO"
    yield Row("slow", "Memory", title, "rate", load)


def _growth() -> Iterator[Row]:
    for order in _ORDERS:
        for members in (2, 4, 8, MOST_MEMBERS):
            load = Load(members=members, size=1000, order=order)
            title = f"{members} members, 1 sender, 1000 B, {_called(order)}"
            row = Row(f"growth-{order}-{members}", "Growth", title, "rate", load)
            yield from (row, by_ip_multicast(row)) if members == MOST_MEMBERS else (row,)


def _costs() -> Iterator[Row]:
    """Rows with a key or a journal, compared with the same workload without."""
    for order in _ORDERS:
        for size in (100, 1000):
            plain = Load(size=size, order=order)
            base = f"{order}-1-{size}"
            title = f"3 members, 1 sender, {_bytes(size)}, {_called(order)}"
            sealed = replace(plain, is_sealed=True)
            yield Row(f"sealed-{order}-{size}", "A key and a journal", f"{title}, key", "rate", sealed, base=base)
            if order == "total":
                kept = replace(plain, is_journaled=True)
                name, about = f"journal-{size}", f"{title}, journal"
                yield Row(name, "A key and a journal", about, "rate", kept, base=base)


def _soak() -> Iterator[Row]:
    load = Load(senders=3, size=1000, order="total")
    title = "3 members, all send 1000 B, total order, ten minutes"
    yield Row("soak", "Soak", title, "rate", load, is_long=True)
