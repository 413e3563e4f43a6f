"""Real processes over UDP on loopback, with real kills and faults on purpose."""

from __future__ import annotations

from contextlib import ExitStack

from tests.runtime.processes import MemberProcess, until_all_have


def test_five_members_under_loss_a_kill_a_restart_a_partition_and_a_merge() -> None:
    """All who survive deliver one sequence; what the senders that live sent is in it, in their order, once."""
    with ExitStack() as stack:
        processes: dict[str, MemberProcess] = {}
        seeds: list[str] = []

        def start(name: str, bind: str = "127.0.0.1:0") -> MemberProcess:
            processes[name] = stack.enter_context(MemberProcess(name, seeds, bind))
            return processes[name]

        seeds.append(start("a").endpoint)
        for name in "bcde":
            start(name)
        for process in processes.values():
            process.until_view(set("abcde"))
            process.fault("drop=0.2")
        for name in "abc":
            processes[name].send(150, f"{name}-before-")

        processes["e"].kill()
        processes["a"].until_view(set("abcd"))
        marks = {name: len(process.words) for name, process in processes.items()}
        start("e", processes["e"].endpoint).fault("drop=0.2")
        for name in "abcd":
            processes[name].until_view(set("abcde"), marks[name])

        marks = {name: len(process.words) for name, process in processes.items()}
        sides = ("abc", "de")  # the log goes on where the majority is
        for name, process in processes.items():
            for other in next(side for side in sides if name not in side):
                process.fault(f"cut@{processes[other].endpoint}")
        processes["a"].until_view(set("abc"), marks["a"])
        processes["d"].until_view(set("de"), marks["d"])  # what it sends in the old view may fail, and is told so
        processes["b"].send(100, "b-parted-")
        processes["d"].send(50, "d-parted-")  # waits until there is a primary view again
        marks = {name: len(process.words) for name, process in processes.items()}
        for process in processes.values():
            process.fault("clear")
        for name, process in processes.items():
            process.until_view(set("abcde"), marks[name])

        survivors = [processes[name] for name in "abc"]
        logs = until_all_have(survivors, 3 * 150 + 100 + 50)
        assert logs[0] == logs[1] == logs[2]
        positions = [position for position, _ in logs[0]]
        assert positions == list(range(1, len(positions) + 1))
        payloads = [payload for _, payload in logs[0]]
        for prefix, count in (("a-before-", 150), ("b-before-", 150), ("c-before-", 150), ("b-parted-", 100)):
            assert [p for p in payloads if p.startswith(prefix)] == [f"{prefix}{number}" for number in range(count)]
        assert [p for p in payloads if p.startswith("d-parted-")] == [f"d-parted-{number}" for number in range(50)]
        tail = dict(logs[0])
        for name in "de":  # they missed a part of the log, and agree on every position that they have
            assert all(tail[position] == payload for position, payload in processes[name].report()["log"])
