"""The few sizes that several rooms must agree on."""

from __future__ import annotations

MAX_DATAGRAM_BYTES = 65_507  # what fits into one UDP datagram over IPv4
MIN_BODY_BYTES = 64  # no sender makes smaller pieces of a large message, so reassembly holds few of them
RANGE_BYTES = 16  # one span of seqnos in a request
