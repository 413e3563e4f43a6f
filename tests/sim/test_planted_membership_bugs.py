"""Break membership on purpose: the checkers of `membership`, `interrupted` or `presets` must catch each planted bug."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from motet.protocol.core.effects import Effect, Frame
from motet.protocol.core.identity import Address
from motet.protocol.core.view import NO_BALLOT, Ballot, View, ViewId
from motet.protocol.member import Member
from motet.protocol.member.channel import GroupChannel
from motet.protocol.membership import coordinator, participant
from motet.protocol.membership import round as rounds
from motet.protocol.membership.context import ViewContext
from motet.protocol.membership.coordinator import Coordinator
from motet.protocol.membership.detector import FailureDetector, Standing, Suspected
from motet.protocol.membership.discovery import Discovery
from motet.protocol.membership.engine import ViewEngine, ViewInstalled
from motet.protocol.membership.machine import Membership
from motet.protocol.membership.merge import MergeAttempt
from motet.protocol.membership.merge_part import MergePart
from motet.protocol.membership.participant import Participant, ParticipantInput, ParticipantState
from motet.protocol.membership.primary import PrimaryRecord
from motet.protocol.membership.round import Round
from motet.protocol.multicast.machine import Multicast
from motet.protocol.multicast.receiver import MulticastReceiver
from motet.protocol.multicast.sender import MulticastSender
from motet.protocol.window.digest import Cut, DigestEntry
from motet.protocol.wire.frames import (
    Commit,
    CutTo,
    MergeRequest,
    MergeResponse,
    MergeView,
    Prepare,
    Prepared,
    Ready,
)
from motet.sim.runner import run_seed

Plant = Callable[[pytest.MonkeyPatch], None]


def every_view_is_primary(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordinator, "is_primary", lambda *_: True)


def nobody_remembers_the_last_primary_view(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrimaryRecord, "installed", lambda self, view: PrimaryRecord())
    patch.setattr(PrimaryRecord, "attempted", lambda self, view, counted=None: PrimaryRecord())


def anybody_bootstraps_a_group(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "may_bootstrap", lambda self, members: True)


def the_rest_of_a_view_is_not_fetched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Multicast, "is_complete", lambda self, cut: True)


def nobody_goes_on_alone(patch: pytest.MonkeyPatch) -> None:
    """Whoever does not stand at the cut leaves for a view of its own: a second guard, behind which bugs could hide."""
    patch.setattr(Participant, "_is_where_we_stand", lambda self, following, cut: True)


def a_frozen_receiver_goes_on_delivering(patch: pytest.MonkeyPatch) -> None:
    nobody_goes_on_alone(patch)
    original = MulticastReceiver.freeze

    def freeze(self: MulticastReceiver) -> object:
        entry = original(self)
        self._limit = None
        return entry

    patch.setattr(MulticastReceiver, "freeze", freeze)


def a_frozen_sender_goes_on_sending(patch: pytest.MonkeyPatch) -> None:
    nobody_goes_on_alone(patch)
    original = MulticastSender.freeze

    def freeze(self: MulticastSender) -> object:
        entry = original(self)
        self._is_frozen = False
        return entry

    patch.setattr(MulticastSender, "freeze", freeze)


def a_new_view_takes_a_number_that_was_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewContext, "next_id", lambda self, known: ViewId(2, self.local.incarnation))


def views_are_never_merged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewEngine, "lead_merge", lambda self, coordinators, now: [])


def nobody_is_ever_suspected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewEngine, "suspect", lambda self, suspects, now: [])


def a_restart_at_the_same_place_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Discovery, "replaced", property(lambda self: ()))
    patch.setattr(ViewEngine, "suspect", lambda self, suspects, now: [])


def a_leaver_is_never_let_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinator, "on_leave_request", lambda self, source, frame, now: [])


def a_sender_stays_frozen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MulticastSender, "thaw", lambda self, now, is_paused: [])


def the_view_is_told_after_its_first_deliveries(patch: pytest.MonkeyPatch) -> None:
    original = Participant._enter

    def enter(self: Participant, decision: object, now: int) -> list[Effect]:
        effects = original(self, decision, now)  # type: ignore[arg-type]
        return sorted(effects, key=lambda effect: isinstance(effect, ViewInstalled))

    patch.setattr(Participant, "_enter", enter)


# What anybody who builds such a system does sooner or later.


def hearsay_in_digests(patch: pytest.MonkeyPatch) -> None:
    """A member reports what it was told that a sender has sent, as if it had it."""
    original = MulticastReceiver.freeze

    def freeze(self: MulticastReceiver) -> DigestEntry:
        entry = original(self)
        self._limit = max(entry.received, self._gaps._claimed)
        return replace(entry, received=self._limit)

    patch.setattr(MulticastReceiver, "freeze", freeze)


def the_own_digest_is_overwritten(patch: pytest.MonkeyPatch) -> None:
    """What others say of a stream counts more than what its sender says."""
    nobody_goes_on_alone(patch)
    original = Round.digests

    def digests(self: Round) -> dict[Address, dict[Address, DigestEntry]]:
        told = original(self)
        by_others = {sender for member, digest in told.items() for sender in digest if sender != member}
        return {
            member: {sender: entry for sender, entry in digest.items() if sender != member or sender not in by_others}
            for member, digest in told.items()
        }

    patch.setattr(Round, "digests", digests)


def a_higher_seqno_is_overwritten(patch: pytest.MonkeyPatch) -> None:
    """Of several entries the last one stands, not the highest."""

    def last_one(digests: Mapping[Address, Mapping[Address, DigestEntry]]) -> dict[Address, Cut[Address]]:
        return {
            sender: Cut(entry.received, survivor, entry.low)
            for survivor, digest in digests.items()
            for sender, entry in digest.items()
        }

    nobody_goes_on_alone(patch)
    patch.setattr(rounds, "cut_of", last_one)


def a_stale_view_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """A COMMIT is installed whatever view it ends, as long as it has us in the next."""
    original = Participant.on_commit

    def on_commit(self: Participant, source: Address, frame: Commit, now: int) -> list[Effect]:
        following, view, local = frame.decision.following, self._context.view, self._context.local
        if frame.view != view.id and local in following and following != view:
            installed = replace(frame, decision=replace(frame.decision, cut=()))
            return self.fire(ParticipantInput.COMMIT, source, installed, now)
        return original(self, source, frame, now)

    patch.setattr(Participant, "on_commit", on_commit)


def a_view_is_stuck_behind_a_full_window(patch: pytest.MonkeyPatch) -> None:
    reconsider, why_unsuitable = Coordinator.reconsider, MergePart._why_unsuitable

    def is_empty(self: Coordinator | MergePart) -> bool:
        assert isinstance(self._context.channel, GroupChannel)
        return self._context.channel.multicast.sender.is_drained

    def only_when_empty(self: Coordinator, now: int) -> list[Effect]:
        return reconsider(self, now) if is_empty(self) else []

    def busy_until_empty(self: MergePart, leader: Address) -> str | None:
        return why_unsuitable(self, leader) if is_empty(self) else "busy"

    patch.setattr(Coordinator, "reconsider", only_when_empty)
    patch.setattr(MergePart, "_why_unsuitable", busy_until_empty)


def a_joiner_enters_the_ack_table_at_0(patch: pytest.MonkeyPatch) -> None:
    original = MulticastSender.restart_acks

    def restart_acks(self: MulticastSender, members: Iterable[Address]) -> None:
        known = [member for member in members if member in self.acks]
        original(self, members)
        self.acks.retain(known, 0)
        self.acks.retain(members, 0)

    patch.setattr(MulticastSender, "restart_acks", restart_acks)


def the_past_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A process that restarts with its durable state does not count for what it was."""
    patch.setattr(participant, "named_chain", lambda past, record: ())


