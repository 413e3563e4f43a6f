"""Whole members under fire, for some seconds; `python -m tests.fuzz.datagrams` does the same for as long as wanted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import motet
from motet.protocol.core.counters import Count
from motet.protocol.core.limits import MOST_COUNT
from motet.protocol.core.view import Ballot, View, ViewId
from motet.protocol.wire.codec import encode, group_id
from motet.protocol.wire.frames import CutTo, Decision, LeaveRequest, Prepare
from motet.testing import SimNetwork, run
from tests.fuzz.datagrams import config_of, one_world
from tests.hostile.arena import GROUP, MOST_SENT, Arena, AttackOutcome

KEY = f"7:{'11' * 32}"


@pytest.mark.parametrize("seed", range(6))
def test_members_of_every_preset_survive_mutated_and_forged_frames(seed: int) -> None:
    outcome = AttackOutcome()
    one_world(seed, 1_000, outcome)
    assert (outcome.stops, outcome.hangs) == ([], [])
    assert outcome.frames == 1_000
    assert outcome.most_sent < MOST_SENT


@pytest.mark.parametrize("seed", range(3))
def test_whoever_uses_no_members_name_has_nothing_delivered_and_changes_no_view(seed: int) -> None:
    outcome = AttackOutcome()

    async def scenario(network: SimNetwork) -> None:
        arena = Arena(network, Random(seed), config_of(seed), outcome, None)
        await arena.open()
        views = [group.view for group in arena.groups]
        await arena.attack(arena.attacker.unknown, 1_000)
        assert [group.view for group in arena.groups] == views
        await arena.close()

    run(scenario, seed=seed)
    assert (outcome.stops, outcome.hangs, outcome.strange, outcome.repeated) == ([], [], [], 0)


@pytest.mark.parametrize("seed", range(3))
def test_without_the_key_nobody_changes_anything(seed: int) -> None:
    outcome = AttackOutcome()

    async def scenario(network: SimNetwork) -> None:
        arena = Arena(network, Random(seed), motet.Config.lan(keys=[KEY]), outcome, None)
        await arena.open()
        for _ in range(30):
            before = [state_of(group) for group in arena.groups]
            for _ in range(30):
                arena.fire(arena.attacker.keyless)
            assert [state_of(group) for group in arena.groups] == before
            await arena.work()
        await arena.close()

    run(scenario, seed=seed)
    assert (outcome.stops, outcome.hangs, outcome.strange, outcome.repeated) == ([], [], [], 0)


def state_of(group: motet.Group) -> list[Any]:
    """All that a datagram could change, but for the counts of what was refused."""
    member = group._driver.member
    refused = [count for count in Count if count.startswith("seal_")] + [Count.SOURCE_OURSELVES]
    counts = {count: number for count, number in member.counters.items() if count not in refused}
    windows = sorted((str(who), str(entry)) for who, entry in member.multicast.digest().items())
    ordering = member.channel.ordering
    assert ordering is not None
    log = (ordering.position, ordering.stable, len(ordering.queue), member.buffered_frames)
    return [counts, windows, log, member.view, member.record, member.next_deadline(), member.is_settled]


def test_a_view_at_the_end_of_all_numbers_is_refused_and_the_group_goes_on() -> None:
    """PREPARE and CUT that name the last view there could be: without a bound all die at the next change, for good."""

    async def scenario(network: SimNetwork) -> None:
        arena = Arena(network, Random(1), motet.Config.lan(), AttackOutcome(), None)
        await arena.open()
        a, b, c = arena.groups
        view, ballot = b.view, Ballot(1, a.address.incarnation)
        for number in ((1 << 64) - 1, MOST_COUNT, MOST_COUNT - 1):
            last = View(ViewId(0, a.address.incarnation), view.members, is_primary=True)
            decision = Decision(
                (), last, tuple((m.incarnation, 0) for m in view.members), (), (), ViewId(0, 0), 0, (), ()
            )
            for frame in (Prepare(view.id, ballot, view.members, False), CutTo(view.id, ballot, decision, None, ())):
                data = encode(group_id(GROUP), a.address.incarnation, b.address.incarnation, frame)
                forged = data.replace(bytes(8) + last.id.creator.to_bytes(8, "little"), _id(number, last.id.creator))
                deliver(network, b, forged)
        await network.crash(c)
        await a.until(lambda view: len(view.members) == 2)
        await b.until(lambda view: len(view.members) == 2)
        assert b.view.id.number < 1_000
        await arena.close()

    run(scenario)


def _id(number: int, creator: int) -> bytes:
    return number.to_bytes(8, "little") + creator.to_bytes(8, "little")


def deliver(network: SimNetwork, group: motet.Group, data: bytes) -> None:
    network._transports[group.address.endpoint].deliver(data, group.address.endpoint)


def test_a_leave_in_the_name_of_a_lone_member_itself_is_refused_at_the_door() -> None:
    async def scenario(network: SimNetwork) -> None:
        async with network.join(GROUP, name="a", config=motet.Config.lan()) as alone:
            own = alone.address.incarnation
            deliver(network, alone, encode(group_id(GROUP), own, 0, LeaveRequest(alone.view.id)))
            member = alone._driver.member
            assert member.counters[Count.SOURCE_OURSELVES] == 1
            assert alone.view.members == (alone.address,)
            await alone.send(alone.address, b"to ourselves")  # which needs no network
            message = await anext(event async for event in alone if isinstance(event, motet.Message))
            assert message.payload == b"to ourselves"

    run(scenario)
