"""Reference figures: JGroups 5.6 with its best configuration for each kind of work.

These were measured on a machine like the one that `docs/benchmarks.md` describes (2 cores), medians of three runs; they
are not measured again by `motet bench`. Of a range, the better end is used. Rates are messages
per second delivered at each member, latencies microseconds, the others seconds and megabytes.
"""

from __future__ import annotations

NOTE = "JGroups 5.6, its best configuration per cell, measured earlier on a machine like this one (2 cores)"

JGROUPS: dict[str, float] = {
    "fifo-1-100": 1_450_000,
    "fifo-1-1000": 730_000,
    "fifo-all-100": 1_330_000,
    "fifo-all-1000": 520_000,
    "total-1-100": 500_000,
    "total-1-1000": 300_000,
    "total-all-100": 360_000,
    "total-all-1000": 280_000,
    "direct-100": 2_340_000,
    "direct-1000": 1_070_000,
    "loss-1": 100_000,  # its interval tuned to 20 ms; with its defaults 1 000
    "loss-10": 46_000,  # tuned; with its defaults 400
    "latency": 110,
    "call": 200,
    "callers-100": 45_000,  # calls per second
    "kill": 2.2,
    "heal": 42.0,
    "memory": 400.0,
}
