"""Presets for three kinds of network, with the reason for each value. Other settings have the default of `Config`."""

from __future__ import annotations

from collections.abc import Mapping

from motet.protocol.core.units import MILLISECOND, MINUTE, SECOND

# Processes of one machine: round trips of a tenth of a millisecond, and no loss except in full buffers.
LOCAL: Mapping[str, object] = {
    "frame_bytes": 60_000,  # loopback does not fragment it, and a datagram costs the same work whatever its size
    "socket_buffer_bytes": 16 << 20,  # a window of 256 such frames
    "initial_rtt_ns": MILLISECOND,  # ten times the usual round trip
    "heartbeat_ns": 200 * MILLISECOND,  # an idle member wakes a dozen times a second: half a per cent of a core
    "suspect_ns": 500 * MILLISECOND,  # longer than any hiccup of a scheduler
    "verify_ns": 250 * MILLISECOND,  # half of suspect
    "verify_attempts": 5,
    "suspect_max_ns": 15 * SECOND,  # the formula gives 9 s where half is lost and half of the rest is late
    "discovery_eager_ns": 50 * MILLISECOND,  # members that are started by one script find each other at once
    "discovery_interval_ns": 500 * MILLISECOND,  # there are no real partitions here, only tests of them
    "bootstrap_after_ns": 600 * MILLISECOND,  # longer than one probe interval
    "merge_gather_ns": 50 * MILLISECOND,  # one eager discovery round, after which most members are found
    "merge_leader_timeout_ns": 500 * MILLISECOND,  # as long as one probe interval
    "view_retry_ns": 20 * MILLISECOND,  # some hundred round trips: only frames that were lost are retransmitted
    "view_answer_ns": 250 * MILLISECOND,  # a process that pauses for longer delays all members
    "view_answer_max_ns": 10 * SECOND,  # the formula gives 5 s where half is lost and half of the rest is late
}

# One data centre: round trips below some milliseconds, rare bursts of loss. The defaults say why.
LAN: Mapping[str, object] = {}

# Several sites: round trips of up to half a second, routes that change for a second or two, packets of 1 500 bytes.
WAN: Mapping[str, object] = {
    "frame_bytes": 1_350,  # 1 500 less the headers of IPv6, UDP and a tunnel: IP need not cut it
    "window_frames": 4_096,  # 100 Mbit/s for 400 ms, in frames of 1 350 bytes
    "order_window_frames": 1_024,  # an ordered frame is in flight for two round trips
    "order_in_flight_frames": 4_096,  # a third round trip passes until it is known to be delivered everywhere
    "initial_rtt_ns": 200 * MILLISECOND,  # across an ocean
    "min_repair_ns": 20 * MILLISECOND,  # packets are reordered by that much
    "xmit_interval_ns": 2 * SECOND,  # some round trips: an earlier request would ask for frames that are in flight
    "ack_min_ns": 20 * MILLISECOND,  # a tenth of a round trip
    "ack_max_ns": 100 * MILLISECOND,  # half of a round trip
    "give_up_ns": 2 * MINUTE,  # a route may fail for a minute
    "heartbeat_ns": SECOND,  # two round trips
    "suspect_ns": 5 * SECOND,  # a route that changes is silent for a second or two
    "verify_ns": 3 * SECOND,  # six round trips for an answer
    "verify_attempts": 5,
    "suspect_max_ns": 2 * MINUTE,  # twice what the formula gives where half is lost and half of the rest is late
    "discovery_eager_ns": 500 * MILLISECOND,  # one round trip
    "discovery_interval_ns": 5 * SECOND,  # few datagrams between sites, which delays the notice of a healed partition
    "bootstrap_after_ns": 6 * SECOND,  # longer than one probe interval
    "merge_gather_ns": SECOND,  # two round trips, so that all sites take part in one merge
    "merge_leader_timeout_ns": 5 * SECOND,  # as long as one probe interval
    "view_retry_ns": 500 * MILLISECOND,  # one round trip
    "view_answer_ns": 4 * SECOND,  # eight round trips
    "view_answer_max_ns": MINUTE,  # twice what the formula gives where half of all datagrams are lost
    "order_ask_ns": SECOND,  # a proposal is in flight for one round trip
    "snapshot_timeout_ns": MINUTE,  # a marker and a report per member, over slow links
    "order_progress_ns": 100 * MILLISECOND,  # reporting more often makes nothing stable sooner
    "state_chunk_bytes": 1_200,  # fits into the frame
    "state_window_chunks": 256,  # 300 kB in flight
    "state_retry_ns": 500 * MILLISECOND,  # one round trip
}

PRESETS: Mapping[str, Mapping[str, object]] = {"local": LOCAL, "lan": LAN, "wan": WAN}
DEFAULT_PRESET = "lan"
