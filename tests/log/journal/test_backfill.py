"""Backfill with real journals on simulated disks, and a link that delivers in order until a peer dies."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from motet.errors import JournalDivergedError
from motet.log.journal import Fsync, Journal, JournalConfig
from motet.log.journal.backfill import (
    AppendRaw,
    Backfill,
    BackfillConfig,
    BackfillDone,
    BackfillImpossible,
    SendTo,
    Truncate,
    answer,
    is_ask,
)
from motet.log.journal.reader import JournalReader
from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.units import SECOND
from motet.protocol.core.view import ViewId
from motet.sim.world.disk import SimDisk
from tests.log.journal.factory import GROUP, A, B, C, begun, text_of, view_of

CONFIG = JournalConfig(fsync=Fsync.ALWAYS, segment_bytes=8192, index_bytes=1024)
SMALL = BackfillConfig(chunk_bytes=1024, chunks=3, timeout_ns=SECOND)


class Station:
    """One member's journal on its own disk."""

    def __init__(self, name: str) -> None:
        self.directory = Path("/") / name
        self.disk = SimDisk()
        self.journal, self.scribe = begun(self.directory, CONFIG, self.disk)

    def rows(self, first: int = 1) -> list[bytes]:
        reader = JournalReader(self.directory, self.disk)
        return [
            row for batch in reader.read(first, reader.bounds().last) for row in batch.column("payload").to_pylist()
        ]


def story(station: Station, rounds: int, *, foreign_tail: int = 0) -> None:
    """The same log at all who live through it: views, small frames, a large message now and then."""
    journal, scribe = station.journal, station.scribe
    for round_ in range(rounds):
        if round_ % 4 == 3:
            journal.append([scribe.fragment(b"cut short" * 300, at, 900, B) for at in (0, 900)])
            scribe.enter(journal, view_of(2 + round_, A, B, C))
        journal.append(scribe.many(20, per_frame=4))
        if round_ % 3 == 1:
            journal.append(scribe.fragments(text_of(scribe.position + 1) + b"." * 4000, 900, sender=B))
    journal.mark_stable(journal.position)
    if foreign_tail:
        journal.append([scribe.packed(b"only here %d" % at) for at in range(foreign_tail)])


class BackfillLink:
    def __init__(self, station: Station, peers: dict[Address, Station], upto: int, **options: Any) -> None:
        self.station = station
        self.peers = peers
        self.dead: set[Address] = set()
        self.machine = Backfill(station.journal.end, upto, list(peers), SMALL, **options)
        self.queue: deque[tuple[Address, bytes]] = deque()
        self.now = 0
        self.asked: list[Address] = []
        self.outcome: BackfillDone | BackfillImpossible | None = None
        self.taken = 0

    def run(self, kill_after: int = 1 << 30) -> BackfillDone | BackfillImpossible:
        self.perform(self.machine.start(self.now))
        for _ in range(10_000):
            if self.outcome is not None:
                return self.outcome
            if self.taken >= kill_after and not self.dead:
                self.dead.add(self.asked[-1])
                self.queue.clear()
            if self.queue:
                self.perform(self.machine.receive(*self.queue.popleft(), self.now))
                continue
            due = self.machine.next_deadline()
            assert due is not None, "waits for nothing"
            self.now = max(self.now, due)
            self.perform(self.machine.tick(self.now))
        raise AssertionError("no end in sight")

    def perform(self, effects: Sequence[Effect]) -> None:
        journal = self.station.journal
        for effect in effects:
            match effect:
                case SendTo():
                    assert is_ask(effect.data)
                    self.asked.append(effect.peer)
                    if effect.peer not in self.dead:
                        replies = answer(self.peers[effect.peer].journal, effect.data)
                        self.queue.extend((effect.peer, reply) for reply in replies)
                case AppendRaw():
                    self.taken += 1
                    journal.append_raw(effect.data)
                    self.perform(self.machine.performed(journal.end, self.now))
                case Truncate():
                    journal.truncate(effect.position)
                    self.perform(self.machine.performed(journal.end, self.now))
                case BackfillDone() | BackfillImpossible():
                    self.outcome = effect


def grown(name: str, rounds: int, **options: int) -> Station:
    station = Station(name)
    story(station, rounds, **options)
    return station


