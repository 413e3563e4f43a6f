"""Members on machines of their own, as far as the network can tell: real packets, real loss, a cable that is pulled."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.runtime.namespaces import Loss, Place, places
from tests.runtime.processes import MemberProcess, until_all_have

PORT = 7800
CONFIG = {"keys": ["11" * 32], "frame_bytes": 1_350}  # off loopback a key is asked for; one packet per datagram


def start(stack: ExitStack, name: str, place: Place, seeds: list[str]) -> MemberProcess:
    bind = f"{place.host}:{PORT}"
    return stack.enter_context(MemberProcess(name, seeds, bind, prefix=place.inside(), config=dict(CONFIG)))


def test_three_machines_lose_packets_are_parted_and_merge() -> None:
    with places("abc") as where, ExitStack() as stack:
        seeds = [f"{where[0].host}:{PORT}"]
        processes = [start(stack, name, place, seeds) for name, place in zip("abc", where, strict=True)]
        a, b, c = processes
        for process in processes:
            process.until_view(set("abc"))
        loss = Loss(where)
        if not loss.kind:
            pytest.skip("this machine has neither netem nor nftables nor tbf to lose packets with")

        for process in processes:
            process.send(200, f"{process.name}-{'x' * 1_000}-")
        logs = until_all_have(processes, 600)
        assert logs[0] == logs[1] == logs[2]
        assert loss.lost() > 0

        marks = [len(process.words) for process in processes]
        where[2].unplug()
        a.until_view(set("ab"), marks[0])
        c.until_view(set("c"), marks[2])
        a.send(50, "a-parted-")
        c.send(20, "c-parted-")  # waits until there is a primary view again
        until_all_have([a, b], 650)
        marks = [len(process.words) for process in processes]
        where[2].plug_in()
        for process, mark in zip(processes, marks, strict=True):
            process.until_view(set("abc"), mark)

        logs = until_all_have([a, b], 670)
        assert logs[0] == logs[1]
        payloads = [payload for _, payload in logs[0]]
        for prefix, count in (("a-parted-", 50), ("c-parted-", 20)):
            assert [p for p in payloads if p.startswith(prefix)] == [f"{prefix}{number}" for number in range(count)]
        held = dict(logs[0])
        assert all(held[position] == payload for position, payload in c.report()["log"])
