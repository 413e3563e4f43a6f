"""The acting coordinator: the most senior member that is not suspected ends the view, and says what follows.

One round is one ballot: PREPARE to all who go on, their answers, the cut and the next view, READY of all, COMMIT. Who
is silent is accused and the round begins again without it; who has promised a later ballot makes us stand back.

Invariant: at most one round is under way, and its ballot is ours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from motet.protocol.core.effects import Effect, Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.view import Ballot, View, ViewId
from motet.protocol.membership.merge import lacking_of, lacks_everywhere
from motet.protocol.membership.participant import FlushTimedOut, Left, Participant
from motet.protocol.membership.primary import PrimaryRecord, combined, is_primary
from motet.protocol.window.digest import DigestEntry, cut_of
from motet.protocol.wire.agreed import combined_agreed
from motet.protocol.wire.frames import (
    Abort,
    AgreedNumbers,
    Commit,
    CutTo,
    Decision,
    Installed,
    LeaveRequest,
    LogCheckpoint,
    Nack,
    Prepare,
    Prepared,
    Quads,
    Ready,
    StateNeed,
)

MOST_EXTENSIONS = 3  # answer times that slow members get in addition
IN_DOUBT_ANSWERS = 4  # answer times that a part waits for the merge leader, and a member for whoever froze it


@dataclass(slots=True)
class Round:
    """The coordinator's side of one ballot."""

    ballot: Ballot
    participants: tuple[Address, ...]
    leavers: tuple[Address, ...]
    until: int  # whoever has not answered by then is suspected
    answer_ns: int  # how long one answer may take, as the network was when the round began
    extensions: int = 0  # how often its time was prolonged in this phase
    answers: dict[Address, Prepared] = field(default_factory=dict)
    plan: CutTo | None = None
    log: LogCheckpoint = field(default_factory=LogCheckpoint)  # where our own will stand when the view has ended
    ready: set[Address] = field(default_factory=set)
    voids: bool = False  # of the round before: nobody has installed, or will install, what it planned
    merge: Ballot | None = None  # this round prepares our part of a merge
    leader: Address | None = None  # of the merge

    @property
    def late(self) -> list[Address]:
        done = self.ready if self.plan else self.answers.keys()
        return [member for member in self.participants if member not in done]


@dataclass(slots=True)
class Push:
    """A COMMIT on its way to those who have not said that they installed it."""

    frame: Commit
    pending: list[Address]
    until: int


