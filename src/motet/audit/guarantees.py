"""The names of the guarantees that an audit checks, and the statement of each."""

from __future__ import annotations

INTEGRITY = "integrity"
NO_DUPLICATES = "no duplicates"
FIFO = "fifo"
TOTAL_ORDER = "total order"
AGREEMENT = "agreement"
VIRTUAL_SYNCHRONY = "virtual synchrony"
NO_GAPS = "no gaps"
STABILITY = "stability"
SNAPSHOTS = "snapshots"

MEANING = {
    INTEGRITY: "nothing was delivered that was not sent",
    NO_DUPLICATES: "nothing was delivered twice",
    FIFO: "each sender's messages in the order it sent them",
    TOTAL_ORDER: "the same position is the same message at every member",
    AGREEMENT: "what one member delivered, every member delivered",
    VIRTUAL_SYNCHRONY: "members that went from one view to the next together delivered the same in the first",
    NO_GAPS: "every position from a journal's first to its last is there",
    STABILITY: "what was stable was never rolled back",
    SNAPSHOTS: "snapshots are consistent cuts",
}
CHECKS = tuple(MEANING)
