"""The few sizes that several rooms must agree on."""

from __future__ import annotations

MAX_DATAGRAM_BYTES = 65_507  # what fits into one UDP datagram over IPv4
MIN_BODY_BYTES = 64  # no sender makes smaller pieces of a large message, so reassembly holds few of them
RANGE_BYTES = 16  # one span of seqnos in a request

# Numbers that a peer sends and that somebody computes with. The wire has 64 bits for each; a number above its bound is
# malformed, so that adding to one that was accepted never leaves the 64 bits.
MOST_COUNT = 1 << 62  # seqnos, ids, positions, ballot rounds, view numbers, sequence numbers of the total order
MOST_WALL_NS = (1 << 63) - 1  # a wall clock in nanoseconds; the columns of a log have 63 bits for it

# How far one frame of a peer may move what we know. A bound alone would not do: a member that believed the largest
# number could never use a larger one. To use up the room it takes a million forged view changes, one after the other.
MOST_VIEW_JUMP = 1 << 32  # view numbers: a change of the view every millisecond for seven weeks
MOST_ROUND_JUMP = 1 << 32  # ballot rounds of one view
MOST_POSITION_JUMP = 1 << 42  # messages of the log that others delivered meanwhile: a million a second for 50 days
MOST_NUMBER_JUMP = 1 << 32  # sequence numbers of the total order: frames that others received and we did not
