"""Checks the metadata of journals on the driver: views, stable marks, owners of files, damage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from motet.audit.compare import ONLY_ORDER, UNSENT, RowDifference
from motet.audit.guarantees import (
    INTEGRITY,
    NO_DUPLICATES,
    NO_GAPS,
    STABILITY,
    TOTAL_ORDER,
    VIRTUAL_SYNCHRONY,
)
from motet.audit.inputs import InputSplit, MemberInput
from motet.audit.verdict import AuditFinding
from motet.log.journal.evidence import Facts, ViewFact
from motet.log.journal.owner import MOST_INCARNATIONS

FOREIGN = "foreign segment"


def journal_findings(members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
    for member in members:
        yield from _damage(member)
        yield from _foreign(member)
        yield from _seams(member)
        yield from _marks(member)
    yield from _rolled_back(members)


def _damage(member: MemberInput) -> Iterator[AuditFinding]:
    expected = "records as they were written"
    for one in member.facts.damage:
        yield AuditFinding(INTEGRITY, member.name, one.position + 1, "damaged", expected, one.reason, where=one.where)


def _foreign(member: MemberInput) -> Iterator[AuditFinding]:
    """Segments whose recorded owner is another member. Members hold equal rows, so the rows alone may not show it."""
    for split in member.splits:
        if _is_foreign(member, split.path):
            expected = f"a segment that {member.owners[-1]} wrote"
            found = f"one that {member.by_segment[split.path].owner} wrote"
            yield AuditFinding(INTEGRITY, member.name, split.first, FOREIGN, expected, found, where=split.path)


def _is_foreign(member: MemberInput, path: str) -> bool:
    """The owner file keeps a bounded number of incarnations; for older ones only the member's name is compared."""
    writer = member.by_segment[path].owner if path in member.by_segment else ""
    if not writer or not member.owners or writer in member.owners:
        return False
    return len(member.owners) <= MOST_INCARNATIONS or writer.partition("#")[0] != member.owners[-1].partition("#")[0]


def _seams(member: MemberInput) -> Iterator[AuditFinding]:
    """Neighbouring splits must be contiguous in positions, in bytes, and in the chained hash."""
    splits = sorted(member.splits, key=lambda split: (split.first, split.last))
    for before, after in pairwise(splits):
        due, found = f"position {before.last + 1} at its beginning", f"position {after.first}"
        if after.first > before.last + 1:
            yield AuditFinding(NO_GAPS, member.name, before.last + 1, "missing", due, found, where=after.path)
        elif after.first <= before.last:
            yield AuditFinding(NO_DUPLICATES, member.name, after.first, "position twice", due, found, where=after.path)
    known = [(split, member.by_segment[split.path]) for split in splits if split.path in member.by_segment]
    for (before, earlier), (split, later) in pairwise(known):
        if not _is_foreign(member, before.path) and not _is_foreign(member, split.path):
            yield from _seam(member, split, earlier, later)


def _seam(member: MemberInput, split: InputSplit, earlier: Facts, later: Facts) -> Iterator[AuditFinding]:
    if min(earlier.address, later.address) < 0 or earlier.interrupted_at:
        return  # one of the two cannot be read, which is another finding
    if later.address != earlier.address + earlier.size:
        expected = f"a segment that begins after {earlier.address + earlier.size} bytes of its journal"
        found = f"one that says {later.address}: it is another journal's"
        yield AuditFinding(INTEGRITY, member.name, split.first, FOREIGN, expected, found, where=split.path)
    if earlier.chain and later.chain_before != earlier.chain:
        expected, found = f"a segment that goes on from the chained hash {earlier.chain}", later.chain_before
        yield AuditFinding(INTEGRITY, member.name, split.first, "chain broken", expected, found, where=split.path)


def _marks(member: MemberInput) -> Iterator[AuditFinding]:
    """Within one journal, stable marks never decrease, and the positions below them are present.

    The mark in the owner file has no view, so it cannot be ordered among the marks of the segments.
    """
    highest = 0
    for mark in (mark for mark in member.facts.marks if mark.view):
        expected = f"stable to {highest} or further"
        if mark.stable < highest:
            found = f"a later mark says {mark.stable}"
            yield AuditFinding(
                STABILITY, member.name, mark.stable + 1, "rolled back", expected, found, where=mark.where
            )
        highest = max(highest, mark.stable)
    highest = max(highest, member.stable)
    if member.splits and highest > member.last:
        expected, found = f"positions to {highest}, which it calls stable", f"the journal ends at {member.last}"
        yield AuditFinding(STABILITY, member.name, member.last + 1, "rolled back", expected, found)


