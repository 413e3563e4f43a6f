"""The primary component: of all views that exist at one moment, at most one may grow the log.

A view is primary if it holds a majority of the last primary view (or exactly half of it with its most senior member),
and the same of every later view that was *attempted* as primary and of which any participant knows: somebody cut off
may have installed that one. Those who leave gracefully take part in the change and shrink what is counted.

    formed      a primary view that at least one member installed
    attempted   every participant records the view before anybody may install it; the record goes away when a later
                primary view is installed, or when the coordinator says that the attempt was called off

Why there is one line: whoever forms a primary view W2 after W1 was formed has, among its participants, a member of W1.
That member recorded W1 before W1 could be installed anywhere, so the decision about W2 counts W1 in, W2 holds a
majority of W1, and a second view with a majority of W1 cannot be formed without a member that knows of W2. For that,
the number of a new view must be above every view and attempt that any participant knows.

A process that restarts with its memory is the *heir* of its earlier incarnations. It kept their record, and nobody
else did: so wherever one of them stands in a view that is counted, the heir counts as that member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from motet.protocol.core.identity import Address
from motet.protocol.core.view import View

MOST_RECENT = 4  # incarnations that are named though our record has no view with them: others' records may


@dataclass(frozen=True, slots=True)
class PrimaryRecord:
    """What one member knows. With a journal it is on disk before the member says that it is ready."""

    last: View | None = None  # the last primary view that is known to have been installed
    attempts: tuple[View, ...] = ()  # primary views after it that were attempted, oldest first

    def attempted(self, view: View, counted: PrimaryRecord | None = None) -> PrimaryRecord:
        """Call before the member answers that it is ready for `view`.

        What the decision counted is recorded with it: a newcomer that knows nothing else would, with others like it,
        found a second line if all who knew the first one were gone.
        """
        known = combined([self, counted]) if counted else self
        if not view.is_primary or view in known.attempts:
            return known
        return replace(known, attempts=_in_order((*known.attempts, view)))

    def installed(self, view: View) -> PrimaryRecord:
        """A later primary view settles every attempt before it; a view that is not primary settles nothing."""
        if not view.is_primary or (self.last is not None and view.id < self.last.id):
            return self
        return PrimaryRecord(view, tuple(attempt for attempt in self.attempts if attempt.id > view.id))

    def called_off(self, view: View) -> PrimaryRecord:
        """The coordinator of the attempt says that nobody can have installed it."""
        return replace(self, attempts=tuple(attempt for attempt in self.attempts if attempt != view))

    @property
    def is_empty(self) -> bool:
        return self.last is None and not self.attempts

    @property
    def highest_number(self) -> int:
        return max((view.id.number for view in (self.last, *self.attempts) if view is not None), default=0)


def combined(records: Iterable[PrimaryRecord]) -> PrimaryRecord:
    """What several members know together: the last one installed, and the attempts after it."""
    known = list(records)
    installed = [record.last for record in known if record.last is not None]
    last = max(installed, key=lambda view: view.id, default=None)
    attempts = {attempt for record in known for attempt in record.attempts if last is None or attempt.id > last.id}
    return PrimaryRecord(last, _in_order(attempts))


def _in_order(views: Iterable[View]) -> tuple[View, ...]:
    return tuple(sorted(views, key=lambda view: view.id))


def is_primary(
    members: Collection[Address],
    records: Iterable[PrimaryRecord],
    leavers: Collection[Address] = (),
    static_quorum: int = 0,
    heirs: Collection[int] = (),
) -> bool:
    """Whether a view of `members` may be primary, given what all its participants know.

    `heirs`: the earlier incarnations for which members (not leavers) stand.

    Where nobody ever was in a primary view, the group is being founded and the view is primary. A static quorum of n
    replaces the rule by "at least n members", and so protects the founding, too.
    """
    if static_quorum:
        return len(members) >= static_quorum
    return all(_holds_majority(members, base, leavers, heirs) for base in bases(records))


def bases(records: Iterable[PrimaryRecord]) -> list[View]:
    """The views that a new primary view must hold a majority of: the last one known, and the attempts after it."""
    known = combined(records)
    return [view for view in (known.last, *known.attempts) if view is not None]


def named_past(earlier_incarnations: Sequence[int], record: PrimaryRecord) -> tuple[int, ...]:
    """Of all that a process once was, oldest first, what matters when majorities are counted."""
    views = [view for view in (record.last, *record.attempts) if view is not None]
    known = {member.incarnation for view in views for member in view.members}
    recent = earlier_incarnations[-MOST_RECENT:]
    return tuple(incarnation for incarnation in earlier_incarnations if incarnation in known or incarnation in recent)


def _holds_majority(
    members: Collection[Address], base: View, leavers: Collection[Address], heirs: Collection[int]
) -> bool:
    counted = [member for member in base.members if member not in leavers]
    if not counted:
        return True
    present = [member in members or member.incarnation in heirs for member in counted]
    return 2 * sum(present) > len(counted) or (2 * sum(present) == len(counted) and present[0])
