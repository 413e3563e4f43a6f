"""A world in which primary views are formed, and a judge of the line that they make.

The world is a view change with everything cut away that the primary rule does not depend on. At each moment the
processes fall into components. Each component exchanges records, decides, records its attempt and installs the view,
and may be cut apart anywhere in between: what is left undone may be done later, or never.

    a process answers a change              -> from then on it records no change that it answered before
    the coordinator records first, then all -> only when every participant has recorded may anybody install
    nobody may install yet                  -> the coordinator may call the attempt off; then nobody ever will
    a new view                              -> its number is above those of all views that any participant knows of
    a newcomer records an attempt           -> and with it the views that the decision had to hold a majority of
    whoever leaves gracefully               -> takes part like a member, and goes when it hears of the new view;
                                               it may come back, with what it remembers or without
    a process restarts with its memory      -> under a new incarnation; it stands for those that it had before

The judge looks at all views that were ever *formed* (installed by somebody, or remembered by a leaver as the view that
followed), in the order of their ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from motet.protocol.core.identity import Address
from motet.protocol.membership import PrimaryRecord, View, ViewId, is_primary
from motet.protocol.membership.primary import bases, named_chain

MOST_PROCESSES = 7
ALL = (1 << MOST_PROCESSES) - 1  # a mask has a bit for each place in a component


class Verdict(Enum):
    """What the coordinator of an attempt says next."""

    COMMIT = "commit"
    CALL_OFF = "call off"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Change:
    """How far the change of one component gets; the masks say who leaves, who records, and who hears the verdict."""

    leavers: int
    recorders: int
    verdict: Verdict
    hearers: int
    is_remembered: bool = False  # those who leave come back with their memory


@dataclass(frozen=True, slots=True)
class Split:
    """The processes fall into components: a number for each place, and a change for each number."""

    components: tuple[int, ...]  # whose number has no change is alone and notices nothing
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Late:
    """Messages of an earlier attempt arrive after all."""

    attempt: int  # counted from the latest
    recorders: int
    verdict: Verdict
    hearers: int


@dataclass(frozen=True, slots=True)
class Restart:
    """A process comes back with its record; as the same member after a hang, or under a new incarnation."""

    place: int
    is_new_life: bool


@dataclass(frozen=True, slots=True)
class Replace:
    """A process is gone for good, and a newcomer that knows nothing takes its place."""

    place: int


Step = Split | Late | Restart | Replace


@dataclass(frozen=True, slots=True)
class History:
    size: int
    is_bootstrapped: bool  # all begin in one primary view; otherwise the first component that decides bootstraps
    steps: tuple[Step, ...]


@dataclass(slots=True, eq=False)
class Process:
    address: Address
    record: PrimaryRecord = field(default_factory=PrimaryRecord)
    view: View | None = None
    highest: int = 0  # the highest number of a view that it heard of
    answered: ViewId | None = None  # the change that it took part in last
    past: tuple[int, ...] = ()  # its earlier incarnations


@dataclass(slots=True, eq=False)
class Attempt:
    view: View
    participants: tuple[Process, ...]  # members and graceful leavers
    addresses: frozenset[Address]  # theirs, when they took part
    bases: tuple[View, ...]
    known: frozenset[View]  # what any participant knew as its last primary view or as an attempt
    is_remembered: bool
    recorded: set[Process] = field(default_factory=set)
    is_committed: bool = False
    is_called_off: bool = False


class BrokenLineError(AssertionError):
    """The primary views that were formed are not one line."""


class World:
    """Planted bugs override the public methods below `run`."""

    def __init__(self, size: int) -> None:
        self._born = 0
        self._origins: dict[int, int] = {}  # of each incarnation: the first one of the same memory
        self._processes: list[Process] = []
        self._attempts: list[Attempt] = []
        self._is_bootstrapped = False
        self.formed: list[Attempt] = []  # in the order of their ids
        self.seen: Counter[str] = Counter()
        for place in range(size):
            self._processes.append(Process(self._next_address(place)))

    def run(self, history: History) -> None:
        if history.is_bootstrapped:
            together = Change(leavers=0, recorders=ALL, verdict=Verdict.COMMIT, hearers=ALL)
            self._change(self._processes, together)
        for step in history.steps:
            self._play(step)

    # What may happen only if the engine is right

    def may_record(self, process: Process, attempt: Attempt) -> bool:
        return process.answered == attempt.view.id

    def may_commit(self, attempt: Attempt) -> bool:
        return not attempt.is_called_off and len(attempt.recorded) == len(attempt.participants)

    def may_call_off(self, attempt: Attempt) -> bool:
        return not attempt.is_committed

    def may_install(self, process: Process, attempt: Attempt) -> bool:
        """No stale view after a newer one, also when only the record remembers the newer one."""
        newest = [view.id for view in (process.view, process.record.last) if view is not None]
        return all(attempt.view.id > newer for newer in newest)

    def number(self, asked: Sequence[Process], coordinator: Address) -> int:
        """Higher than that of any view or attempt that a participant knows of, whoever made it."""
        return max(process.highest for process in asked) + 1

    def takes_part(self, leaver: Process) -> bool:
        return True

    def chains(self, staying: Sequence[Process]) -> set[int]:
        return {incarnation for process in staying for incarnation in named_chain(process.past, process.record)}

    def teach(self, newcomer: Process, attempt: Attempt) -> None:
        for base in attempt.bases:
            newcomer.record = newcomer.record.attempted(base)

    # Steps

    def _play(self, step: Step) -> None:
        if isinstance(step, Split):
            self._split(step)
        elif isinstance(step, Late):
            self._late(step)
        elif isinstance(step, Restart):
            self._restart(self._processes[step.place % len(self._processes)], step.is_new_life)
        else:
            self._replace(self._processes[step.place % len(self._processes)])

    def _split(self, step: Split) -> None:
        components: dict[int, list[Process]] = {}
        for number, process in zip(step.components, list(self._processes), strict=False):
            components.setdefault(number, []).append(process)
        for change, present in ((step.changes[n], components.get(n)) for n in range(len(step.changes))):
            if present:
                self._change(present, change)

    def _late(self, step: Late) -> None:
        if self._attempts:
            attempt = self._attempts[-1 - step.attempt % len(self._attempts)]
            before = len(attempt.recorded)
            self._record(attempt, step.recorders)
            self.seen["recorded late"] += len(attempt.recorded) > before
            self._say(attempt, step.verdict, step.hearers)

    def _restart(self, process: Process, is_new_life: bool) -> None:
        process.view = process.answered = None
        if is_new_life:
            self.live_again(process)
        self.seen["restarted"] += 1

    def live_again(self, process: Process) -> None:
        """Under a new incarnation, with all that is remembered."""
        before = process.address.incarnation
        process.address = self._next_address(self._processes.index(process), before)
        process.past = (*process.past, before)
        process.view = process.answered = None
        process.highest = max((view.id.number for view in _known([process.record])), default=0)
        self.seen["lives again"] += 1

    def _replace(self, process: Process) -> None:
        place = self._processes.index(process)
        self._processes[place] = Process(self._next_address(place))
        self.seen["replaced"] += 1

    def _next_address(self, place: int, before: int | None = None) -> Address:
        self._born += 1
        # Incarnations are no order of age: a newcomer may well have the smallest.
        incarnation = (self._born * 7919 % 10007) << 48
        self._origins[incarnation] = incarnation if before is None else self._origins[before]
        return Address("ABCDEFG"[place], "127.0.0.1", 7000 + place, incarnation)

    def _origins_of(self, addresses: Iterable[Address]) -> set[int]:
        return {self._origins[address.incarnation] for address in addresses}

    # One change

    def _change(self, present: Sequence[Process], change: Change) -> None:
        leaving = _picked(present, change.leavers)
        staying = [process for process in present if process not in leaving]
        if not staying:
            return
        asked = [process for process in present if process in staying or self.takes_part(process)]
        members = _ordered(staying, present)
        leavers = [process.address for process in leaving]
        records = [process.record for process in asked]
        chains = self.chains(staying)
        may_be_primary = is_primary(members, records, leavers, chains=chains) and self._may_bootstrap(records)
        number = self.number(asked, members[0])
        view = View(ViewId(number, members[0].incarnation), members, may_be_primary)
        for process in asked:
            process.highest, process.answered = number, view.id
        if not may_be_primary:
            self._install_not_primary(view, staying, change.hearers)
            return
        attempt = Attempt(
            view,
            tuple(asked),
            frozenset(process.address for process in asked),
            tuple(bases(records)),
            _known(records),
            change.is_remembered,
        )
        self._attempts.append(attempt)
        self._count(attempt, leavers, chains)
        self._record(attempt, change.recorders, coordinator=True)
        self._say(attempt, change.verdict, change.hearers)

    def _may_bootstrap(self, records: list[PrimaryRecord]) -> bool:
        """Let a bootstrap happen once: without a static quorum two sets of newcomers could bootstrap two groups."""
        if bases(records):
            return True
        was_bootstrapped, self._is_bootstrapped = self._is_bootstrapped, True
        return not was_bootstrapped

    def _install_not_primary(self, view: View, staying: Sequence[Process], hearers: int) -> None:
        for process in _picked(staying, hearers):
            process.view, process.record = view, process.record.installed(view)
        self.seen["not primary"] += 1

    def _record(self, attempt: Attempt, recorders: int, *, coordinator: bool = False) -> None:
        wanted = _picked(attempt.participants, recorders)
        for process in attempt.participants:
            is_coordinator = coordinator and process.address == attempt.view.coordinator
            if (is_coordinator or process in wanted) and process not in attempt.recorded:
                self._record_at(process, attempt)

    def _record_at(self, process: Process, attempt: Attempt) -> None:
        if self.may_record(process, attempt):
            if process.record.last is None:
                self.teach(process, attempt)
            process.record = process.record.attempted(attempt.view)
            attempt.recorded.add(process)

    def _say(self, attempt: Attempt, verdict: Verdict, hearers: int) -> None:
        if verdict is Verdict.COMMIT and self.may_commit(attempt):
            attempt.is_committed = True
            for process in _picked(attempt.participants, hearers):
                self._hear_commit(process, attempt)
        elif verdict is Verdict.CALL_OFF and self.may_call_off(attempt):
            attempt.is_called_off = True
            for process in _picked(attempt.participants, hearers):
                if process.address in attempt.addresses:
                    process.record = process.record.called_off(attempt.view)
            self.seen["called off"] += 1

    def _hear_commit(self, process: Process, attempt: Attempt) -> None:
        if process.address not in attempt.addresses or process not in self._processes:
            return  # another life by now, or gone
        if process.address not in attempt.view.members:
            self._leave(process, attempt)
        elif self.may_install(process, attempt):
            process.view, process.record = attempt.view, process.record.installed(attempt.view)
            self._form(attempt)

    def _leave(self, process: Process, attempt: Attempt) -> None:
        self.seen["left"] += 1
        if attempt.is_remembered:
            process.record = process.record.installed(attempt.view)
            self._form(attempt)  # it is decided, and one who was told so acts on it
            self.live_again(process)
            self.seen["left and remembered"] += 1
        else:
            self._replace(process)

    # The judge

    def _form(self, attempt: Attempt) -> None:
        if attempt in self.formed:
            return
        self.seen["formed"] += 1
        self.seen["formed late"] += any(later.view.id > attempt.view.id for later in self.formed)
        self.formed = sorted([*self.formed, attempt], key=lambda formed: formed.view.id)
        self._judge()

    def _judge(self) -> None:
        for earlier, later in zip(self.formed, self.formed[1:], strict=False):
            story = f"{later.view} was formed after {earlier.view}"
            if later.view.id.number <= earlier.view.id.number:
                raise BrokenLineError(f"{story} under a number that is not higher")
            if earlier.view not in later.known:
                raise BrokenLineError(f"{story} by {_names(later.addresses)}, none of whom knew of it")
            if self._origins_of(later.addresses).isdisjoint(self._origins_of(earlier.view.members)):
                raise BrokenLineError(f"{story} by {_names(later.addresses)}, none of whom was in it")
        self._judge_successors()

    def _judge_successors(self) -> None:
        """Implied by the line, and judged for itself: it is what the users of the rule are promised."""
        successors: dict[View | None, View] = {}
        for attempt in self.formed:
            before = [other.view for other in self.formed if other.view in attempt.known]
            predecessor = max(before, key=lambda view: view.id, default=None)
            other = successors.setdefault(predecessor, attempt.view)
            if self._origins_of(other.members).isdisjoint(self._origins_of(attempt.view.members)):
                raise BrokenLineError(f"{other} and {attempt.view} were both formed after {predecessor}")

    def _count(self, attempt: Attempt, leavers: list[Address], chains: set[int]) -> None:
        """What the histories came across, so that a test can demand that they came across everything."""
        counted = [[member for member in base.members if member not in leavers] for base in attempt.bases]
        halves = [base for base in counted if base and 2 * sum(who in attempt.view for who in base) == len(base)]
        records = [process.record for process in attempt.participants]
        self.seen["only by its chains"] += bool(chains) and not is_primary(attempt.view.members, records, leavers)
        self.seen["half with the most senior"] += bool(halves)
        self.seen["attempt over an interrupted one"] += len(attempt.bases) > 1
        self.seen["base shrunk by leavers"] += any(leaver in base for base in attempt.bases for leaver in leavers)
        self.seen["joined"] += bool(attempt.bases) and any(
            process.record == PrimaryRecord() for process in attempt.participants
        )


def _picked(places: Sequence[Process], mask: int) -> list[Process]:
    return [process for place, process in enumerate(places) if mask >> place & 1]


def _known(records: Sequence[PrimaryRecord]) -> frozenset[View]:
    last = {record.last for record in records if record.last is not None}
    return frozenset(last.union(*(record.attempts for record in records)))


def _ordered(staying: Sequence[Process], present: Sequence[Process]) -> tuple[Address, ...]:
    """Seniority of the latest view that anybody is in; the rest join it."""
    stay = [process.address for process in staying]
    views = [process.view for process in present if process.view is not None]
    if not views:
        return tuple(sorted(stay))
    senior = max(views, key=lambda view: view.id)
    return senior.next_members([member for member in senior.members if member not in stay], stay)


def _names(addresses: frozenset[Address]) -> str:
    return "{" + ", ".join(sorted(map(str, addresses))) + "}"


# Histories from a seed. Most masks are generous: a history in which nothing succeeds shows nothing.


def draw_history(rng: Random) -> History:
    size = rng.randint(2, MOST_PROCESSES)
    steps = tuple(_draw_step(rng, size) for _ in range(rng.randint(2, 16)))
    return History(size, rng.random() < 0.7, steps)


def _draw_step(rng: Random, size: int) -> Step:
    kind = rng.random()
    if kind < 0.6:
        count = rng.choice((1, 2, 2, 3))
        alone = rng.random() < 0.5
        components = tuple(rng.randrange(count + alone) for _ in range(size))
        return Split(components, tuple(_draw_change(rng) for _ in range(count)))
    if kind < 0.85:
        return Late(rng.choice((0, 0, 0, 1, 1, 2)), _draw_mask(rng), _draw_verdict(rng), _draw_mask(rng))
    return Restart(rng.randrange(size), rng.random() < 0.7) if kind < 0.96 else Replace(rng.randrange(size))


def _draw_change(rng: Random) -> Change:
    leavers = rng.getrandbits(MOST_PROCESSES) & rng.getrandbits(MOST_PROCESSES) if rng.random() < 0.25 else 0
    recorders = ALL if rng.random() < 0.8 else rng.getrandbits(MOST_PROCESSES)
    return Change(leavers, recorders, _draw_verdict(rng), _draw_mask(rng), rng.random() < 0.5)


def _draw_mask(rng: Random) -> int:
    kind = rng.random()
    if kind < 0.4:
        return ALL
    return 1 << rng.randrange(MOST_PROCESSES) if kind < 0.6 else rng.getrandbits(MOST_PROCESSES)


def _draw_verdict(rng: Random) -> Verdict:
    return rng.choices(list(Verdict), (7, 1, 1))[0]
