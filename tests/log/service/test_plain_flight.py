"""Any Flight client can use the log service: everything here is pyarrow.flight and JSON, nothing of Motet's client."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from motet.log.service.flight import LogService
from tests.log.service.memory import FakeGroup, MemorySource, wait_for


@pytest.fixture
def source() -> MemorySource:
    return MemorySource(last=100, stable=90)


@pytest.fixture
def service(source: MemorySource) -> Iterator[LogService]:
    with LogService(source, FakeGroup(source), group="orders") as service:
        yield service


@pytest.fixture
def plain(service: LogService) -> Iterator[flight.FlightClient]:
    with flight.connect(f"grpc://{service.endpoint}") as client:
        yield client


def ticket(**fields: object) -> flight.Ticket:
    return flight.Ticket(json.dumps(fields))


def act(client: flight.FlightClient, name: str, body: bytes = b"") -> dict[str, object]:
    (result,) = client.do_action((name, body))
    answer: dict[str, object] = json.loads(result.body.to_pybytes())
    return answer


def said(error: pytest.ExceptionInfo[flight.FlightError]) -> dict[str, object]:
    document: dict[str, object] = json.loads(error.value.extra_info)
    return document


def test_the_log_is_listed_with_schema_bounds_and_a_ticket_for_all_that_is_stable(plain: flight.FlightClient) -> None:
    (info,) = plain.list_flights()
    assert info.descriptor.path == [b"orders"]
    assert info.schema.names[0] == "position"
    assert info.total_records == 90
    assert json.loads(info.app_metadata)["stable"] == 90
    table = plain.do_get(info.endpoints[0].ticket).read_all()
    assert table["position"].to_pylist() == list(range(1, 91))


def test_a_descriptor_by_path_and_by_command_gives_a_ticket(plain: flight.FlightClient) -> None:
    by_path = plain.get_flight_info(flight.FlightDescriptor.for_path("orders"))
    by_command = plain.get_flight_info(flight.FlightDescriptor.for_command(b'{"first": 5, "last": 7}'))
    assert by_path.total_records == 90
    assert by_command.total_records == 3
    assert plain.do_get(by_command.endpoints[0].ticket).read_all()["position"].to_pylist() == [5, 6, 7]
    assert plain.get_schema(flight.FlightDescriptor.for_path("orders")).schema == by_path.schema


def test_a_range_comes_in_batches_of_the_size_asked_for(plain: flight.FlightClient) -> None:
    chunks = list(plain.do_get(ticket(first=11, last=40, batch_rows=12)))
    assert [chunk.data.num_rows for chunk in chunks] == [12, 12, 6]
    assert chunks[0].data.column("payload")[0].as_py() == b"row 11"


def test_an_empty_range_has_a_schema_and_no_rows(plain: flight.FlightClient) -> None:
    assert plain.do_get(ticket(first=91, last=90)).read_all().num_rows == 0


def test_rows_may_be_compressed_on_their_way(plain: flight.FlightClient) -> None:
    table = plain.do_get(ticket(first=1, last=90, compression="zstd")).read_all()
    assert table["position"].to_pylist() == list(range(1, 91))


def test_offsets_and_health(plain: flight.FlightClient) -> None:
    offsets = act(plain, "offsets")
    assert offsets == {"first": 1, "last": 100, "stable": 90, "epoch": 3, "group": "orders", "most_bytes": 1000}
    health = act(plain, "health")
    assert (health["status"], health["is_read_only"]) == ("serving", False)
    assert {action.type for action in plain.list_actions()} == {"offsets", "health"}


def test_offsets_wait_until_a_position_is_stable(plain: flight.FlightClient, source: MemorySource) -> None:
    answers: list[dict[str, object]] = []
    body = b'{"until": 95, "wait_s": 30}'
    asking = threading.Thread(target=lambda: answers.append(act(plain, "offsets", body)))
    asking.start()
    wait_for(lambda: act(plain, "health")["calls"] == {"followers": 0, "reads": 1, "appends": 0})
    source.set_stable(96)
    asking.join()
    assert answers[0]["stable"] == 96


def test_rows_beyond_the_stable_position_are_refused_or_asked_for_explicitly(plain: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightUnavailableError, match="position 95 is not stable at this member") as error:
        plain.do_get(ticket(first=80, last=95)).read_all()
    assert said(error) == said(error) | {"error": "LogBehindError", "asked": 95, "last": 100, "stable": 90}
    assert plain.do_get(ticket(first=80, last=95, unstable=True)).read_all().num_rows == 16
    with pytest.raises(flight.FlightUnavailableError, match="position 101 is not there at this member"):
        plain.do_get(ticket(first=80, last=101, unstable=True)).read_all()


def test_a_trimmed_start_fails_loudly(plain: flight.FlightClient, source: MemorySource) -> None:
    source.trim(50)
    with pytest.raises(flight.FlightServerError, match="position 10 was deleted by retention") as error:
        plain.do_get(ticket(first=10, last=60)).read_all()
    assert said(error) == said(error) | {"error": "LogTrimmedError", "asked": 10, "first": 50, "retryable": False}
    with pytest.raises(flight.FlightServerError, match="Start at 50"):
        plain.do_get(ticket(follow_from=10)).read_chunk()


def test_retention_that_overtakes_a_reader_is_an_error_and_no_gap(
    plain: flight.FlightClient, source: MemorySource
) -> None:
    reader = plain.do_get(ticket(follow_from=81))
    assert reader.read_chunk().data.num_rows == 10
    source.trim(95)
    source.set_stable(100)
    with pytest.raises(flight.FlightServerError, match="position 91 was deleted by retention"):
        reader.read_chunk()


def test_following_gives_what_is_there_and_then_what_comes(plain: flight.FlightClient, source: MemorySource) -> None:
    reader = plain.do_get(ticket(follow_from=89))
    assert reader.read_chunk().data.column("position").to_pylist() == [89, 90]
    source.set_stable(92)
    assert reader.read_chunk().data.column("position").to_pylist() == [91, 92]
    reader.cancel()


def test_following_unstable_rows(plain: flight.FlightClient, source: MemorySource) -> None:
    reader = plain.do_get(ticket(follow_from=99, unstable=True))
    assert reader.read_chunk().data.num_rows == 2
    source.grow(1, is_stable=False)
    assert reader.read_chunk().data.column("position").to_pylist() == [101]
    reader.cancel()


def test_heartbeats_are_empty_batches_with_the_bounds(plain: flight.FlightClient) -> None:
    reader = plain.do_get(ticket(follow_from=91, heartbeat_s=0.05))
    for _ in range(3):
        chunk = reader.read_chunk()
        assert chunk.data.num_rows == 0
        assert json.loads(chunk.app_metadata.to_pybytes())["stable"] == 90
    reader.cancel()


def test_a_range_waits_at_its_edge_if_asked_to(plain: flight.FlightClient, source: MemorySource) -> None:
    reader = plain.do_get(ticket(first=90, last=92, wait_s=30))
    assert reader.read_chunk().data.num_rows == 1
    source.set_stable(93)
    assert reader.read_chunk().data.column("position").to_pylist() == [91, 92]
    with pytest.raises(StopIteration):
        reader.read_chunk()
    with pytest.raises(flight.FlightUnavailableError, match="position 99 is not stable"):
        plain.do_get(ticket(first=94, last=99, wait_s=0.01)).read_all()


def append(client: flight.FlightClient, command: bytes, *batches: pa.RecordBatch) -> list[dict[str, int]]:
    writer, answers = client.do_put(flight.FlightDescriptor.for_command(command), batches[0].schema)
    for batch in batches:
        writer.write_batch(batch)
    writer.done_writing()
    found = []
    while (answer := answers.read()) is not None:
        found.append(json.loads(answer.to_pybytes()))
    writer.close()
    return found


def test_append_answers_with_positions_and_drops_repeats(plain: flight.FlightClient, source: MemorySource) -> None:
    one = pa.record_batch({"payload": pa.array([b"a", b"b"])})
    two = pa.record_batch({"payload": pa.array([b"c"])})
    first = append(plain, b'{"producer": 7, "sequence": 3}', one, two)
    assert first == [{"first": 101, "last": 102, "sequence": 3}, {"first": 103, "last": 103, "sequence": 4}]
    assert append(plain, b'{"producer": 7, "sequence": 4}', two) == [{"first": 0, "last": 0, "sequence": 4}]
    assert source.bounds().last == 103


def test_append_takes_strings_and_keys(plain: flight.FlightClient) -> None:
    batch = pa.record_batch({"key": pa.array(["k", None]), "payload": pa.array(["one", "two"])})
    append(plain, b'{"producer": 1, "sequence": 0}', batch)
    table = plain.do_get(ticket(first=101, last=102)).read_all()
    assert (table["key"].to_pylist(), table["payload"].to_pylist()) == ([b"k", b""], [b"one", b"two"])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"text": ["x"]}, "have a column payload"),
        ({"payload": [b"x"], "more": [1]}, "have a column payload"),
        ({"payload": [1]}, "the column payload is int64"),
        ({"payload": [b"x", None]}, "1 payloads are null"),
        ({"payload": pa.array([], pa.binary())}, "this append has no rows"),
        ({"payload": [b"x" * 2000]}, "takes 2004 bytes; the maximum is 1000"),
        ({"payload": [b"x"], "key": [b"k" * 70_000]}, "takes at least 17"),
    ],
)
def test_rows_that_cannot_be_appended(plain: flight.FlightClient, columns: dict[str, object], reason: str) -> None:
    with pytest.raises(flight.FlightServerError, match=reason):
        append(plain, b'{"producer": 1, "sequence": 0}', pa.record_batch(columns))


def test_a_service_without_appender_is_read_only(source: MemorySource) -> None:
    with LogService(source) as service, flight.connect(f"grpc://{service.endpoint}") as client:
        with pytest.raises(flight.FlightServerError, match="read-only") as error:
            append(client, b'{"producer": 1, "sequence": 0}', pa.record_batch({"payload": [b"x"]}))
        assert said(error)["error"] == "LogReadOnlyError"
        assert act(client, "health")["is_read_only"] is True


GARBAGE = [
    (b"", "is not JSON"),
    (b"\xff\xfe\x00", "is not JSON"),
    (b"[1, 2]", "is not a JSON object but list"),
    (b"[" * 3000, "is not JSON"),
    (b"{}" + b" " * 5000, "more than 4096 are not read"),
    (b'{"first": 0}', '"first" is 0'),
    (b'{"first": 1.5}', '"first" is 1.5'),
    (b'{"first": true}', '"first" is True'),
    (b'{"first": "1"}', '"first" is 1'),
    (b'{"first": 9223372036854775808}', "whole number from 1"),
    (b'{"last": -1}', '"last" is -1'),
    (b'{"batch_rows": 0}', '"batch_rows" is 0'),
    (b'{"batch_rows": 1000000000}', '"batch_rows"'),
    (b'{"wait_s": -1}', '"wait_s" is -1'),
    (b'{"wait_s": 1e9}', '"wait_s"'),
    (b'{"wait_s": NaN}', '"wait_s" is nan'),
    (b'{"heartbeat_s": "x"}', '"heartbeat_s" is x'),
    (b'{"unstable": 1}', '"unstable" is 1'),
    (b'{"compression": "rar"}', "there are lz4, zstd"),
    (b'{"compression": []}', "there are lz4, zstd"),
    (b'{"from": 1}', "has 'from'; known are first, last"),
    (b'{"first": 1, "follow_from": 2}', "not both"),
]


@pytest.mark.parametrize(("raw", "reason"), GARBAGE)
def test_garbage_tickets_are_refused_with_a_reason(plain: flight.FlightClient, raw: bytes, reason: str) -> None:
    with pytest.raises(flight.FlightServerError) as error:
        plain.do_get(flight.Ticket(raw)).read_all()
    assert said(error)["error"] == "LogRequestError"
    assert reason in str(said(error)["text"])
    with pytest.raises(flight.FlightServerError, match=re.escape(reason)):
        plain.get_flight_info(flight.FlightDescriptor.for_command(raw))
    assert act(plain, "health")["status"] == "serving"


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("offsets", b"nonsense", "is not JSON"),
        ("offsets", b'{"until": -1}', '"until" is -1'),
        ("offsets", b'{"wait": 1}', "known are until, wait_s"),
        ("", b"", "there is no action ''"),
        ("shutdown" * 100, b"", "there is no action"),
    ],
)
def test_garbage_actions_are_refused_with_a_reason(
    plain: flight.FlightClient, name: str, body: bytes, reason: str
) -> None:
    with pytest.raises(flight.FlightServerError) as error:
        act(plain, name, body)
    assert said(error)["error"] == "LogRequestError"
    assert reason in str(said(error)["text"])


@pytest.mark.parametrize("command", [b"", b"nonsense", b"{}", b'{"producer": 1}', b'{"producer": 0, "sequence": 1}'])
def test_garbage_descriptors_are_refused(plain: flight.FlightClient, source: MemorySource, command: bytes) -> None:
    with pytest.raises(flight.FlightServerError) as error:
        append(plain, command, pa.record_batch({"payload": [b"x"]}))
    assert said(error)["error"] == "LogRequestError"
    assert source.bounds().last == 100


def test_an_unknown_path_is_refused(plain: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightServerError, match="there is one log here, 'orders'"):
        plain.get_flight_info(flight.FlightDescriptor.for_path("payments"))
