"""The client: exact positions over members that die, lag, lie, fall silent or stand still."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from motet.errors import (
    ConfigError,
    LogBehindError,
    LogBrokenError,
    LogRequestError,
    LogTrimmedError,
    LogUnavailableError,
)
from motet.log.service.client import LogClient
from motet.log.service.flight import LogService, ServiceLimits
from motet.log.service.link import Offsets, check_positions
from tests.log.service.memory import MemorySource, client_of, payloads_of, positions_of, rows, wait_for

ABRUPT = ServiceLimits(grace_s=0.0)


@pytest.fixture
def nobody() -> str:
    """An endpoint where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_offsets_read_and_survey() -> None:
    with LogService(MemorySource(50, stable=40)) as service, client_of(service) as client:
        assert client.offsets() == Offsets(first=1, last=50, stable=40, epoch=3)
        batches = list(client.read(5, 40, batch_rows=10))
        assert [batch.num_rows for batch in batches] == [10, 10, 10, 6]
        assert payloads_of(batches) == [b"row %d" % position for position in range(5, 41)]
        assert client.survey() == {service.endpoint: Offsets(1, 50, 40, 3)}


def test_an_empty_range_asks_nobody(nobody: str) -> None:
    with client_of(nobody, timeout_s=0) as client:
        assert list(client.read(5, 4)) == []


def test_a_member_that_dies_in_the_middle_is_replaced_at_the_exact_row() -> None:
    first = LogService(MemorySource(100_000), limits=ABRUPT)
    with LogService(MemorySource(100_000)) as second, client_of(first, second) as client:
        stream = client.read(1, 100_000, batch_rows=1000)
        batches = [next(stream) for _ in range(3)]
        first.close()
        batches += stream
        assert positions_of(batches) == list(range(1, 100_001))
        assert second.health()["calls"]["reads"] == 0


def test_every_member_may_die_once_and_come_back() -> None:
    source = MemorySource(30_000)
    services = [LogService(source, limits=ABRUPT) for _ in range(2)]
    with client_of(*services, timeout_s=20) as client:
        stream = client.read(1, 30_000, batch_rows=100)
        batches = [next(stream)]
        for index in (0, 1, 0, 1):
            services[index].close()
            batches += [next(stream) for _ in range(20)]
            services[index] = LogService(source, bind=services[index].endpoint, limits=ABRUPT)
        batches += stream
    assert positions_of(batches) == list(range(1, 30_001))
    for service in services:
        service.close()


def test_a_follower_is_handed_over_at_the_exact_row() -> None:
    one, two = MemorySource(10), MemorySource(10)
    first = LogService(one, limits=ABRUPT)
    with LogService(two) as second, client_of(first, second) as client:
        stream = client.follow(8)
        batches = [next(stream)]
        two.grow(5)
        first.close()
        batches.append(next(stream))
        two.grow(5)
        batches.append(next(stream))
        assert [positions_of([batch]) for batch in batches] == [
            [8, 9, 10],
            [11, 12, 13, 14, 15],
            [16, 17, 18, 19, 20],
        ]


def test_follow_ends_when_the_client_is_closed() -> None:
    with LogService(MemorySource(3)) as service:
        client = LogClient([service.endpoint])
        stream = client.follow(1)
        found = [next(stream)]
        thread = threading.Thread(target=lambda: found.extend(stream))
        thread.start()
        wait_for(lambda: service.health()["calls"]["followers"] == 1)
        client.close()
        thread.join()
        assert positions_of(found) == [1, 2, 3]
        client.close()
        with pytest.raises(LogUnavailableError, match="this client is closed"):
            client.offsets()


def test_a_consumer_that_stops_early_frees_its_place() -> None:
    with LogService(MemorySource(100_000)) as service, client_of(service) as client:
        stream = client.read(1, 100_000, batch_rows=100)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        wait_for(lambda: service.health()["calls"]["reads"] == 0)


