"""The sizes and bounds that several packages must agree on."""

from __future__ import annotations

MAX_DATAGRAM_BYTES = 65_507  # The largest payload of a UDP datagram over IPv4.
MIN_PACKET_BYTES = 548  # IPv4 carries so many bytes of UDP on every path; the largest datagram has 124 such segments.
MIN_BODY_BYTES = 64  # The smallest fragment that a sender makes; it bounds how many fragments a message has.
RANGE_BYTES = 16  # The encoded size of one range of seqnos in a request.

# Bounds on integers that a peer sends and that take part in arithmetic. The wire has 64 bits for each; a larger value
# is malformed, so that arithmetic on an accepted value stays within 64 bits.
MOST_COUNT = 1 << 62  # Seqnos, ids, positions, ballot rounds, view numbers and agreed sequence numbers.
MOST_WALL_NS = (1 << 63) - 1  # A wall clock in nanoseconds; the log's columns are signed 64-bit integers.

# How far one frame of a peer may advance local state. The bounds above are not enough: a member that accepted the
# largest value could never use a larger one. With these, it takes a million forged view changes to exhaust a range.
MOST_VIEW_JUMP = 1 << 32  # View numbers: a view change every millisecond for seven weeks.
MOST_ROUND_JUMP = 1 << 32  # Ballot rounds within one view.
MOST_POSITION_JUMP = 1 << 42  # Log positions: a million messages a second for 50 days.
MOST_NUMBER_JUMP = 1 << 32  # Agreed sequence numbers: frames that others have received and this member has not.
