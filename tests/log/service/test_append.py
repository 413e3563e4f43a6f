"""Appends through a client: in order, once, whatever member fails and whenever."""

from __future__ import annotations

import pyarrow as pa
import pytest

from motet.errors import (
    LogReadOnlyError,
    LogUnavailableError,
    MessageTooLargeError,
    MisuseError,
    NotPrimaryError,
)
from motet.log.service.client import LogClient
from motet.log.service.flight import LogService
from motet.log.service.link import Appended
from tests.log.service.memory import FailingDoor, FakeGroup, MemorySource, client_of, payloads_of

DOWN = LogUnavailableError("the member is leaving")


def log_of(client: LogClient) -> list[bytes]:
    return payloads_of(list(client.read(1, client.offsets().stable)))


def test_one_unit() -> None:
    source = MemorySource()
    with LogService(source, FakeGroup(source)) as service, client_of(service) as client:
        assert client.append([b"a", b"b"], producer=9, sequence=1) == (1, 2)
        repeat = client.append([b"a", b"b"], producer=9, sequence=1)
        assert repeat == (0, 0)
        assert repeat.is_repeat
        assert client.append([b"c"], [b"key"], producer=9, sequence=2) == Appended(3, 3)
        assert log_of(client) == [b"a", b"b", b"c"]
        assert next(client.read(3, 3)).column("key").to_pylist() == [b"key"]


def test_a_large_batch_is_cut_and_its_units_are_numbered() -> None:
    source = MemorySource()
    group = FakeGroup(source, most_bytes=500)
    payloads = [b"%05d" % number * 10 for number in range(1000)]
    with LogService(source, group) as service, client_of(service) as client:
        appended = client.append_all(payloads, producer=9, batch_id=4)
        assert log_of(client) == payloads
        assert len(appended) == 112  # nine rows of 54 bytes to a unit; more than one call carries
        assert group.units == [(9, 4 * 2**20 + number) for number in range(112)]
        assert (appended[0].first, appended[-1].last) == (1, 1000)
        assert client.append_all([], producer=9, batch_id=5) == []


def test_a_batch_that_is_tried_again_adds_nothing_also_from_arrow_and_in_another_client() -> None:
    source = MemorySource()
    payloads = [b"%03d" % number for number in range(100)]
    with LogService(source, FakeGroup(source, most_bytes=70)) as service:
        with client_of(service) as client:
            client.append_all(payloads, payloads, producer=9, batch_id=0)
        with client_of(service) as client:
            again = client.append_all(pa.array(payloads), pa.array(payloads), producer=9, batch_id=0)
            assert all(unit.is_repeat for unit in again)
            client.append_all([b"next"], producer=9, batch_id=1)
            assert log_of(client) == [*payloads, b"next"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", [1, 3, 10])
def test_a_member_that_fails_in_the_middle_of_a_batch(when: str, call: int) -> None:
    """Also when the unit got in and only its answer was lost: the repeat at the next member is dropped."""
    source = MemorySource()
    group = FakeGroup(source, most_bytes=60)
    calls = frozenset({call})
    door = FailingDoor(
        group, DOWN, before=calls if when == "before" else frozenset(), after=calls if when == "after" else frozenset()
    )
    payloads = [b"%03d" % number for number in range(100)]
    with LogService(source, door) as weak, LogService(source, group) as well, client_of(weak, well) as client:
        appended = client.append_all(payloads, producer=9, batch_id=0)
        assert log_of(client) == payloads
        assert [unit.is_repeat for unit in appended].count(True) == (when == "after")
    assert [sequence for _, sequence in group.units] == list(range(13))


def test_a_member_outside_the_primary_view_is_left_for_another() -> None:
    source = MemorySource()
    group = FakeGroup(source)
    door = FailingDoor(group, NotPrimaryError("this member is cut off"), before=frozenset(range(1, 100)))
    with LogService(source, door) as minority, LogService(source, group) as majority:
        with client_of(minority, majority) as client:
            assert client.append([b"x"], producer=1, sequence=1) == (1, 1)
        with client_of(minority, timeout_s=0.1) as client, pytest.raises(NotPrimaryError, match="cut off"):
            client.append([b"y"], producer=1, sequence=2)


def test_read_only_members_are_passed_over() -> None:
    source = MemorySource()
    with LogService(source) as reader, LogService(source, FakeGroup(source)) as writer:
        with client_of(reader, writer) as client:
            assert client.append_all([b"x"], producer=1, batch_id=1) == [(1, 1)]
        with client_of(reader, timeout_s=600) as client:
            for append in (
                lambda: client.append([b"x"], producer=1, sequence=1),
                lambda: client.append_all([b"x"], producer=1, batch_id=1),
            ):
                with pytest.raises(LogReadOnlyError, match="read-only"):
                    append()


def test_what_no_member_can_take_is_refused_at_once() -> None:
    source = MemorySource()
    with LogService(source, FakeGroup(source, most_bytes=50)) as service, client_of(service, timeout_s=600) as client:
        with pytest.raises(MessageTooLargeError, match="takes 104 bytes"):
            client.append([b"x" * 100], producer=1, sequence=1)
        with pytest.raises(MessageTooLargeError, match="row 1 takes 104 bytes"):
            client.append_all([b"", b"x" * 100], producer=1, batch_id=1)
        assert source.bounds().last == 0


def test_the_cut_can_be_pinned() -> None:
    source = MemorySource()
    group = FakeGroup(source, most_bytes=1000)
    with LogService(source, group) as service, client_of(service, append_batch_bytes=20) as client:
        assert len(client.append_all([b"123456"] * 6, producer=1, batch_id=0)) == 3


def test_an_error_of_the_appender_keeps_its_kind() -> None:
    source = MemorySource()
    door = FailingDoor(FakeGroup(source), MisuseError("not like this"), before=frozenset({1}))
    with (
        LogService(source, door) as service,
        client_of(service) as client,
        pytest.raises(MisuseError, match="not like this"),
    ):
        client.append([b"x"], producer=1, sequence=1)