def test_a_member_that_is_down_is_avoided_and_a_dead_group_says_why(nobody: str) -> None:
    with LogService(MemorySource(5)) as service:
        with client_of(nobody, service) as client:
            assert client.offsets().stable == 5
            assert positions_of(list(client.read(1, 5))) == [1, 2, 3, 4, 5]
        members = [nobody, service.endpoint]
    with LogClient(members, timeout_s=0.1) as client, pytest.raises(LogUnavailableError) as error:
        client.offsets()
    assert "asking for offsets failed at each of 2 members" in str(error.value)
    assert all(f"{member}: " in str(error.value) for member in members)
    assert error.value.retryable


def test_what_one_member_has_trimmed_another_may_have() -> None:
    with (
        LogService(MemorySource(50, first=30)) as short,
        LogService(MemorySource(50)) as long,
        client_of(short, long) as client,
    ):
        assert positions_of(list(client.read(10, 50))) == list(range(10, 51))


def test_what_all_have_trimmed_fails_at_once_with_what_is_left() -> None:
    services = [LogService(MemorySource(50, first=first)) for first in (30, 20)]
    with client_of(*services, timeout_s=600) as client:
        with pytest.raises(LogTrimmedError, match="position 10 was deleted by retention") as error:
            list(client.read(10, 50))
        assert (error.value.asked, error.value.first, error.value.last) == (10, 20, 50)
        assert not error.value.retryable
        with pytest.raises(LogTrimmedError):
            next(client.follow(10))
    for service in services:
        service.close()


def test_a_trimmed_log_is_told_even_if_a_member_is_down(nobody: str) -> None:
    with (
        LogService(MemorySource(50, first=30)) as service,
        client_of(service, nobody, timeout_s=0.1) as client,
        pytest.raises(LogTrimmedError, match=nobody),
    ):
        list(client.read(10, 50))


def test_rows_that_are_stable_at_one_member_are_waited_for_at_the_next() -> None:
    """The stable position is gossip: a member that takes over may hear of it a moment later."""
    ahead, late = MemorySource(100), MemorySource(100, stable=60)
    first = LogService(ahead, limits=ABRUPT)
    with LogService(late) as second, client_of(first, second) as client:
        stable = client.offsets().stable
        first.close()
        stream = client.read(51, stable)
        assert positions_of([next(stream)]) == list(range(51, 61))
        late.set_stable(100)
        assert positions_of(list(stream)) == list(range(61, 101))


def test_a_range_that_nobody_has_says_how_far_the_log_goes() -> None:
    with LogService(MemorySource(20, stable=10)) as service, client_of(service, timeout_s=0.05) as client:
        stream = client.read(1, 99)
        assert positions_of([next(stream)]) == list(range(1, 11))
        with pytest.raises(LogBehindError, match="position 99 is not stable") as error:
            list(stream)
        assert (error.value.asked, error.value.last, error.value.stable) == (99, 20, 10)


def test_offsets_never_go_back() -> None:
    first = LogService(MemorySource(100), limits=ABRUPT)
    late = MemorySource(100, stable=70)
    with LogService(late) as second, client_of(first, second, timeout_s=0.1) as client:
        assert client.offsets().stable == 100
        first.close()
        with pytest.raises(LogBehindError, match="stable only to 70, while another member reported 100"):
            client.offsets()
        late.set_stable(100)
        assert client.offsets().stable == 100


def test_offsets_wait_for_a_member_that_is_about_to_know() -> None:
    first = LogService(MemorySource(100), limits=ABRUPT)
    late = MemorySource(100, stable=70)
    with LogService(late) as second, client_of(first, second, timeout_s=30) as client:
        assert client.offsets().stable == 100
        first.close()
        found: list[Offsets] = []
        asking = threading.Thread(target=lambda: found.append(client.offsets()))
        asking.start()
        wait_for(lambda: second.health()["calls"]["reads"] == 1)
        late.set_stable(100)
        asking.join()
        assert found[0].stable == 100