def test_the_suffix_is_fetched_and_is_the_same() -> None:
    peer, late = grown("peer", 12), grown("late", 5)
    upto = peer.journal.position
    assert BackfillLink(late, {B: peer}, upto).run() == BackfillDone(upto)
    assert late.journal.chain == peer.journal.chain
    assert late.journal.epoch == peer.journal.epoch
    assert late.rows() == peer.rows()
    late.journal.close()
    again = Journal.open(late.directory, GROUP, CONFIG, late.disk)
    assert (again.position, again.chain) == (upto, peer.journal.chain)


def test_a_newcomer_can_have_all_of_it() -> None:
    peer = grown("peer", 12)
    late = Station("late")
    late.journal.restart_at(0, bytes(16))
    upto = peer.journal.position
    assert BackfillLink(late, {B: peer}, upto).run() == BackfillDone(upto)
    assert late.rows() == peer.rows()
    views = [record.view for record in JournalReader(late.directory, late.disk).views()]
    assert views == [record.view for record in JournalReader(peer.directory, peer.disk).views()]


def test_a_tail_that_differs_is_rolled_back_to_what_is_stable() -> None:
    peer, late = grown("peer", 12), grown("late", 5, foreign_tail=7)
    stable, upto = late.journal.stable, peer.journal.position
    assert late.journal.position == stable + 7
    assert BackfillLink(late, {B: peer}, upto).run() == BackfillDone(upto)
    assert late.rows() == peer.rows()


def test_a_tail_that_is_longer_than_the_group_knows() -> None:
    peer, late = grown("peer", 5), grown("late", 5, foreign_tail=300)
    assert BackfillLink(late, {B: peer}, peer.journal.position).run() == BackfillDone(peer.journal.position)
    assert late.rows() == peer.rows()


def test_a_tail_of_the_same_length_that_differs() -> None:
    """Nothing is missing, and yet it is not the same log."""
    peer, late = grown("peer", 5), grown("late", 4)
    missing = peer.journal.position - late.journal.position
    late.journal.append([late.scribe.packed(b"only here") for _ in range(missing)])
    assert late.journal.position == peer.journal.position
    assert BackfillLink(late, {B: peer}, peer.journal.position).run() == BackfillDone(peer.journal.position)
    assert late.rows() == peer.rows()


def test_a_log_that_is_the_same_is_left_alone() -> None:
    peer, late = grown("peer", 5), grown("late", 5)
    link = BackfillLink(late, {B: peer}, peer.journal.position)
    assert link.run() == BackfillDone(peer.journal.position)
    assert (link.asked, link.taken) == ([B], 0)


def test_a_stable_part_that_differs_cannot_be_mended() -> None:
    peer = grown("peer", 12)
    late = Station("late")
    late.journal.append([late.scribe.packed(b"another world") for _ in range(30)])
    late.journal.mark_stable(30)
    outcome = BackfillLink(late, {B: peer}, peer.journal.position).run()
    assert isinstance(outcome, BackfillImpossible)
    assert "stable" in outcome.reason
    assert outcome.chain == peer.journal.chain


@pytest.mark.parametrize("kill_after", range(1, 12))
def test_a_peer_that_dies_is_replaced_by_another(kill_after: int) -> None:
    """At any moment, also between the fragments of a large message; and the other one came into the group later."""
    first, second, late = grown("first", 12), grown("second", 12), grown("late", 3)
    link = BackfillLink(late, {B: first, C: second}, first.journal.position)
    assert link.run(kill_after) == BackfillDone(first.journal.position)
    assert set(link.asked) == {B, C}
    assert late.rows() == first.rows()
    assert late.journal.chain == second.journal.chain


def test_whoever_keeps_more_is_found() -> None:
    full, late = grown("full", 12), grown("late", 3)
    middle = full.journal.segments[2].base
    assert middle > late.journal.position
    newcomer = Station("newcomer")
    chain = full.journal.chain_at(middle)
    assert chain is not None
    newcomer.journal.restart_at(middle, chain)
    upto = full.journal.position
    assert BackfillLink(newcomer, {B: full}, upto).run() == BackfillDone(upto)
    assert newcomer.rows(middle + 1) == full.rows(middle + 1)
    assert newcomer.journal.chain == full.journal.chain
    link = BackfillLink(late, {B: newcomer, C: full}, upto)
    assert link.run() == BackfillDone(upto)
    assert late.rows() == full.rows()
    alone = grown("alone", 3)
    assert BackfillLink(alone, {B: newcomer}, upto).run() == BackfillImpossible(
        upto, full.journal.chain, middle + 1, "no peer has the missing positions"
    )


