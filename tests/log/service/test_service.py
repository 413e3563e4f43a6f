"""The service itself: its doors, its bounds, its errors from within, and that nothing is left when it closes."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from motet.errors import ConfigError, LogBusyError, LogUnavailableError
from motet.log.service.connections import drop_connections
from motet.log.service.flight import LogService, ServiceLimits
from motet.log.service.streams import within
from tests.log.service.memory import MemorySource, client_of, positions_of, rows, wait_for


def refuses(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


def own_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("motet-log")}


def test_closing_ends_followers_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    service = LogService(MemorySource(10))
    client = flight.connect(f"grpc://{service.endpoint}")
    readers = [client.do_get(flight.Ticket(b'{"follow_from": 10}')) for _ in range(3)]
    assert [reader.read_chunk().data.num_rows for reader in readers] == [1, 1, 1]
    service.close()
    service.close()
    for reader in readers:
        with pytest.raises(flight.FlightUnavailableError, match="closing"):
            reader.read_chunk()
    assert refuses(service.endpoint)
    assert not own_threads()
    client.close()


def test_closing_does_not_wait_for_a_reader_that_does_not_read() -> None:
    service = LogService(MemorySource(200_000), limits=ServiceLimits(grace_s=0.05))
    client = flight.connect(f"grpc://{service.endpoint}")
    reader = client.do_get(flight.Ticket(b'{"first": 1, "last": 200000, "batch_rows": 1000}'))
    assert reader.read_chunk().data.num_rows == 1000
    service.close()
    with pytest.raises(flight.FlightError):
        list(reader)
    assert refuses(service.endpoint)
    assert not own_threads()
    client.close()


def test_only_connections_of_the_port_are_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        caller = socket.create_connection(("127.0.0.1", port))
        answerer, _ = listener.accept()
        assert drop_connections(port + 1 if port < 65535 else port - 1) == 0
        assert drop_connections(port) == 1
        assert caller.recv(1) == b""
        caller.close()
        answerer.close()
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()


def test_looking_for_connections_leaves_no_descriptor_open() -> None:
    before = sorted(Path("/dev/fd").iterdir())
    assert drop_connections(1) == 0
    assert sorted(Path("/dev/fd").iterdir()) == before


def test_followers_are_bounded_and_their_places_come_back() -> None:
    source = MemorySource(3)
    with LogService(source, limits=ServiceLimits(followers=2)) as service:
        client = flight.connect(f"grpc://{service.endpoint}")
        readers = [client.do_get(flight.Ticket(b'{"follow_from": 1}')) for _ in range(2)]
        for reader in readers:
            reader.read_chunk()
        with client_of(service, timeout_s=0) as third, pytest.raises(LogBusyError, match="2 followers are served"):
            next(third.follow(1))
        readers[0].cancel()
        wait_for(lambda: service.health()["calls"]["followers"] == 1)
        with client_of(service) as third:
            assert positions_of([next(third.follow(1))]) == [1, 2, 3]
        readers[1].cancel()
        wait_for(lambda: service.health()["calls"] == {"followers": 0, "reads": 0, "appends": 0})
        client.close()


class BrokenSource(MemorySource):
    """Its disk fails in the middle."""

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from super().read(first, min(last, 20), batch_rows)
        raise OSError(5, "Input/output error", "/secret/path")


def test_a_failure_within_is_told_without_details_and_may_be_retried_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with LogService(BrokenSource(40)) as service, client_of(service, timeout_s=0) as client:
        with caplog.at_level(logging.CRITICAL, "motet.log.service"), pytest.raises(LogUnavailableError) as error:
            list(client.read(1, 40))
        assert "OSError" in str(error.value)
        assert "secret" not in str(error.value)


class EmptySource(MemorySource):
    """Claims rows and gives none."""

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        return iter(())


def test_a_source_that_gives_nothing_is_an_error_and_no_endless_loop() -> None:
    with (
        LogService(EmptySource(40)) as service,
        client_of(service, timeout_s=0) as client,
        pytest.raises(LogUnavailableError, match="cannot read position 1 of its own log"),
    ):
        list(client.read(1, 40))


def test_a_large_batch_travels_in_pieces() -> None:
    batch = rows(1, 9, [b"x" * 1000] * 8 + [b"y" * 50_000])
    pieces = list(within(batch, 4000))
    assert positions_of(pieces) == list(range(1, 10))
    assert all(piece.nbytes <= 4000 or piece.num_rows == 1 for piece in pieces)
    assert list(within(batch, 1 << 20)) == [batch]


def test_a_port_that_is_taken_is_a_clear_error(capfd: pytest.CaptureFixture[str]) -> None:
    with LogService(MemorySource()) as service, pytest.raises(ConfigError, match="check that the port is free"):
        LogService(MemorySource(), bind=service.endpoint)


@pytest.mark.parametrize("bind", ["", "127.0.0.1", ":7900", "127.0.0.1:x", "127.0.0.1:99999"])
def test_where_to_serve_is_checked(bind: str) -> None:
    with pytest.raises(ConfigError, match="is no endpoint"):
        LogService(MemorySource(), bind=bind)


def test_limits_are_checked() -> None:
    with pytest.raises(ConfigError, match="at least one call of each kind"):
        ServiceLimits(followers=0)


def test_ipv6() -> None:
    try:
        service = LogService(MemorySource(3), bind="[::1]:0")
    except ConfigError:
        pytest.skip("this machine has no IPv6 loopback")
    with service, client_of(service) as client:
        assert service.endpoint.startswith("[::1]:")
        assert positions_of(list(client.read(1, 3))) == [1, 2, 3]


def test_health_is_json() -> None:
    with LogService(MemorySource(3)) as service:
        assert json.loads(json.dumps(service.health()))["stable"] == 3
