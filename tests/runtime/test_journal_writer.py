"""The journal writer by itself: a member that fetches what it missed, and views that come meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from motet.log.journal import Journal
from motet.log.journal.backfill import answer
from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address
from motet.protocol.core.view import View
from motet.protocol.member import Delivered, Superseded
from motet.protocol.membership.engine import ViewInstalled
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.ordering import RolledBack
from motet.protocol.wire.body import Port
from motet.runtime.journal_writer import JournalWriter
from tests.log.journal.factory import GROUP, NEVER, A, B, C, Scribe, view_of

V1, V2, V3 = view_of(1), view_of(2, A, B), view_of(3, A, B, C)


class Fetching:
    """B keeps its journal and misses what A has in its own."""

    def __init__(self, home: Path) -> None:
        self.peer, self.journal = Journal.open(home / "a", GROUP, NEVER), Journal.open(home / "b", GROUP, NEVER)
        self.scribe = Scribe()
        self.asked: list[bytes] = []
        self.view = V1
        self.told: list[bool] = []  # whether the log is whole
        ordering = SimpleNamespace(stable=0)
        member = SimpleNamespace(address=B, record=PrimaryRecord(), producers=(), send=self._send)
        member.keep_log = self._keep_log
        member.channel = SimpleNamespace(ordering=ordering)
        clock = lambda: 0  # noqa: E731
        self.journal_writer = JournalWriter(
            self.journal, cast(Any, member), cast(Any, None), replays=True, wall_clock=clock
        )

    def _keep_log(self, *, is_caught_up: bool = True) -> None:
        self.told.append(is_caught_up)

    def _send(self, to: Address, messages: Sequence[bytes], now: int, *, port: int) -> list[Effect]:
        assert (to, port) == (A, Port.CONTROL)
        self.asked += messages
        return []

    def write(self, view: View, count: int) -> list[Delivered]:
        """A delivers so many messages in this view, B's one after the other; they are what B delivers, too."""
        if self.peer.view != view:
            self.scribe.enter(self.peer, view)
        entries = [self.scribe.packed(b"%d" % number, sender=B) for number in range(count)]
        self.peer.append(entries)
        return [
            Delivered(Channel.TOTAL, B, (b"x",), e.position, Port.APP, e.seqno, (e.body,), (e.sent_at,))
            for e in entries
        ]

    def enter(self, view: View, *before: Effect, rolled_back: RolledBack | None = None) -> list[Effect]:
        self.view = view
        installed = ViewInstalled(view, position=self.scribe.position)
        return self.persist(*before, *([rolled_back] if rolled_back else []), installed)

    def persist(self, *effects: Effect) -> list[Effect]:
        return self.journal_writer.persist(list(effects), 0)

    def answer(self) -> list[Effect]:
        """A answers what it was asked last, and nothing before that."""
        replies = tuple(answer(self.peer, self.asked[-1], self.view.id))
        return self.persist(Delivered(Channel.UNICAST, A, replies, port=Port.CONTROL))


@pytest.fixture
def fetching(tmp_path: Path) -> Any:
    one = Fetching(tmp_path)
    yield one
    one.peer.close()
    one.journal.close()


def test_what_the_state_of_the_next_view_makes_superfluous_is_fetched_as_well(fetching: Fetching) -> None:
    """It was delivered in a view whose state never came: the journal had a hole, and the member stopped."""
    fetching.write(V1, 3)
    fetching.enter(V2)
    fetching.write(V2, 1)
    fetching.enter(V3, Superseded(4, 1))
    later = fetching.write(V3, 1)
    fetching.persist(*later)
    told = fetching.answer()
    assert (fetching.journal.position, fetching.journal.view) == (5, V3)
    assert [effect.position for effect in told if isinstance(effect, Delivered)] == [1, 2, 3, 4, 5]
    assert fetching.journal.chain == fetching.peer.chain


def test_what_was_held_back_and_taken_back_leaves_no_gap(fetching: Fetching) -> None:
    fetching.write(V1, 3)
    fetching.enter(V2)
    ours = fetching.write(V2, 2)
    fetching.persist(*ours)
    fetching.peer.truncate(4)  # what B held of position 5 was not stable, and the others never had it
    fetching.scribe = Scribe(4)
    told = fetching.enter(V3, rolled_back=RolledBack(5, 5))
    assert [effect for effect in told if isinstance(effect, Superseded)] == [Superseded(4, 1), Superseded(5, 1)]
    fetching.persist(*fetching.write(V3, 1))
    fetching.answer()
    assert (fetching.journal.position, fetching.journal.chain) == (5, fetching.peer.chain)


def test_an_answer_that_comes_late_is_not_one_to_the_next_question(fetching: Fetching) -> None:
    fetching.write(V1, 3)
    fetching.enter(V2)
    late = tuple(answer(fetching.peer, fetching.asked[-1], V2.id))
    fetching.peer.truncate(2)
    fetching.scribe = Scribe(2)
    fetching.enter(V3, rolled_back=RolledBack(1, 3))
    fetching.persist(Delivered(Channel.UNICAST, A, late, port=Port.CONTROL))
    assert fetching.journal.position == 0
    fetching.answer()
    assert fetching.journal.position == 2


def test_a_log_is_whole_when_it_is_fetched_also_in_a_view_that_is_not_primary(fetching: Fetching) -> None:
    """Who only knows how long the log is must not be followed by those who have it."""
    fetching.write(V1, 3)
    fetching.enter(replace(V2, is_primary=False))
    assert fetching.told == [True, False]
    fetching.answer()
    assert fetching.told == [True, False, True]
    assert (fetching.journal.position, fetching.journal.view) == (3, V1)
    fetching.enter(V3)
    assert fetching.told[-1]
    assert fetching.journal.view == V3


def test_frames_that_are_handed_up_as_one_are_records_of_their_own(fetching: Fetching) -> None:
    fetching.enter(V1)
    frames = fetching.write(V1, 3)
    bodies, times = (sum((getattr(frame, name) for frame in frames), ()) for name in ("bodies", "sent_at"))
    fetching.persist(replace(frames[0], messages=(b"x",) * 3, bodies=bodies, sent_at=times))
    assert (fetching.journal.position, fetching.journal.chain) == (3, fetching.peer.chain)
