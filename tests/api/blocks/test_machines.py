"""The machines of the blocks against dumb models, and copies of them against each other."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.api.blocks import CounterMachine, DictMachine, LockMachine
from motet.api.blocks import dictionary as dictionary_module
from motet.api.blocks import lock as lock_module
from motet.api.blocks.base import PositionedMachine, Refused
from motet.api.blocks.counter import LEAST, MOST, CounterOperation
from motet.api.blocks.counter import _packed as counter_operation
from motet.api.blocks.dictionary import ABSENT, ENTRY_BYTES, DictionaryOperation
from motet.api.blocks.dictionary import _packed as dict_operation
from motet.api.blocks.lock import ACQUIRE, MOST_WAITING, RELEASE, REQUEST
from motet.api.blocks.values import encode_value
from motet.protocol.core.view import View, ViewId
from tests.api.blocks.log import address

A, B, C = map(address, "abc")
PEOPLE = (A, B, C)
MACHINES: list[type[PositionedMachine]] = [CounterMachine, DictMachine, LockMachine]
SMALL = st.integers(-3, 3) | st.sampled_from([LEAST, MOST])
KEYS = st.sampled_from([b"a", b"b", "ü".encode()])
VALUES = st.sampled_from([encode_value(1), encode_value("x"), encode_value([b"y"])])


# Counter


@given(st.lists(st.tuples(st.sampled_from(CounterOperation), SMALL, SMALL), max_size=40))
def test_a_counter_is_a_number(operations: list[tuple[CounterOperation, int, int]]) -> None:
    machine, number = CounterMachine(), 0
    for position, (operation, first, second) in enumerate(operations, start=1):
        result = machine.apply(position, A, 1, counter_operation(operation, first, second))
        wanted = {
            CounterOperation.ADD: number + first,
            CounterOperation.SET: first,
            CounterOperation.COMPARE_AND_SET: second if number == first else number,
        }[operation]
        if not LEAST <= wanted <= MOST:
            assert isinstance(result, Refused)
            continue
        assert result == (number == first if operation is CounterOperation.COMPARE_AND_SET else wanted)
        number = wanted
        assert (machine.value, machine.applied) == (number, position)


# Dict


DICT_OPERATIONS = (
    st.tuples(st.just(DictionaryOperation.SET), st.tuples(KEYS, VALUES))
    | st.tuples(st.just(DictionaryOperation.SET), st.tuples(KEYS, VALUES, KEYS, VALUES))
    | st.tuples(st.just(DictionaryOperation.DELETE), st.tuples(KEYS))
    | st.tuples(st.just(DictionaryOperation.CLEAR), st.just(()))
    | st.tuples(
        st.just(DictionaryOperation.SET_IF), st.tuples(KEYS, VALUES | st.just(ABSENT), VALUES | st.just(ABSENT))
    )
)


def model(entries: dict[bytes, bytes], operation: DictionaryOperation, parts: tuple[bytes, ...]) -> object:
    before = entries.get(parts[0], ABSENT) if parts else None
    match operation:
        case DictionaryOperation.SET:
            entries.update(zip(parts[::2], parts[1::2], strict=True))
            return before
        case DictionaryOperation.DELETE:
            return entries.pop(parts[0], ABSENT)
        case DictionaryOperation.CLEAR:
            entries.clear()
            return True
        case DictionaryOperation.SET_IF:
            if before != parts[1]:
                return False
            entries[parts[0]] = parts[2]
            if parts[2] == ABSENT:
                del entries[parts[0]]
            return True


@given(st.lists(DICT_OPERATIONS, max_size=30))
def test_a_dict_is_a_dict(operations: list[tuple[DictionaryOperation, tuple[bytes, ...]]]) -> None:
    changes: dict[str, bytes] = {}  # as somebody who watches would put it together

    def watch(position: int, key: str, value: bytes) -> None:
        changes[key] = value

    machine, entries = DictMachine(watch), dict[bytes, bytes]()
    for position, (operation, parts) in enumerate(operations, start=1):
        result = machine.apply(position, A, 1, dict_operation(operation, *parts))
        assert result == model(entries, operation, parts)
        machine._check()
        assert list(machine.entries.items()) == [(key.decode(), value) for key, value in entries.items()]
    assert {key: value for key, value in changes.items() if value != ABSENT} == machine.entries


def test_a_dict_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary_module, "MOST_BYTES", 3 * (ENTRY_BYTES + 2))
    machine, value = DictMachine(), encode_value(1)
    for key in (b"a", b"b", b"c"):
        assert machine.apply(1, A, 1, dict_operation(DictionaryOperation.SET, key, value)) == ABSENT
    for refused in (
        dict_operation(DictionaryOperation.SET, b"d", value),
        dict_operation(DictionaryOperation.SET, b"a", encode_value(10)),
        dict_operation(DictionaryOperation.SET_IF, b"d", ABSENT, value),
    ):
        result = machine.apply(2, A, 1, refused)
        assert isinstance(result, Refused)
        assert result.reason.endswith("bytes, and 198 are the most")
    assert sorted(machine.entries) == ["a", "b", "c"]
    assert machine.apply(3, A, 1, dict_operation(DictionaryOperation.SET, b"a", encode_value(2))) == value
    machine._check()


# Lock


class LineModel:
    """A line of people, in the words of a child."""

    def __init__(self) -> None:
        self.line: list[tuple[str, int]] = []

    def release(self, who: tuple[str, int]) -> bool:
        if who in self.line:
            self.line.remove(who)
            return True
        return False


LOCK_STEPS = st.lists(
    st.tuples(st.sampled_from(["acquire", "release", "view"]), st.sampled_from(PEOPLE), st.integers(1, 3)), max_size=40
)


@given(LOCK_STEPS)
def test_a_lock_is_a_line(steps: list[tuple[str, object, int]]) -> None:
    machine, line = LockMachine(), LineModel()
    last_token = 0
    for position, (what, who, request) in enumerate(steps, start=1):
        assert who in PEOPLE
        person = next(one for one in PEOPLE if one == who)
        if what == "acquire":
            result = machine.apply(position, person, request, ACQUIRE)
            is_new = (person.name, request) not in line.line
            assert result == position if is_new else isinstance(result, Refused)
            line.line += [(person.name, request)] if is_new else []
        elif what == "release":
            result = machine.apply(position, person, request, RELEASE + REQUEST.pack(request))
            assert result is line.release((person.name, request))
        else:
            members = tuple(one for one in PEOPLE if one != person)
            machine.on_view(View(ViewId(position, 1), members, is_primary=True))
            line.line = [claim for claim in line.line if claim[0] != person.name]
        machine._check()
        assert [(claim.member.name, claim.request) for claim in machine.claims] == line.line
        if machine.holder is not None:
            assert machine.holder.token >= last_token  # a fence that only grows
            last_token = machine.holder.token


def test_a_lock_has_a_bound() -> None:
    machine = LockMachine()
    for request in range(MOST_WAITING + 1):
        assert machine.apply(request + 1, A, request, ACQUIRE) == request + 1
    assert machine.apply(9_999, B, 1, ACQUIRE) == Refused("4096 wait for it already")
    machine._check()


# All of them


@pytest.mark.parametrize("kind", MACHINES)
@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32))
def test_copies_never_part_whatever_comes(kind: type[PositionedMachine], seed: int) -> None:
    """Nonsense included; and one that begins from a snapshot in the middle is a copy like the others."""
    rng = Random(seed)
    one, other = kind(), kind()
    for position in range(1, 60):
        if rng.random() < 0.1:
            view = View(ViewId(position, 1), tuple(rng.sample(PEOPLE, 2)), is_primary=True)
            one.on_view(view)
            other.on_view(view)
            continue
        if rng.random() < 0.1:
            other = kind()
            other.restore(one.snapshot())
        sender, request, operation = rng.choice(PEOPLE), rng.randrange(4), _some_operation(rng)
        results = [machine.apply(position, sender, request, operation) for machine in (one, other)]
        assert results[0] == results[1]
        assert one.snapshot() == other.snapshot()


def _some_operation(rng: Random) -> bytes:
    keys = [b"a", b"b", b"\xff", bytes(5_000)]
    values = [encode_value("v"), encode_value({"k": b"v"}), b"no value", ABSENT]
    return rng.choice(
        [
            rng.randbytes(rng.randrange(1, 30)),
            counter_operation(rng.choice(list(CounterOperation)), rng.randrange(-3, 3), rng.randrange(-3, 3)),
            dict_operation(DictionaryOperation.SET, rng.choice(keys), rng.choice(values)),
            dict_operation(DictionaryOperation.DELETE, rng.choice(keys)),
            dict_operation(DictionaryOperation.SET_IF, rng.choice(keys), rng.choice(values), rng.choice(values)),
            dict_operation(DictionaryOperation.CLEAR, b"too much"),
            ACQUIRE,
            RELEASE + REQUEST.pack(rng.randrange(4)),
            dict_operation(DictionaryOperation.SET, b"a", b"v")[: rng.randrange(1, 9)],
        ]
    )


@pytest.mark.parametrize("kind", MACHINES)
@given(operation=st.binary(min_size=1, max_size=40))
def test_no_operation_raises(kind: type[PositionedMachine], operation: bytes) -> None:
    kind().apply(1, A, 1, operation)


@pytest.mark.parametrize("kind", MACHINES)
def test_an_empty_machine_has_a_snapshot(kind: type[PositionedMachine]) -> None:
    machine = kind()
    machine.restore(kind().snapshot())
    assert machine.snapshot() == kind().snapshot()


def test_a_dict_refuses_values_that_nobody_could_read() -> None:
    machine = DictMachine()
    for operation in (
        dict_operation(DictionaryOperation.SET, b"a", b"{"),
        dict_operation(DictionaryOperation.SET, b"a"),
        dict_operation(DictionaryOperation.SET),
        dict_operation(DictionaryOperation.SET, b"\xff", encode_value(1)),
        b"\x09",
    ):
        assert isinstance(machine.apply(1, A, 1, operation), Refused)
    assert machine.entries == {}
    with pytest.raises(ValueError, match="2 entries were announced"):
        machine.restore(b"\x01" + bytes(7) + b"\x02\x00\x00\x00")


def test_the_bounds_are_those_of_the_docs() -> None:
    assert (lock_module.MOST_WAITING, dictionary_module.MOST_BYTES) == (4_096, 256 << 20)
