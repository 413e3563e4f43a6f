"""The small world of real members, where applications can be asked for their state.

The state of an application is all that it was told, per sender and channel. So a snapshot can be compared, message by
message, with what each member had sent when it gave its state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address
from motet.protocol.member import Delivered, DurableState, Member, MemberConfig
from motet.protocol.snapshot import RecordState, SnapshotFailed, SnapshotId, SnapshotResult, SnapshotTaken
from tests.protocol.membership.world import FIRST_PORT, GROUP
from tests.protocol.ordering.world import OrderedProcess, OrderedWorld

Sent = dict[tuple[str, str], list[str]]  # (channel, to or "") -> texts


class SnapshotProcess(OrderedProcess):
    """Answers at once, unless it is told to be slow; then `answer` does it, with the state as it was when asked."""

    def __init__(self, world: SnapshotWorld, name: str, member: Member) -> None:
        super().__init__(world, name, member)
        self.is_slow = False
        self.got_by: dict[str, list[str]] = {}  # "channel sender" -> texts
        self.sent_at: dict[SnapshotId, Sent] = {}  # what it had sent when it gave its state
        self.sent: Sent = {}
        self.asked: list[tuple[SnapshotId, bytes]] = []

    def _make_real(self, effect: Effect) -> list[Effect]:
        if isinstance(effect, RecordState):
            self.asked.append((effect.snapshot, json.dumps(self.got_by).encode()))
            return [] if self.is_slow else self.answer()
        if isinstance(effect, Delivered):
            key = f"{effect.channel.value} {effect.sender.name}"
            self.got_by.setdefault(key, []).extend(message.decode() for message in effect.messages)
        return super()._make_real(effect)

    def answer(self) -> list[Effect]:
        effects: list[Effect] = []
        for snapshot, state in self.asked:
            self.sent_at[snapshot] = {key: list(texts) for key, texts in self.sent.items()}
            effects += self.member.supply_snapshot_state(snapshot, state, self.world.now)
        self.asked.clear()
        return effects


class SnapshotWorld(OrderedWorld):
    def __init__(self, seeds: str = "A", **settings: Any) -> None:
        super().__init__(seeds, **settings)
        self._looked_at: dict[str, int] = {}  # results

    def __getitem__(self, name: str) -> SnapshotProcess:
        process = super().__getitem__(name)
        assert isinstance(process, SnapshotProcess)
        return process

    def start(self, *names: str, config: MemberConfig | None = None, durable_state: DurableState | None = None) -> None:
        for name in names:
            lives = sum(process.name == name for process in self.processes)
            host, port = self.endpoint(name)
            incarnation = (lives + 1) << 56 | (port - FIRST_PORT + 1) << 48 | 1
            address = Address(name, host, port, incarnation)
            member = Member(address, GROUP, config or self.config, Random(incarnation), durable_state)
            process = SnapshotProcess(self, name, member)
            self.processes.append(process)
            self._living_at[self.endpoint(name)] = process
            process.begin()

    # What applications do

    def multicast(self, name: str, *texts: str) -> None:
        self[name].sent.setdefault(("multicast", ""), []).extend(texts)
        super().multicast(name, *texts)

    def send(self, name: str, to: str | Address, *texts: str) -> None:
        self[name].sent.setdefault(("unicast", str(to)), []).extend(texts)
        super().send(name, to, *texts)

    def order(self, name: str, *texts: str, waits_for_primary: bool = True) -> None:
        self[name].sent.setdefault(("total", ""), []).extend(texts)
        super().order(name, *texts, waits_for_primary=waits_for_primary)

    def say_everything(self, names: str, count: int = 1, mark: str = "") -> None:
        """Each of them, in every way, to everybody."""
        for name in names:
            for number in range(count):
                self.multicast(name, f"{mark}{name}m{number}")
                self.order(name, f"{mark}{name}o{number}")
                for to in names:
                    self.send(name, to, f"{mark}{name}{to}{number}")

    def snapshot(self, name: str) -> SnapshotId:
        process = self[name]
        snapshot, effects = process.member.start_snapshot(self.now)
        process.do(lambda now: effects)
        return snapshot

    # What came of it

    def taken(self, name: str) -> list[SnapshotResult]:
        return [SnapshotResult.of(effect) for effect in self[name].saw(SnapshotTaken)]  # type: ignore[arg-type]

    def reasons(self, name: str) -> list[str]:
        return [effect.reason for effect in self[name].saw(SnapshotFailed) if isinstance(effect, SnapshotFailed)]

    def result(self, name: str, limit: float = 5.0) -> SnapshotResult:
        """Of the next one that ends; it is a consistent cut."""
        looked_at = self._looked_at.get(name, 0)
        self.run_until(lambda: len(self.taken(name)) > looked_at or bool(self.reasons(name)), limit)
        assert not self.reasons(name), self.reasons(name)
        self._looked_at[name] = looked_at + 1
        result = self.taken(name)[looked_at]
        for flaw in flaws(self, result):
            raise AssertionError(flaw)
        return result

    def failure(self, name: str, limit: float = 20.0) -> str:
        self.run_until(lambda: bool(self.reasons(name)), limit)
        assert not self.taken(name)
        (reason,) = self.reasons(name)
        return reason


def flaws(world: SnapshotWorld, result: SnapshotResult) -> Iterator[str]:
    """What a receiver had got, and what was on its way to it, is exactly what its sender had sent."""
    flying: dict[tuple[str, str, str], list[str]] = {}
    waiting: dict[str, list[str]] = {}
    for one in result.in_flight():
        if one.is_waiting:
            waiting.setdefault(one.sender.name, []).append(one.payload.decode())
        else:
            assert one.receiver is not None
            way = (one.channel.value, one.sender.name, one.receiver.name)
            flying.setdefault(way, []).append(one.payload.decode())
    for sender in result.reports:
        sent = world[sender.name].sent_at[result.id]
        for receiver in result.reports:
            got = json.loads(result.state_of(receiver))
            for channel in Channel:
                to = receiver.name if channel is Channel.UNICAST else ""
                way = (channel.value, sender.name, receiver.name)
                held = got.get(f"{channel.value} {sender.name}", []) + flying.get(way, [])
                held += waiting.get(sender.name, []) if channel is Channel.TOTAL else []
                if held != sent.get((channel.value, to), []):
                    yield f"{way}: {held} is there, and {sent.get((channel.value, to), [])} was sent"