def test_a_member_that_stands_still_is_left_for_one_that_grows() -> None:
    """A member on the minority side of a partition answers, but its log does not grow."""
    with LogService(MemorySource(10)) as still, LogService(MemorySource(40)) as growing:
        with client_of(still, growing, stale_s=0.01) as client:
            stream = client.follow(1)
            assert positions_of([next(stream)]) == list(range(1, 11))
            assert positions_of([next(stream)]) == list(range(11, 41))
        with client_of(still, growing, stale_s=0.01) as client:
            wait_for(lambda: client.offsets().stable == 40)


class GappySource(MemorySource):
    """Loses a row on its way."""

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for batch in super().read(first, last, batch_rows):
            yield pa.concat_batches([batch.slice(0, 3), batch.slice(4)])


def test_a_member_with_a_gap_is_left_and_the_rows_come_from_another() -> None:
    with LogService(GappySource(30)) as liar, LogService(MemorySource(30)) as honest:
        with client_of(liar, honest) as client:
            assert positions_of(list(client.read(1, 30, batch_rows=10))) == list(range(1, 31))
        with client_of(liar) as client, pytest.raises(LogBrokenError, match="motet journal verify"):
            list(client.read(1, 30))


@pytest.mark.parametrize(
    "batch", [rows(2, 5), rows(1, 0).slice(0), pa.concat_batches([rows(1, 2), rows(2, 3)]), rows(1, 3).take([0, 2, 1])]
)
def test_positions_are_checked(batch: pa.RecordBatch) -> None:
    if not batch.num_rows:
        check_positions(batch, 1)
        return
    with pytest.raises(LogBrokenError):
        check_positions(batch, 1)


class OtherServer(flight.FlightServerBase):  # type: ignore[misc]
    """A Flight server, but not a log service."""

    def do_action(self, context: object, action: flight.Action) -> list[bytes]:
        return [b'{"first": 1}' if action.body.to_pybytes() else b"hello"]


def test_another_flight_server_is_recognised() -> None:
    with OtherServer("grpc://127.0.0.1:0") as server, client_of(f"127.0.0.1:{server.port}") as client:
        with pytest.raises(LogBrokenError, match="is this a log service"):
            client.offsets()
        with pytest.raises(LogBrokenError, match="is a Motet log service there"):
            list(client.read(1, 2))


class SilentSource(MemorySource):
    """Stops in the middle and says nothing more, as a host does that lost its power."""

    def __init__(self, last: int) -> None:
        super().__init__(last)
        self.is_over = threading.Event()

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from super().read(first, min(last, 7), batch_rows)
        self.is_over.wait()


def test_a_stream_that_falls_silent_is_taken_over() -> None:
    source = SilentSource(20)
    with LogService(source, limits=ABRUPT) as silent, LogService(MemorySource(20)) as well:
        with client_of(silent, well, silence_s=0.2) as client:
            assert positions_of(list(client.read(1, 20))) == list(range(1, 21))
        source.is_over.set()


def test_a_client_shared_by_threads() -> None:
    source = MemorySource(20_000)
    with LogService(source) as one, LogService(source) as two, client_of(one, two) as client:
        found: dict[int, list[int]] = {}

        def read(part: int) -> None:
            found[part] = positions_of(list(client.read(part * 5000 + 1, (part + 1) * 5000, batch_rows=500)))

        threads = [threading.Thread(target=read, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [position for part in range(4) for position in found[part]] == list(range(1, 20_001))


def test_nonsense_is_refused() -> None:
    nothing: list[str] = []
    for members in (nothing, "127.0.0.1:1"):
        with pytest.raises(ConfigError, match="at least one member"):
            LogClient(members)
    with pytest.raises(ConfigError, match="is no endpoint"):
        LogClient(["127.0.0.1"])
    with pytest.raises(ConfigError, match="timeout_s"):
        LogClient(["127.0.0.1:1"], timeout_s=-1)
    with LogClient(["127.0.0.1:1"]) as client, pytest.raises(LogRequestError, match='"first" is 0'):
        list(client.read(0, 5))


def test_nothing_runs_after_close() -> None:
    with LogService(MemorySource(5)) as service, client_of(service) as client:
        list(client.read(1, 5))
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("motet-log")}
