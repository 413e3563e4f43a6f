"""Hostile datagrams, made from what members really sent: each attack is a function of what was recorded, and chance."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any, NamedTuple

from motet.errors import MotetError
from motet.protocol.core.effects import Frame
from motet.protocol.core.identity import NOBODY, Address, Endpoint
from motet.protocol.core.limits import MAX_DATAGRAM_BYTES, MOST_COUNT
from motet.protocol.core.view import Ballot, View, ViewId
from motet.protocol.wire.codec import HEADER, DecodedDatagram, decode, encode, kind_name
from motet.protocol.wire.frames import (
    Abort,
    Commit,
    CutTo,
    Decision,
    Hello,
    HelloBack,
    Installed,
    LeaveRequest,
    Nack,
    Prepare,
)
from motet.protocol.wire.seal import Keyring, Sealer

RECORDED = 3_000  # genuine datagrams to play with
SAMPLES = 100  # of each kind of frame
FOREIGN_KEY = f"7:{'22' * 32}"
NUMBERS = (0, 1, 2, 255, 1 << 16, 1 << 32, 1 << 53, MOST_COUNT - 1, MOST_COUNT, MOST_COUNT + 1, 1 << 63, (1 << 64) - 1)


class Recorded(NamedTuple):
    source: Endpoint
    to: Endpoint
    data: bytes


class Attacker:
    """Hears all that is sent. `members` are those whose names it can use; what it makes is for one `victim`."""

    def __init__(self, rng: Random, group: int, members: Sequence[Address]) -> None:
        self.rng = rng
        self.group = group
        self.members = list(members)
        self.recorded: deque[Recorded] = deque(maxlen=RECORDED)
        self._foreign = Sealer(Keyring.of([FOREIGN_KEY]), 77, salt=7)
        self.by_kind: dict[str, deque[bytes]] = {}  # so that rare frames are played with as often as all others
        self.view_of: Callable[[Address], View] = lambda victim: View(ViewId(1, 1), (victim,), is_primary=False)
        self._ballots: dict[Address, Ballot] = {}  # the last one that each victim was made to promise, perhaps
        self.known: tuple[Attack, ...] = (
            *(self.mutated, self.mutated, self.forged, self.flipped),
            *(self.aimed, self.aimed, self.aimed, self.change_of_view),
        )
        self.unknown: tuple[Attack, ...] = (self.random, self.cut, self.stranger, self.reflected, self.oversized)
        self.again: tuple[Attack, ...] = (self.replayed, self.replayed_elsewhere)
        self.keyless: tuple[Attack, ...] = (
            *(self.random, self.cut, self.replayed, self.flipped, self.foreign_key, self.reflected),
        )

    def record(self, one: Recorded) -> None:
        self.recorded.append(one)
        self.by_kind.setdefault(kind_name(one.data), deque(maxlen=SAMPLES)).append(one.data)

    # Without any knowledge

    def random(self, victim: Address) -> bytes:
        return self.rng.randbytes(self.rng.randrange(0, 300))

    def cut(self, victim: Address) -> bytes:
        data = self._some()
        return data[: self.rng.randrange(len(data))]

    def oversized(self, victim: Address) -> bytes:
        return self._some() + bytes(self.rng.choice((1, 100, MAX_DATAGRAM_BYTES)))

    def flipped(self, victim: Address) -> bytes:
        data = bytearray(self._some())
        for _ in range(self.rng.randrange(1, 4)):
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        return bytes(data)

    def foreign_key(self, victim: Address) -> bytes:
        return self._foreign.seal(self._some())

    # What was sent before

    def replayed(self, victim: Address) -> bytes:
        return self._some(lambda one: one.to == victim.endpoint)

    def replayed_elsewhere(self, victim: Address) -> bytes:
        return self._some(lambda one: one.to != victim.endpoint)

    def reflected(self, victim: Address) -> bytes:
        """The victim's own datagrams, sent back to it, or a request to leave in its own name."""
        if self.rng.random() < 0.05:
            return encode(self.group, victim.incarnation, NOBODY, LeaveRequest(self.view_of(victim).id))
        data = self._some(lambda one: one.source == victim.endpoint)
        envelope = decode(self.group, data)
        if not isinstance(envelope, DecodedDatagram):
            return data
        return encode(self.group, victim.incarnation, self.rng.choice((NOBODY, victim.incarnation)), envelope.frame)

    # Frames of somebody

    def stranger(self, victim: Address) -> bytes:
        """Well-formed, and of nobody that anybody knows."""
        data = bytearray(self._some())
        data[HEADER.size - 16 : HEADER.size - 8] = self.rng.randbytes(8)
        data[HEADER.size - 8 : HEADER.size] = victim.incarnation.to_bytes(8, "little")
        return bytes(data)

    def mutated(self, victim: Address) -> bytes:
        """A genuine frame in which one field, or two, say something else."""
        frame = self._frame()
        for _ in range(self.rng.choice((1, 1, 2))):
            frame = self._changed(frame)
        return self._from_a_member(victim, frame)

    def forged(self, victim: Address) -> bytes:
        """A genuine frame, word for word, in the name of another member."""
        return self._from_a_member(victim, self._frame())

    def aimed(self, victim: Address) -> bytes:
        """A genuine frame that speaks of the view in which the victim is now, with one thing in it changed."""
        frame: Any = self._frame()
        view = self.view_of(victim)
        known = {each.name for each in fields(frame)}
        now: dict[str, Any] = {"view": view.id} if isinstance(getattr(frame, "view", None), ViewId) else {}
        if "ballot" in known:
            now["ballot"] = self._ballots.get(victim, Ballot(1, view.coordinator.incarnation))
        frame = replace(frame, **now)
        return self._from_a_member(victim, frame if self.rng.random() < 0.3 else self._changed(frame))

    def change_of_view(self, victim: Address) -> bytes:
        """One step of a view change that nobody began: with the ballot of the step before, most often."""
        view = self.view_of(victim)
        proposer = self.rng.choice(view.members)
        ballot = self._ballots.get(victim, Ballot(1, proposer.incarnation))
        decision = self._decision(view, proposer)
        choice = self.rng.randrange(8)
        if choice < 3:
            ballot = Ballot(self._near(ballot.round), proposer.incarnation)
            self._ballots[victim] = ballot
            return self._from_a_member(victim, Prepare(view.id, ballot, view.members, self.rng.random() < 0.5))
        if choice < 5:
            frame: Frame = CutTo(view.id, ballot, decision, self._some_view(view), ())
        elif choice == 5:
            frame = Commit(view.id, ballot, decision)
        elif choice == 6:
            frame = Nack(view.id, ballot, Ballot(self._near(ballot.round), proposer.incarnation))
        else:
            frame = self.rng.choice((LeaveRequest(view.id), Abort(view.id, ballot, True), Installed(view.id)))
        return self._from_a_member(victim, frame)

    def _decision(self, view: View, proposer: Address) -> Decision:
        members = [member for member in view.members if self.rng.random() < 0.9] or list(view.members)
        following = View(ViewId(self._near(view.id.number), proposer.incarnation), tuple(members), view.is_primary)
        cut = tuple((m.incarnation, self._near(5), proposer.incarnation, self._near(0)) for m in members)
        digest = tuple((m.incarnation, self._near(5)) for m in members if self.rng.random() < 0.9)
        log = (ViewId(0, 0), self._near(9))
        return Decision(cut if self.rng.random() < 0.5 else (), following, digest, (), (), *log)

    def _some_view(self, view: View) -> View | None:
        return self.rng.choice((None, view, replace(view, id=ViewId(self._near(view.id.number), 7))))

    def _near(self, value: int) -> int:
        return (
            value + self.rng.choice((0, 1, 1, 1, 2, 1000, 1 << 31)) if self.rng.random() < 0.8 else self._number(value)
        )

    def _from_a_member(self, victim: Address, frame: Frame) -> bytes:
        others = [member for member in self.members if member != victim]
        source = frame.sender if isinstance(frame, Hello | HelloBack) else self.rng.choice(others)
        to = self.rng.choice((NOBODY, victim.incarnation))
        try:
            return encode(self.group, source.incarnation, to, frame)
        except Exception:
            return self._some()  # such a frame cannot even be written

    def _frame(self) -> Frame:
        for _ in range(100):
            samples = self.by_kind[self.rng.choice(sorted(self.by_kind))]
            envelope = decode(self.group, samples[self.rng.randrange(len(samples))])
            if isinstance(envelope, DecodedDatagram):
                return envelope.frame
        raise AssertionError("nothing that was recorded is a frame")

    def _some(self, is_wanted: Callable[[Recorded], bool] = lambda one: True) -> bytes:
        for _ in range(20):
            one = self.recorded[self.rng.randrange(len(self.recorded))]
            if is_wanted(one):
                return one.data
        return one.data

    # Values of fields

    def _changed(self, value: Any) -> Any:
        """The same kind of value with one thing in it changed; it may be one that no constructor takes."""
        if is_dataclass(value) and not isinstance(value, type):
            name = self.rng.choice([each.name for each in fields(value) if each.init])
            try:
                return replace(value, **{name: self._changed(getattr(value, name))})
            except (MotetError, TypeError, ValueError):
                return value  # no constructor takes it
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self._number(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if isinstance(value, bytes | memoryview):
            return self._bytes(bytes(value))
        if isinstance(value, str):
            return self.rng.choice(("", "x" * 200, value + "\0"))
        return value

    def _number(self, value: int) -> int:
        near = (value + 1, max(0, value - 1), value + 1000, value + (1 << 31), value + (1 << 41))
        names = [member.incarnation for member in self.members]
        return self.rng.choice((*near, self.rng.choice(NUMBERS), self.rng.choice(names), self.rng.getrandbits(64)))

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value:
            return self.rng.choice(((), (self.rng.choice(self.members),), ((1, 1),), (1,)))
        at = self.rng.randrange(len(value))
        choice = self.rng.randrange(5)
        if choice == 0:
            return value[:at] + value[at + 1 :]
        if choice == 1:
            return (*value, value[at])
        if choice == 2:
            return value[::-1]
        changed = (*value[:at], self._changed(value[at]), *value[at + 1 :])
        return type(value)(*changed) if hasattr(value, "_fields") else changed

    def _bytes(self, value: bytes) -> bytes:
        if not value:
            return self.rng.randbytes(5)
        at = self.rng.randrange(len(value))
        return self.rng.choice((value[:at], value[:at] + self.rng.randbytes(1) + value[at + 1 :], value + b"\0" * 9))


Attack = Callable[[Address], bytes]
