"""The failure detector against a dumb model that looks at everything every ten milliseconds.

The model knows the accrual rule as a product of chances: how likely is it that a living peer missed so many heartbeats
and left so many probes unanswered, where so much is lost? It keeps no deadlines, and no logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from motet.protocol.core.effects import Effect, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.units import MILLISECOND
from motet.protocol.core.view import NO_VIEW, ViewId
from motet.protocol.membership import DetectorConfig
from motet.protocol.membership.detector import Standing, Suspected, Trusted
from motet.protocol.membership.links import COMMON_WEIGHT, OWN_WEIGHT
from motet.protocol.wire.frames import AreYouAlive, Heartbeat, IAmAlive, IndirectProbe, Vouched
from tests.protocol.membership.people import EVERYBODY, A, B, C, D, G
from tests.protocol.membership.watching import PlainDetector, ask, beat

UNIT = 10 * MILLISECOND
HEARTBEAT, SUSPECT, PROBE, PROBES, LONGEST = 3, 7, 2, 3, 40  # units of time, but for the number of probes
VERIFY = PROBE * PROBES
ROUND_TRIP = 3  # with its deviations, as long as no echo has come
CONFIG = DetectorConfig(HEARTBEAT * UNIT, SUSPECT * UNIT, VERIFY * UNIT, PROBES, LONGEST * UNIT)


@dataclass(slots=True)
class Peer:
    received_at: int
    loss: float = 0.0
    beat: int = 0  # the highest one that came
    is_asked: bool = False
    is_suspected: bool = False
    probes: int = 0
    probed_at: int = 0
    silent_since: int = 0
    vouches: int = 0
    pause: int = 0
    askers: dict[Address, int] = field(default_factory=dict)

    @property
    def standing(self) -> Standing:
        if self.is_suspected:
            return Standing.SUSPECTED
        return Standing.ASKED if self.is_asked else Standing.TRUSTED

    def due(self) -> int:
        if self.is_asked:
            return self.probed_at + PROBE
        return self.received_at + min(SUSPECT + self.pause, 4 * SUSPECT, LONGEST - VERIFY)


def after_gap(share: float, weight: float, lost: int) -> float:
    for _ in range(lost):
        share = share * (1 - weight) + weight
    return share * (1 - weight)


@dataclass(slots=True)
class Model:
    now: int
    spoke_at: int
    notified_at: int | None = None  # the view, or else the first time that there was something to say
    view: ViewId = NO_VIEW
    loss: float = 0.0  # of all links
    peers: dict[Address, Peer] = field(default_factory=dict)

    def watch(self, peers: list[Address], view: ViewId) -> None:
        self.view = view
        self.peers = {peer: self.peers.get(peer, Peer(self.now)) for peer in peers if peer != A}
        for state in self.peers.values():
            state.askers.clear()

    def speak(self) -> None:
        self.spoke_at = self.now
        if self.notified_at is None:
            self.notified_at = self.now

    def heartbeat_due(self) -> int:
        """One interval after anything was said; after the view was told four, or one where datagrams are lost."""
        most = HEARTBEAT * (4 if self.loss < 0.05 else 1)
        return min(self.spoke_at + HEARTBEAT, (self.spoke_at if self.notified_at is None else self.notified_at) + most)

    def hear(self, peer: Address) -> list[Effect]:
        state = self.peers.get(peer)
        if state is None:
            return []
        excess = self.now - state.received_at - SUSPECT
        is_pause = state.is_asked and not state.vouches
        if (is_pause or (state.askers and not state.is_asked)) and excess >= state.pause:
            state.pause = excess
        effects: list[Effect] = [Trusted(peer)] if state.is_suspected else []
        curious = [asker for asker, until in state.askers.items() if self.now <= until and asker in self.peers]
        state.received_at, state.is_asked, state.is_suspected = self.now, False, False
        state.askers.clear()
        return effects + [Transmit(asker, Vouched(self.view, peer.incarnation)) for asker in curious]

    def count(self, peer: Address, skipped: int) -> int:
        """The number of a beat that comes after so many lost ones; -1 skipped is the last one again."""
        state = self.peers.get(peer, Peer(0, beat=100))
        number = state.beat + 1 + skipped
        if number <= state.beat or peer not in self.peers:
            return max(1, number)
        lost = skipped if state.beat else 0
        state.loss, self.loss = after_gap(state.loss, OWN_WEIGHT, lost), after_gap(self.loss, COMMON_WEIGHT, lost)
        state.beat = number
        return number

    def vouch(self, source: Address, peer: Address) -> None:
        state = self.peers.get(peer)
        if state is None or source not in self.peers or source == peer or not state.is_asked or state.is_suspected:
            return
        if state.vouches < 2 and self.now + VERIFY + PROBE <= state.received_at + LONGEST:
            state.vouches, state.probes, state.silent_since = state.vouches + 1, 0, self.now

    def asked_about(self, source: Address, peer: Address) -> list[Effect]:
        state = self.peers.get(peer)
        if state is None or source not in self.peers or source == peer:
            return []
        if self.now - state.received_at <= HEARTBEAT:
            return [Transmit(source, Vouched(self.view, peer.incarnation))]
        state.askers[source] = self.now + VERIFY
        return [ask(peer)]

    def pass_one(self) -> list[Effect]:
        self.now += 1
        effects: list[Effect] = []
        if self.peers and self.now >= self.heartbeat_due():
            self.spoke_at = self.notified_at = self.now
            effects += beat(*self.peers, view=self.view)
        for peer, state in self.peers.items():
            if not state.is_suspected and self.now >= state.due():
                effects += self.look_at(peer, state)
        return effects

    def look_at(self, peer: Address, state: Peer) -> list[Effect]:
        if not state.is_asked:
            state.is_asked, state.probes, state.vouches, state.silent_since = True, 0, 0, state.received_at
        if state.probes >= PROBES and self.is_no_accident(state):
            state.is_suspected = True
            return [Suspected(peer)]
        state.probes, state.probed_at = state.probes + 1, self.now
        return [ask(peer), *(self.indirect(peer) if state.probes % PROBES == 1 and state.vouches < 2 else [])]

    def is_no_accident(self, state: Peer) -> bool:
        if self.now + PROBE > state.received_at + LONGEST:
            return True
        lost = min(max(state.loss, self.loss, 0.05), 0.95)
        out = min(max(self.loss, 0.05), 0.95)  # the peers of this model tell of no loss
        missed = (self.now - state.silent_since) // HEARTBEAT
        chance = lost**missed * (1 - (1 - lost) * (1 - out)) ** state.probes
        return chance <= 1e-8 and self.now - state.silent_since >= ROUND_TRIP

    def indirect(self, peer: Address) -> list[Effect]:
        others = [one for one, state in self.peers.items() if one != peer and not state.is_asked]
        return [Transmit(one, IndirectProbe(self.view, peer.incarnation)) for one in others[:3]]

    def next_deadline(self) -> int | None:
        due = [state.due() for state in self.peers.values() if not state.is_suspected]
        return min([self.heartbeat_due(), *due]) if self.peers else None


@dataclass(frozen=True, slots=True)
class Pass:
    units: int


@dataclass(frozen=True, slots=True)
class Hear:
    peer: Address
    kind: type[AreYouAlive] | type[IAmAlive] | type[Heartbeat] | None  # None: a frame of another protocol
    skipped: int = 0  # beats that were lost before this one


@dataclass(frozen=True, slots=True)
class Speak:
    pass


@dataclass(frozen=True, slots=True)
class Watch:
    peers: tuple[Address, ...]
    view: ViewId = NO_VIEW


@dataclass(frozen=True, slots=True)
class Indirect:
    kind: type[IndirectProbe] | type[Vouched]
    source: Address
    target: Address


Action = Pass | Hear | Speak | Watch | Indirect

PEERS = st.sampled_from((A, B, C, D, G))
ACTIONS = st.lists(
    st.one_of(
        st.builds(Pass, st.integers(1, 15)),
        st.builds(Hear, PEERS, st.sampled_from([None, AreYouAlive, IAmAlive, Heartbeat]), st.integers(-1, 5)),
        st.just(Speak()),
        st.builds(Watch, st.lists(PEERS, max_size=5).map(tuple), st.builds(ViewId, st.integers(1, 9), st.just(1))),
        st.builds(Indirect, st.sampled_from([IndirectProbe, Vouched]), PEERS, PEERS),
    ),
    max_size=60,
)


class Pair:
    """The machine and the model, given the same inputs."""

    def __init__(self) -> None:
        self.model = Model(now=100, spoke_at=0)
        self.detector = PlainDetector(A, CONFIG)

    @property
    def now(self) -> int:
        return self.model.now * UNIT

    def act(self, action: Action) -> None:
        match action:
            case Pass():
                for _ in range(action.units):
                    self.pass_one()
            case Hear():
                self.hear(action)
            case Speak():
                self.model.speak()
                self.detector.spoke(self.now)
            case Watch():
                self.model.watch(list(action.peers), action.view)
                self.detector.watch(action.peers, self.now, action.view)
            case Indirect():
                self.indirect(action)
        self.compare()

    def pass_one(self) -> None:
        expected = self.model.pass_one()
        assert self.detector.tick(self.now) == expected
        assert self.detector.tick(self.now) == []
        self.compare()

    def hear(self, action: Hear) -> None:
        expected = self.model.hear(action.peer)
        if action.kind is None:
            assert self.detector.heard(action.peer, self.now) == expected
            return
        frame = action.kind(beat=self.model.count(action.peer, action.skipped))
        if isinstance(frame, AreYouAlive):
            expected.append(Transmit(action.peer, IAmAlive(self.model.view)))
        assert self.detector.receive(action.peer, frame, self.now) == expected

    def indirect(self, action: Indirect) -> None:
        frame = action.kind(self.model.view, action.target.incarnation)
        expected = self.model.hear(action.source)
        if isinstance(frame, Vouched):
            self.model.vouch(action.source, action.target)
        else:
            expected += self.model.asked_about(action.source, action.target)
        assert self.detector.receive_indirect(action.source, frame, self.now) == expected

    def compare(self) -> None:
        self.detector._check()
        deadline = self.model.next_deadline()
        assert self.detector.next_deadline() == (None if deadline is None else deadline * UNIT)
        for peer in EVERYBODY:
            state = self.model.peers.get(peer)
            assert self.detector.standing(peer) is (state.standing if state else None)
        assert self.detector.suspects == tuple(peer for peer, state in self.model.peers.items() if state.is_suspected)


LOSSY = [step for number in range(12) for step in (Hear(B, Heartbeat, number % 3), Pass(3))]


@settings(max_examples=300)
@given(actions=ACTIONS)
@example(actions=[Watch((B, C)), Pass(15), Pass(15), Hear(B, None), Watch((C, B)), Pass(15)])
@example(actions=[Watch((B,), ViewId(1, 1)), *[Speak(), Pass(2)] * 14, Pass(3)])
@example(actions=[Watch((B,)), *LOSSY, *[Pass(15)] * 4])
@example(actions=[Watch((B, C)), *LOSSY, *[Pass(4), Hear(C, None), Indirect(Vouched, C, B)] * 12])
@example(actions=[Watch((B, C)), Pass(6), Indirect(IndirectProbe, C, B), Pass(3), Hear(B, None), Pass(15), Pass(15)])
def test_the_detector_agrees_with_a_dumb_model(actions: list[Action]) -> None:
    pair = Pair()
    for action in actions:
        pair.act(action)
