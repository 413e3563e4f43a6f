"""The preset `lan` where packets are lost: its frames are 22 packets each, and the group must go on all the same."""

from __future__ import annotations

from contextlib import ExitStack

from tests.runtime.namespaces import lose_packets, packets_lost, places
from tests.runtime.processes import MemberProcess, until_all_have

PORT = 7800
CONFIG = {"preset": "lan", "keys": ["11" * 32]}
MESSAGES = 4_000


def test_three_machines_agree_on_a_log_although_every_tenth_packet_is_lost() -> None:
    with places("abc") as where, ExitStack() as stack:
        seeds = [f"{where[0].host}:{PORT}"]
        processes = [
            stack.enter_context(
                MemberProcess(name, seeds, f"{place.host}:{PORT}", prefix=place.inside(), config=dict(CONFIG))
            )
            for name, place in zip("abc", where, strict=True)
        ]
        for process in processes:
            process.until_view(set("abc"))
        lose_packets(where, 10)

        for process in processes:
            process.send(MESSAGES, f"{process.name}-{'x' * 1_000}-")
        logs = until_all_have(processes, 3 * MESSAGES)

        assert logs[0] == logs[1] == logs[2]
        assert all(packets_lost(place) > 100 for place in where)
        frames = [process.stats()["frames"] for process in processes]
        assert all(frame["path_bytes"] == 1_472 for frame in frames)
        assert any(frame["segment_bytes"] for frame in frames)
