"""Discovery: find the coordinators of other views, wherever members may live, and notice who restarted.

    a view begins                      -> who went with the one before is asked for former_ns; probing is eager again
    a round is due, and we are active  -> a new nonce; HELLO to all endpoints worth it; every source is consulted
    HELLO of anybody                   -> HELLO_BACK to it; a stranger is asked in return
    HELLO_BACK, nonce of this round
      or the one before                -> its sender is an acquaintance, and its coordinator is asked as well
    the same, under another nonce      -> ignored: it may be of an earlier incarnation, or of a link that works no more
    the same, of another incarnation
      than the member had there         -> that member was replaced: it restarted and is dead
    a source found endpoints           -> the new ones are asked at once, the others in their turn
    a look-up failed                   -> what it named before stays; nobody may bootstrap until one succeeds again
    a datagram for an earlier
      incarnation of ours              -> whoever sent it is asked: a group that still counts us in would answer

Only HELLO_BACK is believed, because its nonce proves that both directions work now, and that it is no replay of an
earlier time. Nothing else moves `heard_foreign_at` and `heard_primary_at`, on which a bootstrap waits. An endpoint
where a member lives is asked only if a source names it, and only every RESIDENT_ROUNDS rounds: that shows when somebody
else lives there. Who is not active, or has no view yet, asks nobody; who has a view answers everybody.

Invariants: our own endpoint is never asked, and no endpoint twice in a round; the round itself asks at most
most_contacts, and all of it most_known; no table holds more than most_known; an acquaintance is no member of our view.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from motet.errors import MisuseError
from motet.protocol.core.checks import require_between
from motet.protocol.core.effects import Effect, Frame
from motet.protocol.core.identity import Address, Endpoint
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.core.view import NO_VIEW, View, ViewId, ViewSummary
from motet.protocol.wire.frames import Hello, HelloBack

RESIDENT_ROUNDS = 8  # a restart is seldom, and its own HELLO mostly tells of it sooner
FRESH_PROBES = 3  # answers in a row that may be lost before a foreign view counts as gone
NONCE_BITS = 64

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class StaticSeeds:
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class IpMulticast:
    host: str = "239.192.77.84"  # of the organisation-local scope: routers at its border keep it inside
    port: int = 7884


@dataclass(frozen=True, slots=True)
class DnsName:
    name: str
    port: int


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    path: str


Source = StaticSeeds | IpMulticast | DnsName | SharedDirectory


@dataclass(frozen=True, slots=True)
class DiscoveryConfig:
    """Where to look, and how often. The waits between rounds are eager_ns, twice that, ... probe_ns, probe_ns, ..."""

    sources: tuple[Source, ...] = ()
    eager_ns: int = 100 * MILLISECOND  # many start together: find them before anybody waits for it
    probe_ns: int = SECOND  # what it may take to notice that a partition healed
    former_ns: int = 600 * SECOND  # a partition or a reboot takes minutes
    most_contacts: int = 64  # of some 150 bytes: 10 kB per second at most
    most_known: int = 1024  # more than a group should have; some 100 kB per table

    def __post_init__(self) -> None:
        require_between("eager_ns", self.eager_ns, MILLISECOND, 60 * SECOND)
        require_between("probe_ns", self.probe_ns, self.eager_ns, 3_600 * SECOND)
        require_between("former_ns", self.former_ns, self.probe_ns, 86_400 * SECOND)
        require_between("most_contacts", self.most_contacts, 1, 65_536)
        require_between("most_known", self.most_known, self.most_contacts, 1_048_576)


@dataclass(frozen=True, slots=True)
class Contact(Effect):
    """Send one frame to an endpoint, whoever lives there."""

    to: Endpoint
    frame: Frame


@dataclass(frozen=True, slots=True)
class Announce(Effect):
    """Send one frame to an IP multicast group."""

    source: IpMulticast
    frame: Frame


@dataclass(frozen=True, slots=True)
class Consult(Effect):
    """Resolve the name, or enter our endpoint in the directory and list the others; `found` or `not_found` answers."""

    source: DnsName | SharedDirectory


@dataclass(slots=True)
class _Round:
    nonce: int
    view: ViewId  # the one that we were in when we asked
    asked: set[Endpoint] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Acquaintance:
    """An endpoint without a member that is asked until former_ns after `received_at`."""

    received_at: int
    answer: HelloBack | None = None  # None: a former member that has not answered since, or one that is forgotten


class _Rota:
    """Everybody has a turn before anybody has a second one, though who is in may change."""

    def __init__(self) -> None:
        self._last = Endpoint("", 0)

    def turn(self, endpoints: list[Endpoint], most: int) -> list[Endpoint]:
        if len(endpoints) <= most:
            return endpoints
        ordered = sorted(endpoints)
        start = bisect_right(ordered, self._last)
        chosen = (ordered[start:] + ordered[:start])[:most]
        self._last = chosen[-1] if chosen else self._last
        return chosen


class Discovery:
    def __init__(self, local: Address, config: DiscoveryConfig, rng: Random) -> None:
        self._local = local
        self._config = config
        self._rng = rng
        self._view = View(NO_VIEW, (local,), is_primary=False)
        self._homes = frozenset({local.endpoint})  # where the members of the view live
        self._is_active = True
        self._due: int | None = None  # None: no view has begun
        self._wait_ns = config.eager_ns
        self._rounds = 0
        self._round = self._before = self._draw_round()
        self._places = {  # what each source names
            source: self._others(source.endpoints) if isinstance(source, StaticSeeds) else ()
            for source in config.sources
        }
        self._looked_up: dict[Source, int | None] = {  # since when each look-up has succeeded every time
            source: None for source in config.sources if isinstance(source, DnsName | SharedDirectory)
        }
        self._acquaintances: dict[Endpoint, _Acquaintance] = {}  # the newest last, here and below
        self._known: dict[int, Address] = {}
        self._replaced: set[Address] = set()
        self._strangers, self._residents = _Rota(), _Rota()
        self.heard_foreign_at: int | None = None  # the last valid HELLO_BACK of somebody who is no member
        self.heard_primary_at: int | None = None  # the last of those that told a primary view

    @property
    def is_active(self) -> bool:
        return self._is_active

    @property
    def replaced(self) -> tuple[Address, ...]:
        """Members of the view that have restarted since it began: the lives that we know are over."""
        return tuple(member for member in self._view.members if member in self._replaced)

    @property
    def looked_up_at(self) -> int | None:
        """Since when all look-ups have succeeded, 0 without any; None while one has failed or has never ended."""
        since = [at for at in self._looked_up.values() if at is not None]
        return max(since, default=0) if len(since) == len(self._looked_up) else None

    def known(self, incarnation: int) -> Address | None:
        return self._known.get(incarnation)

    def foreign(self, now: int) -> tuple[ViewSummary, ...]:
        """Other views, each as its own coordinator told it a short while ago."""
        fresh_ns = FRESH_PROBES * self._config.probe_ns
        recent = (one.answer for one in self._acquaintances.values() if now - one.received_at <= fresh_ns)
        told = [answer.view for answer in recent if answer is not None and answer.sender == answer.view.coordinator]
        others = (summary for summary in told if summary.id != self._view.id)
        return tuple(sorted(others, key=lambda summary: (summary.id, summary.coordinator)))

    def begin(self, view: View, now: int) -> None:
        """A view was installed."""
        if self._local not in view:
            raise MisuseError(f"{self._local} is not in {view}; begin only a view that it was installed in")
        former = [member for member in self._view.members if member not in view]
        self._due = now if self._due is None else now + self._config.eager_ns
        self._wait_ns = self._config.eager_ns
        self._view, self._homes = view, frozenset(member.endpoint for member in view.members)
        self._replaced = set()
        self._acquaintances = {at: one for at, one in self._acquaintances.items() if self._is_stranger(at, one)}
        for member in former:
            self._remember(self._known, member.incarnation, member)  # it may not know yet, and ask what became of us
            if member.endpoint not in self._homes and member.endpoint not in self._acquaintances:
                self._remember(self._acquaintances, member.endpoint, _Acquaintance(now))

    def activate(self, now: int) -> None:
        """We are the acting coordinator, which probes for all of the view."""
        if not self._is_active and self._due is not None:
            self._due = now
        self._is_active = True

    def deactivate(self) -> None:
        self._is_active = False

    def found(self, source: DnsName | SharedDirectory, endpoints: Sequence[Endpoint], now: int) -> list[Effect]:
        """All that `source` names now."""
        if self._since(source) is None:
            self._looked_up[source] = now
        before = {*self._named(), *self._homes, *self._acquaintances}
        self._places[source] = self._others(endpoints)[: self._config.most_known]
        new = [endpoint for endpoint in self._places[source] if endpoint not in before]
        return self._ask(new[: self._config.most_contacts])

    def not_found(self, source: DnsName | SharedDirectory) -> None:
        """The look-up failed: what it named before is still asked, but its silence says nothing."""
        self._since(source)
        self._looked_up[source] = None

    def misaddressed(self, endpoint: Endpoint, now: int) -> list[Effect]:
        """A datagram for an earlier incarnation of ours came from there. It may be a replay: only an answer counts."""
        self._renew(now)
        return [] if endpoint in self._homes else self._ask([endpoint])

    def hello(self, frame: Hello, now: int) -> list[Effect]:
        sender = frame.sender
        if self._due is None or sender.endpoint == self._local.endpoint:  # by multicast we hear ourselves
            return []
        self._remember(self._known, sender.incarnation, sender)
        answer = Contact(sender.endpoint, HelloBack(self._local, self._view.summary, frame.nonce))
        if sender in self._view:
            return [answer]
        self._renew(now)
        return [answer, *self._ask([sender.endpoint])]

    def hello_back(self, frame: HelloBack, now: int) -> list[Effect]:
        sender, coordinator = frame.sender, frame.view.coordinator
        asked = next((one for one in (self._round, self._before) if one.nonce == frame.nonce), None)
        if asked is None or sender.endpoint == self._local.endpoint:
            return []
        self._remember(self._known, sender.incarnation, sender)
        if asked.view == self._view.id:  # an answer to an earlier view may be of a life before the one in this view
            there = (member for member in self._view.members if member.endpoint == sender.endpoint)
            self._replaced.update(member for member in there if member != sender)
        if sender in self._view:
            self._acquaintances.pop(sender.endpoint, None)  # whoever else lived there is gone
        else:
            self.heard_foreign_at = now
            self.heard_primary_at = now if frame.view.is_primary else self.heard_primary_at
            self._remember(self._acquaintances, sender.endpoint, _Acquaintance(now, frame))
        return [] if coordinator == sender or coordinator in self._view else self._ask([coordinator.endpoint])

    def notice(self, address: Address, now: int) -> list[Effect]:
        """Traffic of `address` was seen, which is no HELLO."""
        self._renew(now)
        return [] if address in self._view else self._ask([address.endpoint])

    def forget(self, coordinator: Address) -> None:
        """A merge with it failed: its view is foreign again when it answers again, for which it is still asked."""
        one = self._acquaintances.get(coordinator.endpoint)
        if one is not None and one.answer is not None and one.answer.sender == coordinator:
            self._acquaintances[coordinator.endpoint] = _Acquaintance(one.received_at)

    def tick(self, now: int) -> list[Effect]:
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return []
        self._due, self._wait_ns = now + self._wait_ns, min(2 * self._wait_ns, self._config.probe_ns)
        self._rounds += 1
        self._before, self._round = self._round, self._draw_round()
        kept = ((at, one) for at, one in self._acquaintances.items() if now - one.received_at <= self._config.former_ns)
        self._acquaintances = dict(kept)
        return self._ask(self._turn()) + [
            Announce(source, self._hello()) if isinstance(source, IpMulticast) else Consult(source)
            for source in self._places
            if not isinstance(source, StaticSeeds)
        ]

    def next_deadline(self) -> int | None:
        has_sources = any(not isinstance(source, StaticSeeds) or names for source, names in self._places.items())
        return self._due if self._is_active and (has_sources or self._acquaintances) else None

    def _since(self, source: DnsName | SharedDirectory) -> int | None:
        if source not in self._looked_up:
            raise MisuseError(f"{source} is no source of ours; name it in DiscoveryConfig.sources")
        return self._looked_up[source]

    def _renew(self, now: int) -> None:
        """With nobody to look for there are no rounds; one who comes by itself must not be taken for one just asked."""
        if self._due is not None and now >= self._due and self.next_deadline() is None:
            self._due = now + self._wait_ns
            self._before, self._round = self._round, self._draw_round()

    def _draw_round(self) -> _Round:
        return _Round(self._rng.getrandbits(NONCE_BITS), self._view.id)

    def _turn(self) -> list[Endpoint]:
        """Whom this round asks. An endpoint where a member lives is a stranger's when a stranger answered there."""
        named, most = self._named(), self._config.most_contacts
        strangers = [at for at in named if at not in self._homes and at not in self._acquaintances]
        residents = [at for at in named if at in self._homes and at not in self._acquaintances]
        chosen = self._residents.turn(residents, most) if self._rounds % RESIDENT_ROUNDS == 0 else []
        return self._strangers.turn([*strangers, *self._acquaintances], most - len(chosen)) + chosen

    def _ask(self, endpoints: Iterable[Endpoint]) -> list[Effect]:
        """HELLO to each that was not asked in this round."""
        if not self._is_active or self._due is None:
            return []
        effects: list[Effect] = []
        asked, hello = self._round.asked, self._hello()
        for endpoint in endpoints:
            if endpoint not in asked and endpoint != self._local.endpoint and len(asked) < self._config.most_known:
                asked.add(endpoint)
                effects.append(Contact(endpoint, hello))
        return effects

    def _hello(self) -> Hello:
        return Hello(self._local, self._view.summary, self._round.nonce)

    def _is_stranger(self, endpoint: Endpoint, one: _Acquaintance) -> bool:
        """Whether it is not of the view, nor an earlier incarnation of a member of the view."""
        return endpoint not in self._homes if one.answer is None else one.answer.sender not in self._view

    def _others(self, endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
        return tuple(at for at in dict.fromkeys(endpoints) if at != self._local.endpoint)

    def _named(self) -> list[Endpoint]:
        return list(dict.fromkeys(at for place in self._places.values() for at in place))

    def _remember(self, table: dict[Key, Value], key: Key, value: Value) -> None:
        table.pop(key, None)
        table[key] = value
        if len(table) > self._config.most_known:
            del table[next(iter(table))]

    def _check(self) -> None:
        most, own = self._config.most_known, self._local.endpoint
        assert max(len(self._acquaintances), len(self._known), len(self._round.asked)) <= most
        assert own not in self._acquaintances
        assert own not in self._round.asked | set(self._named())
        assert self._replaced <= set(self._view.members) - {self._local}
        for endpoint, one in self._acquaintances.items():
            if one.answer is not None:
                assert one.answer.sender.endpoint == endpoint
                assert one.answer.sender not in self._view
        assert self._config.eager_ns <= self._wait_ns <= self._config.probe_ns
