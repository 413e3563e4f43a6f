"""A simulated process whose application state is the log itself, so that one state visibly extends another or not.

A state consists of its origin (the process whose initial state it began with) and every ordered message since. The
application reports a violation at once if it receives a message that does not follow its state, or a state that does
not extend its own. Its state provider may answer late, or refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from motet.protocol.core.effects import Channel, Effect
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.units import MILLISECOND
from motet.protocol.core.view import ViewId
from motet.protocol.member import Delivered, Member
from motet.protocol.membership import ProvideState, StateFailed, StateLost, StateReceived, ViewInstalled
from motet.protocol.ordering import RolledBack
from motet.sim.checkers.channels import Violation
from motet.sim.world.group_host import GroupHost
from motet.sim.world.host import HostContext

_LATE_NS = (0, 0, 0, 20 * MILLISECOND, 300 * MILLISECOND, 1_500 * MILLISECOND, 4_000 * MILLISECOND)
_REFUSES = 0.1
_END = b"\n"


class StateHost(GroupHost):
    def __init__(
        self,
        member: Member,
        context: HostContext,
        rng: Random,
        home: Callable[[Endpoint], Address],
        watch: Callable[[GroupHost], None],
        report_violation: Callable[[Violation], None],
        give_up: Callable[[StateHost], None],
    ) -> None:
        super().__init__(member, context, rng, home, watch)
        self.origin = str(member.address).encode()
        self.applied: list[bytes] = []
        self.is_groups = False  # its state belongs to a primary view
        self.is_prompt = False  # provides its state at once, and never refuses
        self.may_shrink = False  # the group was reset: an earlier state may be discarded
        self.lost_in: set[ViewId] = set()  # views in which it was notified that no member has the state
        self._report_violation = report_violation
        self._give_up = give_up

    @property
    def lacks_state(self) -> bool:
        return self.member.membership.is_waiting_for_state

    def _make_real(self, effect: Effect) -> list[Effect]:
        match effect:
            case ProvideState():
                self._provide(effect.view)
                return []
            case StateLost():
                self.lost_in.add(effect.view.id)
            case StateFailed() if effect.is_final:
                self._give_up(self)
            case RolledBack():
                del self.applied[effect.first - 1 :]
            case Delivered() if effect.channel is Channel.TOTAL:
                self._apply(effect)
            case ViewInstalled():
                if effect.view.is_primary and len(effect.lacking) == len(effect.view.members):
                    self._violate(f"{effect.view} is primary, and nobody in it has the state")
                self.is_groups |= effect.view.is_primary and self.address.incarnation not in effect.lacking
        return super()._make_real(effect)

    def _apply(self, effect: Delivered) -> None:
        first = effect.position or 0
        if effect.messages and first != len(self.applied) + 1 and not self.may_shrink:
            have = f"it has {len(self.applied)} of {self.origin.decode()}"
            self._violate(f"{self.address} continues at {first} without the state: {have}")
        self.applied += effect.messages

    def _violate(self, what: str) -> None:
        self._report_violation(Violation("state", what))

    # State transfer

    def _provide(self, view: ViewId) -> None:
        state = _END.join([self.origin, b"%d" % self.is_groups, *self.applied])
        self.note(f"is asked for its state in {view}, at {len(self.applied)}")
        if self.lacks_state:
            self._violate(f"{self.address} was asked for a state that it lacks")
        self._world.history.supplied.setdefault(view, set()).add(state)
        late_ns = 0 if self.is_prompt else self._state_rng.choice(_LATE_NS)
        refuses = not self.is_prompt and self._state_rng.random() < _REFUSES
        self._world.scheduler.after(late_ns, lambda: self._answer(view, state, refuses=refuses))

    def _answer(self, view: ViewId, state: bytes, *, refuses: bool) -> None:
        if self.is_paused or self.member.view.id != view:
            return
        if refuses:
            self.do(lambda now: self.member.refuse_state(view, "not now", now))
        else:
            self.do(lambda now: self.member.supply_state(view, state, True, now))

    def _receive_state(self, effect: StateReceived) -> None:
        super()._receive_state(effect)
        if effect.is_last:
            origin, is_groups, *applied = bytes(self._state).split(_END)
            self._take_over(origin, applied, is_groups=is_groups == b"1")

    def _take_over(self, origin: bytes, applied: list[bytes], *, is_groups: bool) -> None:
        is_longer = origin == self.origin and applied[: len(self.applied)] == self.applied
        if self.is_groups and not is_longer and not self.may_shrink:
            was, now = (self.origin.decode(), len(self.applied)), (origin.decode(), len(applied))
            self._violate(f"{self.address} had {was} and received {now}, which does not extend it")
        self.origin, self.applied, self.is_groups = origin, applied, is_groups