class Coordinator(Participant):
    _round: Round | None = None
    _push: Push | None = None
    _again_at: int | None = None  # we stood back for a later ballot; if nothing comes of it, try again then

    # What a merge adds

    def _tell_leader(self, current: Round) -> list[Effect]:
        """This round prepares our part of a merge, and has come a step further."""
        return []

    def _refuse_our_merge(self, reason: str) -> list[Effect]:
        """The round cannot go on as part of a merge."""
        return []

    def _give_up_leading(self) -> list[Effect]:
        return []

    def _is_in_doubt(self, current: Round) -> bool:
        """Whether others may install what this round planned, though we do not."""
        return False

    # What a participant tells

    def _superseded(self, ballot: Ballot) -> list[Effect]:
        if self._round is None or self._round.ballot >= ballot:
            return []
        return self._drop_round("another coordinator is changing this part")

    def _over(self) -> list[Effect]:
        self._again_at = None
        return self._drop_round("the view ended otherwise") + self._give_up_leading()

    def _begun(self, now: int) -> list[Effect]:
        return self._reconsider(now) + self._ask_to_leave(now)

    # Rounds

    def _reconsider(self, now: int) -> list[Effect]:
        """Begin, or begin again, if we are the one to act and there is something to do."""
        if self.has_left or self.acting_coordinator != self._local or self._again_at is not None:
            return []
        participants, current = self._trusted(), self._round
        leavers = () if self._is_busy(participants, now) else self._leaving()  # they ask again until they have left
        if current and current.participants == participants and set(leavers) <= set(current.leavers):
            return []
        if leavers or self._doubts or len(participants) < len(self.view.members):
            return self._begin(participants, leavers, now)
        return self._call_off(current, is_off=True) if current else []  # whom we had given up is trusted again

    def _trusted(self) -> tuple[Address, ...]:
        distrusted = self._distrusted()
        return tuple(member for member in self.view.members if member not in distrusted)

    def _leaving(self) -> tuple[Address, ...]:
        """Those who take part in their own leaving; one that is silent has crashed, and counts like the crashed."""
        return tuple(member for member in self._trusted() if member in self._leavers)

    def _begin(self, participants: tuple[Address, ...], leavers: tuple[Address, ...], now: int) -> list[Effect]:
        voids = self._round is not None and not self._is_in_doubt(self._round)
        effects = self._refuse_our_merge("a member of this part is gone, or wants to go")
        self._highest_round += 1
        ballot = Ballot(self._highest_round, self._local.incarnation)
        answer_ns = self._answer_ns
        self._round = Round(ballot, participants, leavers, now + answer_ns, answer_ns, voids=voids)
        return effects + [
            effect for member in participants for effect in self._send(member, self._question(self._round))
        ]

    def _question(self, current: Round) -> Frame:
        return current.plan or Prepare(self.view.id, current.ballot, current.participants, current.voids)

    def _on_prepared(self, source: Address, frame: Prepared, now: int) -> list[Effect]:
        current = self._current(frame.view, frame.ballot)
        if current is None or current.plan is not None or source not in current.participants:
            return []
        if frame.decided is not None:
            return self._adopt(current, frame.decided, now)
        if source in current.answers:
            return []  # said again because it was asked again; it gives nobody more time
        current.answers[source] = frame
        if current.late:
            return []
        if current.merge is not None:
            current.until = now + IN_DOUBT_ANSWERS * current.answer_ns
            return self._tell_leader(current)
        return self._plan_the_end(current, self._decide(current), self._record_of(current), now)

    def _plan_the_end(self, current: Round, decision: Decision, record: PrimaryRecord, now: int) -> list[Effect]:
        current.plan = CutTo(self.view.id, current.ballot, decision, record.last, record.attempts)
        current.until, current.extensions = now + current.answer_ns, 0
        return [effect for member in current.participants for effect in self._send(member, current.plan)]

    def _digests(self, current: Round) -> dict[Address, dict[Address, DigestEntry]]:
        return {
            member: {self._member(s): DigestEntry(low, delivered, received) for s, low, delivered, received in p.digest}
            for member, p in current.answers.items()
        }

    def _end_of(self, current: Round) -> Quads:
        cut = cut_of(self._digests(current))
        return tuple((s.incarnation, c.seqno, c.holder.incarnation, c.stable) for s, c in cut.items())

    def _agreed_of(self, current: Round) -> AgreedNumbers:
        return combined_agreed(answer.agreed for answer in current.answers.values())

    def _record_of(self, current: Round) -> PrimaryRecord:
        return combined(PrimaryRecord(answer.last, answer.attempts) for answer in current.answers.values())

    def _heirs(self, current: Round) -> tuple[int, ...]:
        """The earlier incarnations that those who go on stand for."""
        staying = [answer for member, answer in current.answers.items() if member not in current.leavers]
        return tuple(incarnation for answer in staying for incarnation in answer.earlier_incarnations)

    def _decide(self, current: Round) -> Decision:
        staying = tuple(member for member in current.participants if member not in current.leavers)
        members = staying or (self._local,)  # where all leave, the coordinator is the last to go
        record = self._record_of(current)
        view_id = self._next_id(max(record.highest_number, self.view.id.number))
        bootstrap_voters = [
            member for member in members if member in current.answers and current.answers[member].may_bootstrap
        ]
        lacking = self._lacking(current, members)
        counted = (members, record, current.leavers, bootstrap_voters, self._heirs(current))
        may_be = self.is_primary_with(*counted, lacking=lacking)
        following = View(view_id, members, may_be)
        cut = self._end_of(current)
        ends = {sender: seqno for sender, seqno, _, _ in cut}
        digest = tuple((member.incarnation, ends[member.incarnation]) for member in members)
        return Decision(cut, following, digest, (), lacking, self.epoch, agreed=self._agreed_of(current))

    def _wanting(self, current: Round) -> tuple[int, ...]:
        answers = current.answers.items()
        return tuple(member.incarnation for member, answer in answers if answer.state is not StateNeed.UNWANTED)

    def _lacking(self, current: Round, members: Sequence[Address]) -> tuple[int, ...]:
        answers = ((member, current.answers.get(member)) for member in members)
        return lacking_of({member.incarnation: answer.state for member, answer in answers if answer is not None})

    def is_primary_with(
        self,
        members: Sequence[Address],
        record: PrimaryRecord,
        leavers: Collection[Address],
        bootstrap_voters: Sequence[Address],
        heirs: Collection[int],
        lacking: Collection[int],
    ) -> bool:
        """Where nobody knows of a view that was installed as primary, the group is still to be founded.

        Where nobody has the application's state, the log waits: whoever comes back with the state has then missed
        nothing of the log.
        """
        if self._config.partitions == "all":
            return True
        if lacks_everywhere(members, lacking):
            return False
        if (
            record.last is None
            and not self._config.static_quorum
            and not self._surroundings.may_found(bootstrap_voters)
        ):
            return False
        return is_primary(members, [record], leavers, self._config.static_quorum, set(heirs))

    def _on_ready(self, source: Address, frame: Ready, now: int) -> list[Effect]:
        current = self._current(frame.view, frame.ballot)
        if current is None or current.plan is None or source in current.ready:
            return []
        current.ready.add(source)
        current.log = LogCheckpoint(frame.position, frame.producers) if source == self._local else current.log
        if not current.ready.issuperset(current.participants):
            return []
        if current.merge is not None:
            current.until = now + IN_DOUBT_ANSWERS * current.answer_ns
            return self._tell_leader(current)
        return self._commit(current, replace(current.plan.decision, **current.log._asdict()), now)

    def _adopt(self, current: Round, decision: Decision, now: int) -> list[Effect]:
        """Somebody saw how this view ends: then it ends so, for everybody who can still be told."""
        return self._refuse_our_merge("the view ended otherwise") + self._commit(current, decision, now)

    def _commit(self, current: Round, decision: Decision, now: int) -> list[Effect]:
        frame = Commit(self.view.id, current.ballot, decision)
        self._round = None
        others = [member for member in current.participants if member != self._local]
        self._push = Push(frame, others, now + current.answer_ns) if others else None
        effects = [effect for member in others for effect in self._send(member, frame)]
        return effects + self._send(self._local, frame)

    def _on_installed(self, source: Address, frame: Installed) -> list[Effect]:
        push = self._push
        if push is None or push.frame.decision.following.id != frame.view or source not in push.pending:
            return []
        push.pending.remove(source)
        return [] if push.pending else self._end_push()

    def _end_push(self) -> list[Effect]:
        self._push = None
        return self._go_when_free()

    def _go_when_free(self) -> list[Effect]:
        """A coordinator that leaves is free once the others have the view without it."""
        return [Left()] if self.has_left and self._push is None else []

    def _on_nack(self, source: Address, frame: Nack, now: int) -> list[Effect]:
        """A later ballot is under way. Ours will never be committed; we wait what comes of the other.

        Or the other is still in the view before ours, and needs the COMMIT that it missed; or it is frozen by a ballot
        of ours, and wants to know what has become of that.
        """
        is_question = frame.ballot == frame.promised
        if self._ended is not None and frame.view == self._ended.view:
            return self._send(source, self._ended) if is_question else []
        if frame.view != self.view.id:
            return []
        if frame.promised.proposer == self._local.incarnation:
            return self._remind(source, frame.promised)
        current = self._current(frame.view, frame.ballot)
        if current is None or frame.promised <= current.ballot:
            return []
        self._highest_round = max(self._highest_round, frame.promised.round)
        self._again_at = now + self._answer_ns
        is_off = not self._is_in_doubt(current)
        refusal = self._refuse_our_merge("another coordinator is changing this part")
        return refusal + self._call_off(current, is_off=is_off)

    def _remind(self, source: Address, ballot: Ballot) -> list[Effect]:
        """We are still in the view, so no plan of ours was committed in it; only that of a merge may be, by others."""
        current = self._current(self.view.id, ballot)
        if current is None:
            return self._send(source, Abort(self.view.id, ballot, is_off=not self._doubts))
        return self._send(source, self._question(current))

    def _call_off(self, current: Round, *, is_off: bool) -> list[Effect]:
        """`is_off`: nobody has installed what the round planned, and nobody will."""
        self._round = None
        if is_off and current.plan is not None:
            self._doubts.discard(current.plan.decision.following.id)
        frame = Abort(self.view.id, current.ballot, is_off)
        return [effect for member in current.participants for effect in self._send(member, frame)]

    def _drop_round(self, reason: str) -> list[Effect]:
        effects = self._refuse_our_merge(reason)
        self._round = None
        return effects

    # Leaving

    def _on_leave_request(self, source: Address, frame: LeaveRequest, now: int) -> list[Effect]:
        if frame.view != self.view.id or source not in self.view:
            return []
        self._leavers.add(source)
        return self._reconsider(now)

    def _ask_to_leave(self, now: int) -> list[Effect]:
        if not self._wants_to_leave or self.has_left:
            return []
        coordinator = self.acting_coordinator
        if self.view.members == (self._local,):
            self.has_left = True
            effects = self._drop_round("the last member of this part has left") + self._give_up_leading()
            return effects + self._go_when_free()
        return self._send(coordinator, LeaveRequest(self.view.id)) if coordinator else []

    # Time

    def _time_out_rounds(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._push is not None and now >= self._push.until:
            effects += self._end_push()  # whoever was not told will ask those who were
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            effects += self._reconsider(now)
        if self._round is not None and now >= self._round.until:
            effects += self._end_round(self._round, now)
        elif self._is_waiting_in_vain(now):
            effects += self._accuse([self._whom_we_wait_for()], now)
        return effects

    def _end_round(self, current: Round, now: int) -> list[Effect]:
        """Somebody in our part is late, or the leader of a merge is."""
        if current.late and self._prolong(current, now):
            return []
        if current.late and not (current.merge is not None and self._is_busy(current.late, now)):
            return self._refuse_our_merge("a member of this part is silent") + self._accuse(current.late, now)
        refusal = self._refuse_our_merge("a member of this part is busy; later") if current.late else []
        return refusal + self._call_off(current, is_off=not self._is_in_doubt(current)) + self._reconsider(now)

    def _prolong(self, current: Round, now: int) -> bool:
        """Whoever is late and still heard is alive and slow, on a processor or a network that has too much to do.

        It gets some more time, because to remove it costs two view changes. In a merge others wait for our part.
        """
        late = [member for member in current.late if member != self._local]
        is_slow = late and all(self._surroundings.was_heard(member, now - current.answer_ns) for member in late)
        if not is_slow or current.extensions >= (MOST_EXTENSIONS if current.merge is None else 1):
            return False
        current.extensions += 1
        current.until = now + current.answer_ns
        return True

    def _is_busy(self, members: Sequence[Address], now: int) -> bool:
        """Whether one of them is alive and cannot answer. Leaving and merging wait for it; a view change that removes
        somebody waits for it as for a slow member, and goes on without it then."""
        return any(self._surroundings.is_busy(member, now) for member in members)

    def _excuse_pause(self, late_ns: int) -> None:
        """We did not run for so long: what others sent meanwhile was not read yet, and they are not late by that."""
        if self._round is not None:
            self._round.until += late_ns
        if self._push is not None:
            self._push.until += late_ns
        if self._frozen_since is not None:
            self._frozen_since += late_ns

    def _is_waiting_in_vain(self, now: int) -> bool:
        """Whoever froze us is heard of no more, not even when asked: it repeats itself while it is at it."""
        is_waiting = self._frozen_since is not None and self._round is None
        return is_waiting and now - (self._frozen_since or 0) >= IN_DOUBT_ANSWERS * self._answer_ns

    def _accuse(self, members: list[Address], now: int) -> list[Effect]:
        """Go on without them. Where that is not ours to do any more, nobody stays frozen by our ballot.

        Where we are the only one who is late, there is nobody to go on without: the next ballot tries again.
        """
        accused = [member for member in members if member != self._local]
        self._accused.update(accused)
        self._frozen_since = now if self.is_frozen else None
        current = self._round
        effects = [FlushTimedOut(member) for member in accused] + self._reconsider(now)
        if current is None or self._round is not current:
            return effects
        return effects + self._call_off(current, is_off=not self._is_in_doubt(current)) + self._reconsider(now)

    def _repeat_round(self, under_way: Round | None, now: int) -> list[Effect]:
        """What was not answered is sent again; a round that has only just begun has asked everybody already."""
        effects: list[Effect] = []
        if self._push is not None:
            effects += [e for member in self._push.pending for e in self._send(member, self._push.frame)]
        if (current := self._round) is not None and current is under_way:
            effects += [e for member in current.late for e in self._send(member, self._question(current))]
            effects += self._tell_leader(current)
        if self._round is None:
            effects += self._ask_around(now)
        return effects + self._ask_to_leave(now)

    def _current(self, view: ViewId, ballot: Ballot) -> Round | None:
        is_ours = self._round is not None and view == self.view.id and ballot == self._round.ballot
        return self._round if is_ours else None
