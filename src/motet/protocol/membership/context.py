"""What the roles of one member share: the view and who is in it, and what was learned about it.

No role owns these facts: the participant installs views, the coordinator and the merge leader number new ones, and all
of them send. `Roles` is how one role reaches another; all five are made, and connected, by engine.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from motet.errors import MisuseError
from motet.protocol.core.counters import Counters
from motet.protocol.core.effects import Effect, Frame, Transmit
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_VIEW, View, ViewId
from motet.protocol.membership.interface import Cuts, EngineConfig, FlushTarget, MembershipCallbacks
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.window.digest import Cut
from motet.protocol.wire.frames import Commit, Quads

if TYPE_CHECKING:
    from motet.protocol.membership.announcer import CommitAnnouncer
    from motet.protocol.membership.coordinator import Coordinator
    from motet.protocol.membership.merge_leader import MergeLeader
    from motet.protocol.membership.merge_part import MergePart
    from motet.protocol.membership.participant import Participant

IN_DOUBT_ANSWERS = 4  # answer times that a part waits for the merge leader, and a member for whoever froze it


class ViewContext:
    def __init__(
        self,
        local: Address,
        view: View,
        channel: FlushTarget,
        config: EngineConfig,
        counters: Counters,
        record: PrimaryRecord | None,
        callbacks: MembershipCallbacks | None,
        epoch: ViewId = NO_VIEW,
        chain: tuple[int, ...] = (),
    ) -> None:
        if local not in view:
            raise MisuseError(f"{local} is not in the view that it starts with")
        self.local = local
        self.view = view
        self.channel = channel
        self.config = config
        self.counters = counters
        self.callbacks = callbacks or MembershipCallbacks()
        self.record = record if record is not None else PrimaryRecord().installed(view)
        self.epoch = max(epoch, view.id) if view.is_primary else epoch  # the last one whose log and state we share
        self.chain = chain  # our earlier incarnations, oldest first, whose durable state we have
        self.ended: Commit | None = None  # the COMMIT that ended the view before this one
        self.suspects: set[Address] = set()
        self.timed_out: set[Address] = set()  # in a flush of this view: treated as suspected until the next view
        self.leavers: set[Address] = set()
        self.wants_to_leave = False
        self.highest_number = max(view.id.number, self.record.highest_number, epoch.number)  # of any view made or known
        self.highest_round = 0  # of any ballot that was received in this view
        self.to_self: list[Frame] = []  # what we sent to ourselves; engine.py hands it back to us

    # Names

    @property
    def distrusted(self) -> set[Address]:
        return self.suspects | self.timed_out

    @property
    def trusted(self) -> tuple[Address, ...]:
        distrusted = self.distrusted
        return tuple(member for member in self.view.members if member not in distrusted)

    @property
    def leaving(self) -> tuple[Address, ...]:
        """Those who take part in their own leaving; one that is silent has crashed, and counts like the crashed."""
        return tuple(member for member in self.trusted if member in self.leavers)

    @property
    def acting_coordinator(self) -> Address | None:
        return self.view.acting_coordinator(self.distrusted)

    def member(self, incarnation: int) -> Address:
        """A member of this view by its incarnation; a stranger in a frame of ours is nonsense that names ourselves."""
        return next((member for member in self.view.members if member.incarnation == incarnation), self.local)

    def cut(self, cut: Quads) -> Cuts:
        known = {member.incarnation for member in self.view.members}
        return {self.member(s): Cut(seqno, self.member(h), stable) for s, seqno, h, stable in cut if s in known}

    # Numbers

    def next_id(self, known: int) -> ViewId:
        """Above every view that we made or know of: no id is used twice, and views are installed in their order."""
        self.highest_number = max(self.highest_number, known) + 1
        return ViewId(self.highest_number, self.local.incarnation)

    def is_above_ours(self, following: View) -> bool:
        """Views are installed in the order of their numbers, whatever was delayed on its way."""
        return following.id.number > self.view.id.number

    @property
    def answer_ns(self) -> int:
        return self.callbacks.answer_ns(self.config)

    # Sending

    def send(self, to: Address, frame: Frame) -> list[Effect]:
        """What a member sends to itself takes the same path as what it sends to others."""
        if to == self.local:
            self.to_self.append(frame)
            return []
        return [Transmit(to, frame)]

    def send_to_all(self, members: Iterable[Address], frame: Frame) -> list[Effect]:
        return [effect for member in members for effect in self.send(member, frame)]

    def send_each(self, sends: Iterable[tuple[Address, Frame]]) -> list[Effect]:
        return [effect for to, frame in sends for effect in self.send(to, frame)]


class Roles:
    """The five roles of one member, for one another."""

    participant: Participant
    coordinator: Coordinator
    announcer: CommitAnnouncer
    part: MergePart
    leader: MergeLeader