def a_past_without_its_record(patch: pytest.MonkeyPatch) -> None:
    """A process that restarts counts for what it was, and has forgotten what that knew."""
    original = vars(Member)["durable_state"].fget
    patch.setattr(Member, "durable_state", property(lambda self: replace(original(self), record=PrimaryRecord())))


# The rest of that list: bugs that show only if a view change is interrupted at a particular frame.


def attempted_views_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrimaryRecord, "attempted", lambda self, view, counted=None: self)


def a_commit_that_somebody_saw_is_not_adopted(patch: pytest.MonkeyPatch) -> None:
    original = Coordinator.on_prepared

    def on_prepared(self: Coordinator, source: Address, frame: Prepared, now: int) -> list[Effect]:
        return original(self, source, replace(frame, decided=None), now)

    patch.setattr(Coordinator, "on_prepared", on_prepared)


def a_commit_does_not_wait_for_all(patch: pytest.MonkeyPatch) -> None:
    original = Coordinator.on_ready

    def on_ready(self: Coordinator, source: Address, frame: Ready, now: int) -> list[Effect]:
        if self.round is not None:
            self.round.ready.update(member for member in self.round.participants if member != source)
        return original(self, source, frame, now)

    patch.setattr(Coordinator, "on_ready", on_ready)


def ballots_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks last is believed."""
    original = ViewEngine._handle

    def handle(self: ViewEngine, source: Address, frame: Frame, now: int) -> list[Effect]:
        is_of_ours = isinstance(frame, Prepare | CutTo | Commit) and frame.view == self.view.id
        role = self.participant
        if is_of_ours and frame.ballot != role.promised:  # type: ignore[attr-defined]
            role.promised = NO_BALLOT if isinstance(frame, Prepare) else frame.ballot  # type: ignore[attr-defined]
            role.plan = None
            role.state = ParticipantState.FROZEN if role.is_frozen else role.state
        return original(self, source, frame, now)

    patch.setattr(ViewEngine, "_handle", handle)


def a_merge_is_refused_by_silence(patch: pytest.MonkeyPatch) -> None:
    original = MergePart.on_request

    def on_request(self: MergePart, source: Address, frame: MergeRequest, now: int) -> list[Effect]:
        reason = self._why_stale(frame) or self._why_unsuitable(source)
        return [] if reason is not None else original(self, source, frame, now)

    patch.setattr(MergePart, "on_request", on_request)


def a_suspect_is_acted_on_unverified(patch: pytest.MonkeyPatch) -> None:
    def examine(self: FailureDetector, peer: Address, state: Any, now: int) -> list[Effect]:
        if state.standing is Standing.SUSPECTED or now < self._deadline(state):
            return []
        state.standing = Standing.SUSPECTED
        return [Suspected(peer)]

    patch.setattr(FailureDetector, "_examine", examine)


def what_is_received_is_let_go_before_it_is_stable(patch: pytest.MonkeyPatch) -> None:
    original = MulticastReceiver._deliver

    def deliver(self: MulticastReceiver) -> list[Effect]:
        effects = original(self)
        self.window.purge(self.window.delivered)
        return effects

    patch.setattr(MulticastReceiver, "_deliver", deliver)


def one_who_was_let_go_is_not_known_any_more(patch: pytest.MonkeyPatch) -> None:
    """So nobody answers when it asks what has become of its view. It was so once."""
    original = Discovery.begin

    def begin(self: Discovery, view: View, now: int) -> None:
        known = dict(self._known)
        original(self, view, now)
        self._known = known

    patch.setattr(Discovery, "begin", begin)


# A merge while parts change their views by themselves: `presets` has worlds in which its frames come seconds late.


def a_late_merge_request_is_answered_for_a_view_that_is_over(patch: pytest.MonkeyPatch) -> None:
    """Neither a question nor a plan says which view and round of the part it is for. It was so once."""
    on_plan = MergePart.on_plan

    def any_part(self: MergePart, frame: MergeRequest) -> str | None:
        self._joined.clear()
        return None

    def any_round(self: MergePart, source: Address, frame: MergeView, now: int) -> list[Effect]:
        current = self._roles.coordinator.round
        is_ours = current is not None and self._is_of(source, frame.merge)
        ballot = current.ballot if current is not None and is_ours else frame.ballot
        return on_plan(self, source, replace(frame, part=self._context.view.id, ballot=ballot), now)

    def first_answer(self: MergeAttempt, source: Address, frame: MergeResponse) -> bool:
        return source in self.parts and self.parts[source].response is None

    def any_ready(self: MergeAttempt, source: Address, ballot: Ballot) -> bool:
        return source in self.parts and not self.parts[source].is_ready

    patch.setattr(MergePart, "_why_stale", any_part)
    patch.setattr(MergePart, "on_plan", any_round)
    patch.setattr(ViewContext, "is_above_ours", lambda self, following: True)
    patch.setattr(MergeAttempt, "is_later", first_answer)
    patch.setattr(MergeAttempt, "is_for_the_plan", any_ready)


MOST_SEEDS = 500  # each must be caught within so many
# Where the search begins: an early seed that catches it, in a world that is quick.
BY_MEMBERSHIP: dict[Plant, int] = {
    every_view_is_primary: 2,
    nobody_remembers_the_last_primary_view: 2,
    anybody_bootstraps_a_group: 22,
    the_rest_of_a_view_is_not_fetched: 3,
    a_frozen_sender_goes_on_sending: 8,
    a_restart_at_the_same_place_is_not_noticed: 8,
    a_new_view_takes_a_number_that_was_used: 0,
    views_are_never_merged: 0,
    nobody_is_ever_suspected: 8,
    a_leaver_is_never_let_go: 24,
    a_sender_stays_frozen: 0,
    the_view_is_told_after_its_first_deliveries: 0,
    hearsay_in_digests: 14,
    the_own_digest_is_overwritten: 9,
    a_higher_seqno_is_overwritten: 13,
    a_stale_view_is_accepted: 9,
    a_view_is_stuck_behind_a_full_window: 8,
    a_joiner_enters_the_ack_table_at_0: 0,
    the_past_is_forgotten: 13,
    a_past_without_its_record: 41,
}
BY_INTERRUPTED: dict[Plant, int] = {
    attempted_views_are_forgotten: 2,
    a_commit_that_somebody_saw_is_not_adopted: 16,
    a_commit_does_not_wait_for_all: 1,
    ballots_are_ignored: 4,
    a_merge_is_refused_by_silence: 0,
    a_suspect_is_acted_on_unverified: 2,
    what_is_received_is_let_go_before_it_is_stable: 63,
    one_who_was_let_go_is_not_known_any_more: 67,
}
BY_PRESETS: dict[Plant, int] = {
    a_late_merge_request_is_answered_for_a_view_that_is_over: 35,
    a_frozen_receiver_goes_on_delivering: 14,
}
CASES = [
    pytest.param(scenario, plant, first, id=plant.__name__)
    for scenario, table in (("membership", BY_MEMBERSHIP), ("interrupted", BY_INTERRUPTED), ("presets", BY_PRESETS))
    for plant, first in table.items()
]


def first_caught(scenario: str, seeds: range) -> int | None:
    return next((seed for seed in seeds if not run_seed(scenario, seed).is_ok), None)


@pytest.mark.parametrize(("scenario", "plant", "first"), CASES)
def test_planted_bug_is_caught(scenario: str, plant: Plant, first: int) -> None:
    """Caught with the bug, and fine without it: so it is the bug that was caught."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        seed = first_caught(scenario, range(first, MOST_SEEDS))
    assert seed is not None, f"{plant.__name__} went through {MOST_SEEDS} seeds unseen"
    assert run_seed(scenario, seed).is_ok
