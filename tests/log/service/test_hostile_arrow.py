"""Arrow data of clients is believed in nothing: no byte of the process gets into the log, and nothing ends the process.

The service is a process of its own, because what is tested here ended it once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

from motet.errors import LogBrokenError
from motet.log.service.flight import LogService
from tests.fuzz import grpc_bytes as grpc
from tests.log.service.memory import MemorySource, client_of, rows

ROOT = Path(__file__).parents[3]
ROW_BYTES = 100_000_000


@contextmanager
def process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, "-m", "tests.log.service.append_process"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    ) as service:
        assert service.stdout is not None
        try:
            yield service, service.stdout.readline().strip()
        finally:
            service.kill()


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with process() as started:
        yield started


@pytest.fixture
def plain(service: tuple[subprocess.Popen[str], str]) -> Iterator[flight.FlightClient]:
    with flight.connect(f"grpc://{service[1]}") as client:
        yield client
        assert last_of(client) == 0, "something got into the log"
        assert service[0].poll() is None


def last_of(client: flight.FlightClient) -> int:
    (answer,) = client.do_action(("offsets", b""))
    return int(json.loads(answer.body.to_pybytes())["last"])


def put(client: flight.FlightClient, batch: pa.RecordBatch) -> None:
    command = flight.FlightDescriptor.for_command(b'{"producer": 1, "sequence": 1}')
    writer, answers = client.do_put(command, batch.schema, flight.FlightCallOptions(timeout=60))
    try:
        writer.write_batch(batch)
        writer.done_writing()
        answers.read()
    finally:
        writer.close()


class Broken:
    """A column of two rows of four bytes, whose offsets can be bent when nobody checks them any more."""

    def __init__(self, validity: bytes | None = None) -> None:
        self._offsets = np.array([0, 4, 8], np.int32)
        valid = None if validity is None else pa.py_buffer(validity)
        data = pa.py_buffer(b"AAAABBBB")
        self.column = pa.Array.from_buffers(pa.binary(), 2, [valid, pa.py_buffer(self._offsets), data])

    def bend(self, offsets: tuple[int, ...]) -> None:
        self._offsets[:] = offsets


@pytest.mark.parametrize("offsets", [(0, 4000, 8000), (0, 1 << 20, 1 << 30), (0, 9, 8)])
def test_payload_offsets_outside_of_the_data_are_refused(plain: flight.FlightClient, offsets: tuple[int, ...]) -> None:
    broken = Broken()
    batch = pa.record_batch({"payload": broken.column})
    broken.bend(offsets)
    with pytest.raises(flight.FlightServerError, match="the column payload is no valid Arrow data"):
        put(plain, batch)


@pytest.mark.parametrize("offsets", [(0, 4000, 8000), (0, 1 << 30, (1 << 30) + 8)])
def test_key_offsets_outside_of_the_data_are_refused(plain: flight.FlightClient, offsets: tuple[int, ...]) -> None:
    broken = Broken(validity=b"\x02")
    batch = pa.record_batch({"payload": pa.array([b"a", b"b"]), "key": broken.column})
    broken.bend(offsets)
    with pytest.raises(flight.FlightServerError, match="the column key is no valid Arrow data"):
        put(plain, batch)


def test_more_rows_than_there_is_memory_cost_nothing(plain: flight.FlightClient) -> None:
    """A column of nulls has no buffers, so that a small message may claim any number of rows."""
    with pytest.raises(flight.FlightServerError, match="takes at least"):
        put(plain, pa.record_batch([pa.nulls(1 << 30)], names=["payload"]))


def test_dictionaries_are_refused_by_their_schema(plain: flight.FlightClient) -> None:
    """Their indices are offsets, too."""
    with pytest.raises(flight.FlightServerError, match="the column payload is dictionary"):
        put(plain, pa.record_batch({"payload": pa.array([b"a", b"b"]).dictionary_encode()}))


@pytest.mark.parametrize("cut", [4, 40, 100])
def test_an_arrow_header_that_is_cut_off_is_refused_as_a_request(
    service: tuple[subprocess.Popen[str], str], plain: flight.FlightClient, cut: int
) -> None:
    """As what cannot be read, not as a failure of this member, for which a client would try the next one."""
    schema, batch = grpc.ipc_messages(pa.record_batch({"payload": [b"a", b"b"]}))
    described = grpc.descriptor(b'{"producer": 1, "sequence": 1}')
    data = [grpc.flight_data(*schema, described), grpc.flight_data(batch[0][:cut], batch[1])]
    port = int(service[1].rpartition(":")[2])
    answer = grpc.ask(port, grpc.call("DoPut", "", b"".join(map(grpc.message, data))), 60)
    assert b"the rows to append cannot be read" in answer
    assert b"Traceback" not in answer


def test_names_that_are_no_text_are_refused_as_requests(
    service: tuple[subprocess.Popen[str], str], plain: flight.FlightClient
) -> None:
    port = int(service[1].rpartition(":")[2])
    header, body = grpc.ipc_messages(pa.record_batch({"payload": [b"a"]}))[0]
    schema = grpc.flight_data(
        header.replace(b"payload", b"\xffayload"), body, grpc.descriptor(b'{"producer": 1, "sequence": 1}')
    )
    answer = grpc.ask(port, grpc.call("DoPut", "", grpc.message(schema)), 60)
    assert b"the rows to append cannot be read" in answer
    answer = grpc.ask(port, grpc.call("DoAction", "", grpc.message(grpc.field(1, b"\xffoffsets"))), 60)
    assert b"the name of an action is UTF-8" in answer or b"grpc-status" in answer
    assert b"failed at this member" not in answer


def test_an_exchange_is_refused_with_a_sentence_and_no_traceback(plain: flight.FlightClient) -> None:
    writer, reader = plain.do_exchange(flight.FlightDescriptor.for_command(b"{}"))
    with pytest.raises(flight.FlightServerError, match="there is no exchange here") as error:
        reader.read_chunk()
    assert json.loads(error.value.extra_info)["error"] == "LogRequestError"
    assert "Traceback" not in str(error.value)
    with suppress(flight.FlightError):  # it says the same again
        writer.close()


def test_an_action_body_is_measured_before_it_is_read(plain: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightServerError, match="this body has 5000 bytes"):
        list(plain.do_action(("health", b" " * 5000)))


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of another process is read from /proc")
def test_a_row_of_100_mb_is_held_twice_at_most() -> None:
    """By gRPC and by Arrow, before anybody can ask for its size; we add nothing to that."""
    with process() as (service, endpoint), flight.connect(f"grpc://{endpoint}") as client:
        last_of(client)
        before = peak_bytes(service.pid)
        batch = pa.record_batch({"payload": pa.array([b"x" * ROW_BYTES])})
        with pytest.raises(flight.FlightServerError, match="takes at least 24999874 bytes"):
            put(client, batch)
        assert peak_bytes(service.pid) - before < 2.2 * ROW_BYTES


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of another process is read from /proc")
def test_a_large_row_of_strings_is_refused_before_it_is_converted() -> None:
    """Fixed-size and string columns would be copied when they become binary."""
    with process() as (service, endpoint), flight.connect(f"grpc://{endpoint}") as client:
        last_of(client)
        before = peak_bytes(service.pid)
        batch = pa.record_batch({"payload": pa.array([b"x" * ROW_BYTES], pa.binary(ROW_BYTES))})
        with pytest.raises(flight.FlightServerError, match="takes at least"):
            put(client, batch)
        assert peak_bytes(service.pid) - before < 2.2 * ROW_BYTES


def peak_bytes(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


# What members tell a client


class LyingSource(MemorySource):
    """Its payloads claim to be longer than the data that they are in."""

    def read(self, first: int, last: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        broken, sound = Broken(), rows(1, 2)
        batch = pa.RecordBatch.from_arrays([*sound.columns[:-1], broken.column], schema=sound.schema)
        broken.bend((0, 4000, 8000))
        yield batch


def test_a_client_believes_no_offsets_of_a_member() -> None:
    with (
        LogService(LyingSource(last=2)) as service,
        client_of(service, timeout_s=0.1) as client,
        pytest.raises(LogBrokenError, match="no valid Arrow data"),
    ):
        list(client.read(1, 2))
