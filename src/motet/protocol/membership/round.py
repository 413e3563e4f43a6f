"""One round of a coordinator: one ballot, what the participants answered to it, and what their answers say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from motet.protocol.core.identity import Address
from motet.protocol.core.view import Ballot, ViewId
from motet.protocol.membership.context import ViewContext
from motet.protocol.membership.merge import lacking_of
from motet.protocol.membership.primary import PrimaryRecord, combined
from motet.protocol.window.digest import DigestEntry, cut_of, merge_digests
from motet.protocol.wire.agreed import combined_agreed
from motet.protocol.wire.frames import AgreedNumbers, CutTo, LogCheckpoint, MemberReport, Prepared, Quads, StateNeed


@dataclass(slots=True)
class Round:
    context: ViewContext
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

    @property
    def late(self) -> list[Address]:
        done = self.ready if self.plan else self.answers.keys()
        return [member for member in self.participants if member not in done]

    @property
    def staying(self) -> tuple[Address, ...]:
        return tuple(member for member in self.participants if member not in self.leavers)

    # What the answers say together

    def digests(self) -> dict[Address, dict[Address, DigestEntry]]:
        member = self.context.member
        return {
            answered: {member(sender): DigestEntry(*entry) for sender, *entry in answer.report.digest}
            for answered, answer in self.answers.items()
        }

    @property
    def cut(self) -> Quads:
        cut = cut_of(self.digests())
        return tuple((s.incarnation, c.seqno, c.holder.incarnation, c.stable) for s, c in cut.items())

    @property
    def agreed(self) -> AgreedNumbers:
        return combined_agreed(answer.agreed for answer in self.answers.values())

    @property
    def record(self) -> PrimaryRecord:
        reports = [answer.report for answer in self.answers.values()]
        return combined(PrimaryRecord(report.last, report.attempts) for report in reports)

    @property
    def chains(self) -> tuple[int, ...]:
        """The earlier incarnations that the survivors stand for."""
        return tuple(incarnation for report in self._reports_of_survivors for incarnation in report.chain)

    @property
    def _reports_of_survivors(self) -> list[MemberReport]:
        return [answer.report for member, answer in self.answers.items() if member not in self.leavers]

    def report(self, epoch: ViewId) -> MemberReport:
        """Our part of a merge, as all its members answered for themselves."""
        digest: dict[Address, DigestEntry] = {}
        for theirs in self.digests().values():
            digest = merge_digests(digest, theirs)
        record = self.record
        position = max(answer.report.position for answer in self.answers.values())
        is_complete = any(report.is_complete for report in self._reports_of_survivors)
        return MemberReport(
            quads(digest), record.last, record.attempts, epoch, position, self.chains, is_complete=is_complete
        )

    @property
    def bootstrapping(self) -> tuple[Address, ...]:
        """Who counts when the group is bootstrapped."""
        return tuple(member for member, answer in self.answers.items() if answer.bootstraps)

    @property
    def wanting(self) -> tuple[int, ...]:
        answers = self.answers.items()
        return tuple(member.incarnation for member, answer in answers if answer.state is not StateNeed.UNWANTED)

    def lacking(self, members: Sequence[Address]) -> tuple[int, ...]:
        answers = ((member, self.answers.get(member)) for member in members)
        return lacking_of({member.incarnation: answer.state for member, answer in answers if answer is not None})


def quads(digest: Mapping[Address, DigestEntry]) -> Quads:
    return tuple((member.incarnation, entry.low, entry.delivered, entry.received) for member, entry in digest.items())
