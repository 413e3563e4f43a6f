"""A simulated process with membership: it discovers the group, installs views, leaves, and transfers its state.

Datagrams are addressed to an endpoint. Whichever process runs there when a datagram arrives receives it, so a restarted
process receives datagrams that were meant for its predecessor.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from motet.protocol.core.effects import Effect
from motet.protocol.core.identity import NOBODY, Address, Endpoint
from motet.protocol.core.view import View, ViewId
from motet.protocol.member import Delivered, DurableState, Member
from motet.protocol.membership import DetectorConfig, Left, ProvideState, StateReceived, ViewInstalled
from motet.protocol.ordering import RolledBack, StableAdvanced
from motet.protocol.wire.codec import encode
from motet.protocol.wire.frames import Busy
from motet.sim.world.history import EnteredView, PersistedAt, RolledBackAt, StableAt
from motet.sim.world.host import Host, HostContext

_MOST_STATE_BYTES = 3_000
POLLS_PER_SUSPICION = 4  # how often the liveness process polls per suspicion time, as in runtime/liveness.py


class GroupHost(Host):
    def __init__(
        self,
        member: Member,
        context: HostContext,
        rng: Random,
        home: Callable[[Endpoint], Address],
        watch: Callable[[GroupHost], None] | None = None,
    ) -> None:
        super().__init__(member, context, rng)
        self.is_leaving = False
        self.has_left = False
        self._home_of = home
        self._watch = watch  # called after every step
        self._delivered = 0  # how many messages were delivered, which is the application's state
        self._state = bytearray()  # the chunks of an incoming state transfer received so far
        self._state_rng = Random(f"state {member.address}")

    @property
    def durable_state(self) -> DurableState:
        """What the next incarnation of this process would recover from a journal."""
        return self.member.durable_state

    def begin(self) -> None:
        self.note("starts")
        self._enter(self.member.view, ())
        self.do(self.member.start)

    def be_busy(self, group: int, detector: DetectorConfig) -> None:
        """Pause the process while its liveness process keeps sending BUSY, as that of a real member does."""
        self.pause()
        interval_ns = min(detector.heartbeat_ns, detector.suspect_ns // POLLS_PER_SUSPICION)
        data = encode(group, self.address.incarnation, NOBODY, Busy(self.member.view.id))
        self._say_busy(data, 2 * interval_ns, interval_ns)

    def _say_busy(self, data: bytes, after_ns: int, interval_ns: int) -> None:

        def say() -> None:
            if not (self.is_alive and self.is_paused):
                return
            for peer in self.member.view.members:
                if peer != self.address:
                    self._transmit(self._home(peer), data)
            self._say_busy(data, interval_ns, interval_ns)

        self._world.scheduler.after(after_ns, say)

    def leave(self) -> None:
        self.note("asks to leave")
        self.is_leaving = True
        self._world.history.leavers.add(self.address)
        self.do(self.member.leave)

    def _perform(self, effects: list[Effect]) -> None:
        super()._perform(effects)
        if self.has_left and self.is_alive:  # a leaver stops only after all effects of this step
            self.is_alive = False
            self._world.history.dead.add(self.address)
            self.note("is gone")
        if self._watch is not None:
            self._watch(self)

    def _make_real(self, effect: Effect) -> list[Effect]:
        match effect:
            case ViewInstalled():
                self._enter(effect.view, effect.subviews)
                if self.address.incarnation in effect.lacking:
                    self._world.history.lacking.add((self.address, effect.view.id))
            case Left():
                self.has_left = True
            case ProvideState():
                state = self._take_snapshot(effect.view)
                return self.member.supply_state(effect.view, state, True, self.clock)
            case StateReceived():
                self._receive_state(effect)
            case StableAdvanced():
                self._record(StableAt(self._world.scheduler.now, self.address, effect.position))
            case RolledBack():
                self._record(RolledBackAt(self._world.scheduler.now, self.address, effect.first, effect.last))
            case Delivered():
                self._delivered += len(effect.messages)
                return super()._make_real(effect)
            case _:
                return super()._make_real(effect)
        return []

    def _record(self, event: StableAt | RolledBackAt | PersistedAt) -> None:
        self._world.history.events.append(event)
        self.note(str(event))

    def _home(self, to: Address | Endpoint) -> Address:
        return self._home_of(Endpoint(to.host, to.port))

    def _enter(self, view: View, subviews: tuple[View, ...]) -> None:
        self._world.history.events.append(EnteredView(self._world.scheduler.now, self.address, view, subviews))
        merged = f", a merge of {' and '.join(str(part.id) for part in subviews)}" if subviews else ""
        self.note(f"enters view {view}{merged}")

    # The application's state

    def _take_snapshot(self, view: ViewId) -> bytes:
        self.note(f"hands on its state in {view}")
        state = f"{self.address} in {view} after {self._delivered} messages".encode()
        state = state.ljust(self._state_rng.randrange(_MOST_STATE_BYTES), b".")
        self._world.history.supplied.setdefault(view, set()).add(state)
        return state

    def _receive_state(self, effect: StateReceived) -> None:
        if effect.is_first:
            self._state.clear()
        self._state += effect.data
        if effect.is_last:
            self.note(f"has the state in {effect.view}")
            self._world.history.received[self.address, effect.view] = bytes(self._state)
