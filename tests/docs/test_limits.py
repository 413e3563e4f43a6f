"""The page of limits has the numbers that the code has."""

from __future__ import annotations

from typing import Any

import pytest

from motet.admin import poller, server
from motet.admin.server import AdminConfig
from motet.api import block_registry, calls, keys, send_queues, sync
from motet.api.blocks import dictionary, lock, values
from motet.config import Config
from motet.log.journal import owner, recovery, state
from motet.log.service import requests, streams
from motet.log.service.flight import ServiceLimits
from motet.protocol.core import identity, limits
from motet.protocol.membership.discovery import DiscoveryConfig
from motet.protocol.ordering import producers
from motet.protocol.unicast import UnicastConfig
from motet.protocol.wire import body, seal
from motet.runtime import faults, trace, transport
from tests.docs.pages import DOCS

PAGE = (DOCS / "limits.md").read_text(encoding="utf-8")
MIB = 1 << 20
TOLD = [  # the number, as the page writes it, and the row in which it stands
    (body.MAX_MESSAGE_BYTES, 64 * MIB, "| one message | 64 MiB |"),
    (keys.MOST_KEY_BYTES, 65_535, "| key of a message | 65 535 B |"),
    (limits.MAX_DATAGRAM_BYTES, 65_507, "at most 65 507 B"),
    (identity.MOST_TEXT_BYTES, 255, "| name of a member, host | 255 B each |"),
    (block_registry.MOST_NAME_BYTES, 255, "| name of a block | 255 B |"),
    (DiscoveryConfig().most_known, 1_024, "discovery | 1 024;"),
    (DiscoveryConfig().most_contacts, 64, "64 are asked in a round"),
    (UnicastConfig().max_peers, 1_024, "| unicast connections | 1 024 in each direction |"),
    (seal.MOST_KEYS, 8, "| keys held at once | 8 |"),
    (producers.MOST_PRODUCERS, 256, "remembered | 256 per group"),
    (state.MOST_PRODUCERS, 256, "remembered | 256 per group"),
    (owner.MOST_INCARNATIONS, 256, "| incarnations of one process that its journal records | 256 |"),
    (send_queues.SEND_QUEUE_BYTES, 2 * MIB, "application's loop | 2 MiB |"),
    (sync.MOST_WAITING, 64, "synchronous script has not taken | 64 |"),
    (transport.MOST_WAITING, 4_096, "the system does not take | 4 096 |"),
    (calls.MOST_RUNNING, 4_096, "a handler works on | 4 096 |"),
    (block_registry.MOST_EARLY_BYTES, 16 * MIB, "before the block is made | 16 MiB, 1 024 names |"),
    (block_registry.MOST_EARLY_NAMES, 1_024, "before the block is made | 16 MiB, 1 024 names |"),
    (trace.MOST_WAITING, 100_000, "the disk does not take | 100 000 |"),
    (faults.MOST_RULES, 64, "64 rules, 10 000 datagrams, 64 MiB"),
    (faults.MOST_DELAYED, 10_000, "64 rules, 10 000 datagrams, 64 MiB"),
    (faults.MOST_DELAYED_BYTES, 64 * MIB, "64 rules, 10 000 datagrams, 64 MiB"),
    (dictionary.MOST_BYTES, 256 * MIB, "| `ReplicatedDict` | 256 MiB with 64 B per entry, keys of 4 096 B"),
    (dictionary.ENTRY_BYTES, 64, "with 64 B per entry"),
    (dictionary.MOST_KEY_BYTES, 4_096, "keys of 4 096 B"),
    (values.MOST_DEPTH, 64, "values nested 64 deep"),
    (values.MOST_INT_BITS, 4_096, "integers of 4 096 bits"),
    (lock.MOST_WAITING, 4_096, "| `Lock` | 4 096 in the line |"),
    (recovery.MOST_SCANNED, 8, "| segments that are read at opening | 8;"),
    (requests.MOST_BATCH_ROWS, 200_000, "200 000 rows or 16 MiB"),
    (streams.MOST_BATCH_BYTES, 16 * MIB, "200 000 rows or 16 MiB"),
    (ServiceLimits().followers, 64, "| followers, reads, appends at once | 64 each |"),
    (AdminConfig().most_connections, 64, "| admin connections, open dashboards | 64, 16 |"),
    (AdminConfig().most_listeners, 16, "| admin connections, open dashboards | 64, 16 |"),
    (server.RESERVE, 8, "| admin connections kept for `/health` and `/metrics` | 8 |"),
    (poller.MOST_ASKED, 32, "| members that a dashboard asks | 32 |"),
    (Config.local().frame_bytes, 60_000, "60 000 B (`local`)"),
    (Config.lan().frame_bytes, 32_000, "32 000 B (`lan`)"),
    (Config.wan().frame_bytes, 1_350, "1 350 B (`wan`)"),
    (Config().backlog_bytes, 32 * MIB, "`backlog_bytes` (32 MiB)"),
    (Config().window_frames, 256, "`window_frames` (256; `wan` 4 096)"),
    (Config.wan().window_frames, 4_096, "`window_frames` (256; `wan` 4 096)"),
    (Config().order_window_frames, 256, "`order_window_frames` (256; `wan` 1 024)"),
    (Config().order_in_flight_frames, 1_024, "`order_in_flight_frames` (1 024; `wan` 4 096)"),
    (Config().queue_bytes, 32 * MIB, "`queue_bytes` (32 MiB)"),
    (Config().state_buffer_bytes, 64 * MIB, "`state_buffer_bytes` (64 MiB)"),
    (Config().journal_segment_bytes, 64 * MIB, "`journal_segment_bytes` (64 MiB)"),
]


@pytest.mark.parametrize(("is_now", "told", "words"), TOLD, ids=lambda value: str(value)[:30])
def test_the_page_has_the_number_of_the_code(is_now: int, told: int, words: str) -> None:
    assert words in PAGE
    assert is_now == told, f"change it in docs/limits.md, too: {words}"


@pytest.mark.parametrize(("preset", "seconds"), [("local", "0.75 s"), ("lan", "1.75 s"), ("wan", "8 s")])
def test_how_long_a_silent_member_stops_the_log(preset: Any, seconds: str) -> None:
    config = Config.load(None, {}, preset=preset)
    assert (config.suspect_ns + config.verify_ns) / 1e9 == float(seconds.removesuffix(" s"))
    assert f"{seconds} with `{preset}`" in PAGE