def test_without_wanting_records_only_the_chain_is_told() -> None:
    peer, late = grown("peer", 12), Station("late")
    upto = peer.journal.position
    outcome = BackfillLink(late, {B: peer}, upto, wants_records=False).run()
    assert outcome == BackfillImpossible(upto, peer.journal.chain, 1, "no peer has the missing positions")


def test_one_who_is_behind_is_asked_again_later() -> None:
    peer, behind, late = grown("peer", 12), grown("behind", 2), grown("late", 2)
    link = BackfillLink(late, {B: behind, C: peer}, peer.journal.position)
    assert link.run() == BackfillDone(peer.journal.position)
    assert link.asked[:2] == [B, C]
    assert 0 < link.now <= SECOND


def test_nonsense_is_answered_with_nothing() -> None:
    peer, rng = grown("peer", 2), Random(4)
    machine = Backfill(peer.journal.end, 10_000, [B], SMALL)
    (sent,) = machine.start(0)
    assert isinstance(sent, SendTo)
    for size in range(60):
        garbage = sent.data[: rng.randrange(4)] + rng.randbytes(size)
        assert answer(peer.journal, garbage) == []
        assert machine.receive(B, garbage, 0) == []
    assert machine.receive(C, answer(peer.journal, sent.data)[0], 0) == []  # not the one that was asked


def test_records_that_do_not_continue_the_log_are_refused_whole() -> None:
    peer, late = grown("peer", 4), grown("late", 2)
    position, chain = late.journal.position, late.journal.chain
    data = bytearray(peer.journal.read_raw(position + 1, 4096, view=late.journal.end.cursor.view))
    data[-30] ^= 1
    with pytest.raises(JournalDivergedError, match="do not continue the log"):
        late.journal.append_raw(bytes(data))
    with pytest.raises(JournalDivergedError, match="follows"):
        late.journal.append_raw(peer.journal.read_raw(1, 4096))
    assert (late.journal.position, late.journal.chain) == (position, chain)
    assert not late.journal.is_failed


def test_raw_reading_respects_its_bounds() -> None:
    peer = grown("peer", 6)
    one = peer.journal.read_raw(5, 1, last=100)
    assert 0 < len(one) < 1000
    assert peer.journal.read_raw(peer.journal.position + 1, 1 << 20) == b""
    with pytest.raises(JournalDivergedError, match="no frame ends at position 5"):
        peer.journal.read_raw(6, 1 << 20)
    assert peer.journal.chain_at(5) is None
    assert peer.journal.chain_at(4) is not None
    assert peer.journal.read_raw(5, 1 << 20, view=ViewId(99, 1)) == b""


def test_a_peer_that_still_fetches_gives_what_it_has() -> None:
    """It may be the only one that has it."""
    whole, half, late = grown("whole", 12), grown("half", 8), grown("late", 5)
    upto = whole.journal.position
    link = BackfillLink(late, {B: half, C: whole}, upto)
    assert link.run() == BackfillDone(upto)
    assert link.asked[0] == B
    assert late.journal.chain == whole.journal.chain
    assert C in link.asked


def test_a_peer_that_is_not_in_our_view_yet_may_have_a_tail_that_it_takes_back() -> None:
    ours, theirs = view_of(9, A, B).id, view_of(8, A, B).id
    peer, late = grown("peer", 6), grown("late", 5)
    machine = Backfill(late.journal.end, peer.journal.position, [B], SMALL, view=ours)
    (sent,) = machine.start(0)
    assert isinstance(sent, SendTo)
    (refusal,) = answer(peer.journal, sent.data, theirs)
    assert machine.receive(B, refusal, 0) == []
    due = machine.next_deadline()
    assert due is not None
    (again,) = machine.tick(due)
    assert isinstance(again, SendTo)
    effects = machine.receive(B, answer(peer.journal, again.data, ours)[0], due)
    assert [type(effect) for effect in effects] == [AppendRaw]
