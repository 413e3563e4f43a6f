"""A fuzz of what one real member serves: its log over Arrow Flight, and its admin port.

    python -m tests.fuzz.services --seconds 180 [--seed N]

The member is `motet node` in a process of its own, with a journal. Attacks are drawn from a seed: Arrow messages with
changed headers and buffers, protobuf, gRPC and HTTP/2 bytes, tickets, actions, descriptors, HTTP requests, and clients
that begin a request and do not end it. Whatever comes, the member must

- live, and answer a health probe and a question for its offsets after each attack, in bounded time;
- have no payload in its log that no client sent (bytes of its own memory, for example);
- tell no traceback to anybody, and log none of its own bugs;
- stay within MOST_RSS_BYTES.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import flight

from tests.fuzz import grpc_bytes as grpc

TOKEN = "a-token-of-the-fuzz"
MOST_RSS_BYTES = 1 << 30
ANSWER_S = 30.0  # a probe that is not answered by then hangs; what it takes is not measured
ATTACK_S = 0.5  # how long an attack listens for an answer: some ask for an endless stream
MOST_SLOW = 100
EDGES = (0, 1, 2, 4, 7, 8, 64, 4000, 1 << 15, 1 << 16, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 62, -1)
SECRETS = (b"Traceback", b'File "')
# A header that is no ASCII is refused by pyarrow before it asks the member, with the lines of its own source.
PYARROWS_OWN = re.compile(
    rb"Traceback[^:]*:(%0A|\s)+(File \"pyarrow/_flight\.pyx\", line \d+, in [\w.]+(%0A|\s)+)+Unicode"
)
METHODS = ("DoPut", "DoGet", "DoAction", "DoExchange", "GetFlightInfo", "GetSchema", "PollFlightInfo", "ListFlights")
JSON_SEEDS = (
    b'{"first": 1, "last": 5}',
    b'{"follow_from": 1, "heartbeat_s": 0.1}',
    b'{"first": 1, "last": 9, "batch_rows": 2, "unstable": true, "compression": "zstd"}',
    b'{"producer": 7, "sequence": 3}',
    b'{"until": 5, "wait_s": 0.1}',
    b'{"first": [[{"a": "\\ud800"}]], "last": 1e999}',
)
HTTP_SEEDS = (
    *(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in (b"/", b"/stats", b"/metrics", b"/picture")),
    b"GET /history?x=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nonsense\r\n\r\n",
    b"GET /events HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /operate/leave HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /operate/sync HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer "
    + TOKEN.encode()
    + b'\r\nContent-Length: 17\r\n\r\n{"member":"none"}',
)


class FindingError(AssertionError):
    """What the member must not do, and it did."""


@dataclass(slots=True)
class Member:
    process: subprocess.Popen[str]
    log: int  # port
    admin: int
    said: Path  # what it logs

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status")
        found = re.search(r"VmRSS:\s+(\d+)", status.read_text()) if status.exists() else None
        return int(found[1]) << 10 if found else 0


@contextmanager
def member(directory: Path) -> Iterator[Member]:
    """A real one, alone in its group, until the block ends."""
    places = ["--bind", "127.0.0.1:0", "--serve", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    command = [sys.executable, "-m", "motet", "node", "--group", "fuzz", "--name", "ann", *places]
    command += ["--journal", str(directory / "journal"), "--preset", "local", "--json"]
    said = directory / "stderr"
    with (
        said.open("w") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "MOTET_TOKEN": TOKEN},
        ) as process,
    ):
        try:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline() or "{}")
            assert "log" in started, said.read_text()
            while "view" not in process.stdout.readline():
                assert process.poll() is None, said.read_text()
            # Deliveries are printed; into a pipe that nobody reads they would stop the member.
            with subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL):
                try:
                    yield Member(process, _port(started["log"]), _port(started["admin"]), said)
                finally:
                    process.kill()
        finally:
            process.kill()


def _port(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


@dataclass(slots=True)
class Fuzz:
    member: Member
    random: random.Random
    client: flight.FlightClient
    attacks: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    slow: deque[socket.socket] = field(default_factory=deque)
    sequence: int = 0

    def options(self, within_s: float) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=within_s, headers=[(b"authorization", f"Bearer {TOKEN}".encode())])

    def run(self, seconds: float, most: int | None = None) -> None:
        ends_at = time.monotonic() + seconds
        kinds: list[Callable[[], None]] = [
            *[self.arrow] * 6,
            *[self.offsets] * 2,
            self.grpc,
            self.tickets,
            self.actions,
            *[self.http] * 2,
            self.slow_clients,
        ]
        while time.monotonic() < ends_at and (most is None or self.attacks.total() < most):
            attack = self.random.choice(kinds)
            self.attacks[attack.__name__] += 1
            attack()
            self.check()
        for connection in self.slow:
            connection.close()

    # What must hold

    def check(self) -> None:
        if self.member.process.poll() is not None:
            raise FindingError(
                f"the member ended: {self.member.process.returncode}; {self.member.said.read_text(errors='replace')}"
            )
        self._probe()
        json.loads(next(iter(self.client.do_action(("offsets", b""), self.options(ANSWER_S)))).body.to_pybytes())
        if (rss := self.member.rss_bytes()) > MOST_RSS_BYTES:
            raise FindingError(f"the member takes {rss >> 20} MiB")
        if "Traceback" in (said := self.member.said.read_text(errors="replace")):
            raise FindingError(f"the member logs a bug: {said[-4000:]}")

    def _probe(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.member.admin, timeout=ANSWER_S)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise FindingError(f"/health says {answer.status}: {answer.read()!r}")
        finally:
            connection.close()

    def _tells_nothing(self, answer: bytes) -> None:
        told = PYARROWS_OWN.sub(b"", answer)
        if any(secret in told for secret in SECRETS):
            raise FindingError(f"an answer tells of the member's inside: {answer!r}")

    def _check_rows(self, answer: bytes, sent: bytes) -> None:
        """Rows that were accepted are bytes that were sent; what is compressed is not looked into."""
        for first, last in re.findall(rb'"first": (\d+), "last": (\d+)', answer):
            self.accepted += 1
            if int(first) == 0:
                continue
            ticket = flight.Ticket(json.dumps({"first": int(first), "last": int(last)}))
            rows = self.client.do_get(ticket, self.options(ANSWER_S)).read_all()
            for text in (*rows["payload"].to_pylist(), *rows["key"].to_pylist()):
                if text and text not in sent:
                    raise FindingError(f"the log has {len(text)} bytes that nobody sent: {text[:200]!r}")

    # Attacks

    def arrow(self) -> None:
        """An append or an exchange, of messages that were Arrow before they were changed."""
        compression = self.random.choice((None, None, None, "lz4", "zstd"))
        parts = grpc.ipc_messages(self._batch(), compression)
        parts = [self._changed_part(header, body) for header, body in parts]
        if self.random.random() < 0.2:
            parts.insert(self.random.randrange(len(parts) + 1), self.random.choice(parts))
        described = grpc.descriptor(self._append_command())
        data = [grpc.flight_data(*part, b"" if at else described) for at, part in enumerate(parts)]
        method = "DoExchange" if self.random.random() < 0.1 else "DoPut"
        answer = grpc.ask(self.member.log, grpc.call(method, TOKEN, b"".join(map(grpc.message, data))), 2 * ATTACK_S)
        self._tells_nothing(answer)
        if compression is None:
            self._check_rows(grpc.data_of(answer), b"".join(body for _, body in parts))

    def offsets(self) -> None:
        """Rows whose offsets point anywhere, by a real Flight client: its arrays are changed after they were made."""
        numbers = np.array([0, 4, 8], np.int32)
        data = b"AAAABBBB"
        payload = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(numbers), pa.py_buffer(data)])
        good = pa.array([b"good", b"rows"])
        columns = {"payload": payload} if self.random.random() < 0.5 else {"payload": good, "key": payload}
        batch = pa.record_batch(columns)
        numbers[1:] = sorted(self.random.choice((4, 8, 9, 4000, 1 << 20, 1 << 30)) for _ in range(2))
        command = flight.FlightDescriptor.for_command(self._append_command())
        try:
            writer, answers = self.client.do_put(command, batch.schema, self.options(ANSWER_S))
            writer.write_batch(batch)
            writer.done_writing()
            answer = answers.read()
            if answer is not None:
                self._check_rows(answer.to_pybytes(), data + b"goodrows")
            writer.close()
        except pa.ArrowException as error:
            self._tells_nothing(str(error).encode())

    def grpc(self) -> None:
        """Any method with any bytes, wrong at any layer below Arrow."""
        body = self.random.choice((grpc.field(1, self._json()), grpc.field(2, self._json()), self.random.randbytes(40)))
        raw = grpc.message(self._changed(body) if self.random.random() < 0.5 else body)
        if self.random.random() < 0.3:
            raw = self._changed(raw)
        token = self.random.choice((TOKEN, TOKEN, TOKEN, "wrong"))
        call = grpc.call(self.random.choice(METHODS), token, raw)
        if self.random.random() < 0.3:
            call = call[: len(grpc.PREFACE)] + self._changed(call[len(grpc.PREFACE) :])
        self._tells_nothing(grpc.ask(self.member.log, call, ATTACK_S))

    def tickets(self) -> None:
        raw = self._json()
        try:
            if self.random.random() < 0.5:
                self.client.get_flight_info(flight.FlightDescriptor.for_command(raw), self.options(ANSWER_S))
            else:
                self.client.do_get(flight.Ticket(raw), self.options(ATTACK_S)).read_all()
        except pa.ArrowException as error:
            self._tells_nothing(str(error).encode())

    def actions(self) -> None:
        name = self.random.choice(("offsets", "health", "CancelFlightInfo", "CloseSession", "x" * 300, ""))
        try:
            list(self.client.do_action((name, self._json()), self.options(ANSWER_S)))
        except pa.ArrowException as error:
            self._tells_nothing(str(error).encode())

    def http(self) -> None:
        raw = self.random.choice(HTTP_SEEDS)
        raw = self._changed(raw) if self.random.random() < 0.8 else raw
        place = ("127.0.0.1", self.member.admin)
        with socket.create_connection(place, timeout=ATTACK_S) as connection, suppress(OSError):
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            self._tells_nothing(connection.recv(65_536))

    def slow_clients(self) -> None:
        """They begin a request, or take no answer, and stay."""
        for _ in range(10):
            connection = socket.create_connection(("127.0.0.1", self.member.admin), timeout=ATTACK_S)
            raw = self.random.choice(HTTP_SEEDS[:6])
            with suppress(OSError):
                connection.sendall(raw if self.random.random() < 0.3 else raw[: self.random.randrange(len(raw))])
            self.slow.append(connection)
        while len(self.slow) > MOST_SLOW:
            self.slow.popleft().close()

    # Drawing

    def _append_command(self) -> bytes:
        self.sequence += 1
        command = b'{"producer": 9, "sequence": %d}' % self.sequence
        return self._changed(command) if self.random.random() < 0.05 else command

    def _batch(self) -> pa.RecordBatch:
        texts = [
            self.random.choice((b"", b"abcd", b"0123456789" * 3, b"x" * 300)) for _ in range(1 + self.sequence % 5)
        ]
        kinds = [pa.binary()] * 3 + [pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view()]
        payload = pa.array(texts, self.random.choice(kinds))
        others = [None, None, payload, pa.array([None, *texts[1:]], pa.binary()), pa.nulls(len(texts))]
        others += [payload.cast(pa.binary()).dictionary_encode(), pa.array([[text] for text in texts])]
        key = self.random.choice(others)
        return pa.record_batch({"payload": payload} if key is None else {"payload": payload, "key": key})

    def _changed_part(self, header: bytes, body: bytes) -> tuple[bytes, bytes]:
        draw = self.random.random()
        if draw < 0.15:
            header = self._changed(header)
        elif draw < 0.6:
            body = self._changed(body)
        return header, body

    def _json(self) -> bytes:
        seed = self.random.choice(JSON_SEEDS)
        return self._changed(seed) if self.random.random() < 0.7 else seed

    def _changed(self, data: bytes) -> bytes:
        """A few changes of the kinds that break readers: numbers at their edges, bits, lost and doubled pieces."""
        found = bytearray(data)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            if not found:
                break
            at = self.random.randrange(len(found))
            match self.random.randrange(5):
                case 0 | 1:
                    width = self.random.choice((4, 4, 8))
                    start = at - at % 4
                    number = self.random.choice(EDGES) & ((1 << 8 * width) - 1)
                    found[start : start + width] = number.to_bytes(width, "little")[: len(found) - start]
                case 2:
                    found[at] ^= 1 << self.random.randrange(8)
                case 3:
                    del found[at : at + self.random.choice((1, 4, 8, len(found)))]
                case _:
                    found[at:at] = found[: self.random.choice((1, 4, 8, 64))]
        return bytes(found)


def fuzz(directory: Path, seconds: float, seed: int, most: int | None = None) -> Fuzz:
    with member(directory) as target, flight.connect(f"grpc://127.0.0.1:{target.log}") as client:
        found = Fuzz(target, random.Random(seed), client)
        found.run(seconds, most)
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.services", description="Attack one real member.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    with tempfile.TemporaryDirectory() as directory:
        try:
            done = fuzz(Path(directory), given.seconds, given.seed)
        except FindingError as error:
            sys.stdout.write(f"found: {error}\n")
            return 1
    attacks = ", ".join(f"{count} {name}" for name, count in sorted(done.attacks.items()))
    sys.stdout.write(f"{done.attacks.total()} attacks ({attacks}), {done.accepted} appends accepted; nothing found\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
