"""Failure detection: any traffic is a sign of life, silence is verified before it is believed.

    idle for heartbeat_ns                       -> a heartbeat goes to the peers, with the view that we are in
    busy for four times that                    -> the same: others must hear of it when we are in another view
    a peer silent for suspect_ns                -> it is asked directly whether it is alive, verify_attempts times
    still silent when verify_ns has passed      -> it is suspected
    any frame of a suspected peer               -> it is trusted again

Invariant: a peer is trusted, being asked, or suspected, and exactly one of them; only current peers are in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from motet.core.checks import require_between
from motet.core.effects import Effect, Transmit
from motet.core.identity import Address
from motet.core.units import MILLISECOND, SECOND
from motet.core.view import NO_VIEW, ViewId
from motet.wire.frames import AreYouAlive, Heartbeat, IAmAlive

MOST_UNTOLD = 4  # heartbeats that other traffic may replace in a row


@dataclass(frozen=True, slots=True)
class DetectorConfig:
    """How long silence may last.

    A crash is suspected between suspect_ns and suspect_ns + verify_ns + heartbeat_ns after the last frame arrived.
    A live peer is suspected only if every frame of suspect_ns / heartbeat_ns heartbeats and of verify_attempts answers
    is lost: with independent loss p in each direction that is p ** (suspect_ns / heartbeat_ns) times
    (1 - (1 - p) ** 2) ** verify_attempts, and heartbeats that come during verification make it rarer still. With the
    defaults and 20 % loss: less than 1 in 186 000 per silence.
    """

    heartbeat_ns: int = 250 * MILLISECOND  # a fifth of the time that it must bridge
    suspect_ns: int = 1_250 * MILLISECOND  # five heartbeats lost in a row
    verify_ns: int = 500 * MILLISECOND  # how long a suspect has to answer
    verify_attempts: int = 4  # spread evenly over verify_ns

    def __post_init__(self) -> None:
        require_between("heartbeat_ns", self.heartbeat_ns, MILLISECOND, 60 * SECOND)
        require_between("suspect_ns", self.suspect_ns, 2 * self.heartbeat_ns, 600 * SECOND)
        require_between("verify_attempts", self.verify_attempts, 1, 100)
        require_between("verify_ns", self.verify_ns, self.verify_attempts, 600 * SECOND)


@dataclass(frozen=True, slots=True)
class Suspected(Effect):
    peer: Address


@dataclass(frozen=True, slots=True)
class Trusted(Effect):
    """A suspected peer was heard again."""

    peer: Address


class Standing(Enum):
    TRUSTED = "trusted"
    ASKED = "asked"  # silent, and asked directly
    SUSPECTED = "suspected"


@dataclass(slots=True)
class _Peer:
    heard_at: int
    standing: Standing = Standing.TRUSTED
    asked_at: int = 0  # when it was last asked: a process that was paused leaves its peers time to answer
    asked: int = 0  # how often


class FailureDetector:
    def __init__(self, local: Address, config: DetectorConfig) -> None:
        self._local = local
        self._config = config
        self._peers: dict[Address, _Peer] = {}
        self._spoke_at = 0  # when we last sent something to all peers
        self._told_at: int | None = None  # when we last told them our view, or first had something else to say
        self._view = NO_VIEW

    def watch(self, peers: Sequence[Address], now: int, view: ViewId = NO_VIEW) -> None:
        """Watch exactly these from now on; those who are new are given a full time of silence."""
        self._view = view
        wanted = [peer for peer in peers if peer != self._local]
        self._peers = {peer: self._peers.get(peer) or _Peer(now) for peer in wanted}

    def spoke(self, now: int) -> None:
        """We sent something to every peer: no heartbeat is needed for a while."""
        self._spoke_at = now
        self._told_at = now if self._told_at is None else self._told_at

    def heard(self, peer: Address, now: int) -> list[Effect]:
        """Any frame of `peer` arrived."""
        state = self._peers.get(peer)
        if state is None:
            return []
        was_suspected = state.standing is Standing.SUSPECTED
        state.heard_at, state.standing = now, Standing.TRUSTED
        return [Trusted(peer)] if was_suspected else []

    def receive(self, source: Address, frame: AreYouAlive | IAmAlive | Heartbeat, now: int) -> list[Effect]:
        """Answer whoever asks, member or not: only the asker knows why it asks."""
        effects = self.heard(source, now)
        if isinstance(frame, AreYouAlive):
            effects.append(Transmit(source, IAmAlive(self._view)))
        return effects

    def tick(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._peers and now >= self._heartbeat_due:
            self._spoke_at = self._told_at = now
            effects += [Transmit(peer, Heartbeat(self._view)) for peer in self._peers]
        for peer, state in self._peers.items():
            effects += self._examine(peer, state, now)
        return effects

    def next_deadline(self) -> int | None:
        if not self._peers:
            return None
        open_cases = (state for state in self._peers.values() if state.standing is not Standing.SUSPECTED)
        return min([self._heartbeat_due, *map(self._deadline, open_cases)])

    @property
    def _heartbeat_due(self) -> int:
        interval_ns = self._config.heartbeat_ns
        idle_due = self._spoke_at + interval_ns
        return idle_due if self._told_at is None else min(idle_due, self._told_at + MOST_UNTOLD * interval_ns)

    @property
    def suspects(self) -> tuple[Address, ...]:
        return tuple(peer for peer, state in self._peers.items() if state.standing is Standing.SUSPECTED)

    def standing(self, peer: Address) -> Standing | None:
        return self._peers[peer].standing if peer in self._peers else None

    def _deadline(self, state: _Peer) -> int:
        if state.standing is Standing.TRUSTED:
            return state.heard_at + self._config.suspect_ns
        verify_ns, attempts = self._config.verify_ns, self._config.verify_attempts
        return state.asked_at + state.asked * verify_ns // attempts - (state.asked - 1) * verify_ns // attempts

    def _examine(self, peer: Address, state: _Peer, now: int) -> list[Effect]:
        if state.standing is Standing.SUSPECTED or now < self._deadline(state):
            return []
        if state.standing is Standing.TRUSTED:
            state.standing, state.asked = Standing.ASKED, 0
        if state.asked == self._config.verify_attempts:
            state.standing = Standing.SUSPECTED
            return [Suspected(peer)]
        state.asked, state.asked_at = state.asked + 1, now
        return [Transmit(peer, AreYouAlive())]

    def _check(self) -> None:
        assert self._local not in self._peers
        for state in self._peers.values():
            assert 0 <= state.asked <= self._config.verify_attempts