def _rolled_back(members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
    """A position that one member knew as stable in a view is in the journals of all members of that view."""
    views = {fact.view: fact.members for member in members for fact in member.views}
    for member in members:
        if not member.splits:
            continue
        known = [
            (mark.stable, other.name, mark.view)
            for other in members
            for mark in other.facts.marks
            if other is not member and set(views.get(mark.view, ())) & set(member.owners)
        ]
        stable, other_name, view = max(known, default=(0, "", ""))
        if stable > max(member.last, member.stable):
            expected = (
                f"positions to {stable}: {other_name} knew them as stable in view {view}, of which it was a member"
            )
            found = f"the journal ends at {member.last}"
            yield AuditFinding(
                STABILITY, member.name, member.last + 1, "rolled back", expected, found, (), (other_name,)
            )


def stable_differences(differing: Iterable[RowDifference], members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
    """A stable position with another message at some member was rolled back there."""
    stable = {member.name: member.stable for member in members}
    highest = max(stable.values(), default=0)
    for one in differing:
        if one.position <= min(highest, stable.get(one.member, 0)) and one.check != INTEGRITY:
            yield AuditFinding(
                STABILITY, one.member, one.position, one.kind, one.expected, one.found, one.neighbours, one.reference
            )


def synchrony_findings(members: Sequence[MemberInput], differing: Sequence[RowDifference]) -> Iterator[AuditFinding]:
    yield from _ends_of_views(members)
    after = {member.name: dict(pairwise(fact.view for fact in _primary(member))) for member in members}
    for one in differing:
        if one.kind == UNSENT or one.kind in ONLY_ORDER:
            continue
        following = after.get(one.member, {}).get(one.view)
        together = [name for name in one.reference if following and after.get(name, {}).get(one.view) == following]
        if together:
            yield AuditFinding(
                VIRTUAL_SYNCHRONY, one.member, one.position, one.kind, one.expected, one.found, one.neighbours,
                tuple(together), where=f"from view {one.view} to {following}",
            )  # fmt: skip


def _primary(member: MemberInput) -> list[ViewFact]:
    return [fact for fact in member.views if fact.is_primary]


def _ends_of_views(members: Sequence[MemberInput]) -> Iterator[AuditFinding]:
    """Members that went from V to W together installed W after the same position."""
    steps: dict[tuple[str, str], dict[str, int]] = {}
    for member in members:
        for before, after in pairwise(_primary(member)):
            steps.setdefault((before.view, after.view), {})[member.name] = after.position
    for (left, right), entered in sorted(steps.items()):
        positions = sorted(entered.values(), key=lambda position: -list(entered.values()).count(position))
        for name, position in sorted(entered.items()):
            if position != positions[0]:
                at = min(position, positions[0]) + 1
                expected, found = f"position {positions[0]} as the last one of view {left}", f"position {position}"
                same = tuple(other for other, place in entered.items() if place == positions[0])
                yield AuditFinding(
                    VIRTUAL_SYNCHRONY, name, at, "delivered another set", expected, found, (), same,
                    where=f"from view {left} to {right}",
                )  # fmt: skip


def stranger_findings(
    streams: Iterable[tuple[str, str, str, int]], members: Sequence[MemberInput]
) -> Iterator[AuditFinding]:
    """`streams` has (member, view, sender, first position): a sender must be a member of the view."""
    known = {fact.view: fact.members for member in members for fact in member.views if fact.members}
    for member, view, sender, position in streams:
        if view in known and sender not in known[view]:
            expected = f"a sender of view {view}: {', '.join(known[view])}"
            yield AuditFinding(INTEGRITY, member, position, UNSENT, expected, f"a message of {sender}")


def as_findings(differing: Iterable[RowDifference]) -> Iterator[AuditFinding]:
    """A difference violates the guarantee of its kind, and total order, since positions have different messages."""
    for one in differing:
        is_only_gone = one.kind == "missing" and not one.is_shifted
        also = [] if is_only_gone or one.kind == UNSENT else [TOTAL_ORDER]
        for check in dict.fromkeys([one.check, *also]):
            yield AuditFinding(
                check, one.member, one.position, one.kind, one.expected, one.found, one.neighbours, one.reference
            )
